// A training step that uses 32 random rows of a table of 256 columns: look-up, loss, gradient and
// update of these rows. Its time should not depend on the table's size, 64 Ki or 1 Mi rows (64 MiB
// and 1 GiB). `_here`: the table is a variable of this process; the peer is PyTorch's embedding
// with sparse gradients and SGD. `_sharded_N`: a ShardedVariable over this process and N - 1
// others, which share memory; the peer is the small table.
//
//   sparse_step sharded                  # without the rows `_here`
//   sparse_step profile 65536 2000       # rows, steps: in this process, for a profiler
#include <cmath>
#include <random>
#include <thread>

#include <fmt/format.h>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/sharded_variable.hpp>
#include <troupe/test/bench/peer.hpp>
#include <troupe/test/bench/processes.hpp>

namespace {

using namespace troupe;
constexpr std::int64_t kUsed = 32, kColumns = 256, kSmall = 64 * 1024, kLarge = 1024 * 1024;
constexpr int kRepetitions = 9, kSteps = 500, kMost = 4;

/// A step over a table, which is whole or sharded.
class Step {
 public:
  Step(Engine& engine, std::int64_t rows, const std::vector<std::string>& devices)
      : engine_(engine), rows_(rows) {
    const std::string name = fmt::format("table_{}_{}", rows, devices.size());
    const Expr ids = graph_.input("ids", DType::i64, {kUsed});
    const Sgd sgd({.learning_rate = 0.1});
    Expr loss, train;
    if (devices.empty()) {
      const Variable table =
          graph_.variable(name, DType::f32, {rows, kColumns}, Initializer::constant(1));
      loss = mean(square(gather(table, ids)));
      train = sgd.minimize(loss, {table});
    } else {
      const ShardedVariable table(graph_, name, DType::f32, {rows, kColumns},
                                  Initializer::constant(1), collective::Group("servers", devices),
                                  Partitioner::modulo());
      loss = mean(square(table.lookup(ids)));
      train = sgd.minimize(loss, table.shards());
    }
    run_ = engine.compile(graph_, {ids}, {loss, train});
    us(10);
  }
  double us(int steps) {
    std::vector<Tensor> ids;
    for (int i = 0; i < steps; ++i) {
      std::vector<std::int64_t> some;
      for (std::int64_t k = 0; k < kUsed; ++k)
        some.push_back(static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(rows_)));
      ids.push_back(Tensor::of<std::int64_t>(some, {kUsed}));
    }
    float loss = 0;
    const double start = bench::now_ns();
    for (int i = 0; i < steps; ++i)
      loss = run_({ids[static_cast<std::size_t>(i)]})[0].item<float>();
    const double took = bench::now_ns() - start;
    bench::require(loss > 0.5f && loss <= 1, "sparse_step: a loss that is right");
    return took / steps / 1e3;
  }
  const Function& function() const { return run_; }

 private:
  Engine& engine_;
  const std::int64_t rows_;
  Graph graph_;
  Function run_;
  std::mt19937_64 random_{7};
};

void compare(const std::string& name, Step& small, Step& large, bench::Peer* torch,
             double budget_value, int processes) {
  const bool is_crowded = static_cast<unsigned>(processes) > std::thread::hardware_concurrency();
  bench::Comparison first{.name = name + "_64Ki",
                          .unit = "us",
                          .peer = "none",
                          .threads = processes,
                          .budget_value = budget_value},
      second{.name = name + "_1Mi",
             .unit = "us",
             .peer = "the same of 64 Ki rows",
             .budget = 1.1,
             .threads = processes,
             .budget_value = budget_value};
  if (torch) torch->describe(first, "torch, sparse embedding and SGD");
  for (int i = 0; i < kRepetitions; ++i) {
    first.ours.push_back(small.us(kSteps));
    second.ours.push_back(large.us(kSteps));
    second.theirs.push_back(first.ours.back());
    if (torch && torch->is_here())
      first.theirs.push_back(torch->ask(fmt::format("steps {} {}", kSmall, kSteps))[0] / 1e3);
  }
  for (bench::Comparison* c : {&first, &second}) {
    if (is_crowded) c->note = "more processes than cores";
    c->print();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "profile") {
    EngineOptions o;
    o.workers = 1;
    Engine engine(std::move(o));
    Step step(engine, argc > 2 ? std::atoll(argv[2]) : kSmall, {});
    if (std::getenv("EXPLAIN")) std::puts(step.function().explain().c_str());
    for (int i = 0; i < 5; ++i)
      std::printf("%.4g us a step\n", step.us(argc > 3 ? std::atoi(argv[3]) : 2000));
    return 0;
  }
  const bool is_sharded_only = argc > 1 && std::string(argv[1]) == "sharded";
  bench::Processes workers(kMost - 1);
  bench::Peer torch("torch", "sparse_step_torch.py", {"1"});
  if (!is_sharded_only) {
    EngineOptions o;
    o.workers = 1;
    Engine engine(std::move(o));
    Step small(engine, kSmall, {}), large(engine, kLarge, {});
    compare("sparse_step_here", small, large, &torch, 25, 1);
  }
  const auto node = workers.join();
  for (int count = 2; count <= kMost; ++count) {
    std::vector<std::string> devices{"/node:driver/cpu:0"};
    for (int w = 1; w < count; ++w)
      devices.push_back(workers.device(static_cast<std::size_t>(w) - 1));
    Step small(node->engine(), kSmall, devices), large(node->engine(), kLarge, devices);
    compare(fmt::format("sparse_step_sharded_{}", count), small, large, nullptr, 0, count);
  }
}
