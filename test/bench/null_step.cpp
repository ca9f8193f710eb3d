// A step that does nothing but move its parameters: each worker gets a value from the driver's
// variable and sends one number back, as when parameters are fetched for a training step. A scalar;
// 100 MB dense; 32 rows of 1 KiB out of 100 MB, other rows for each worker. On 1 to 4 workers, each
// a process on this machine, by shared memory. Peer for the dense step: one warm memcpy of what is
// moved; for the sparse step: the scalar one. In the simulation 16, 64 and 256 workers, with the
// messages of a step.
#include <thread>

#include <troupe/functions.hpp>
#include <troupe/test/bench/processes.hpp>
#include <troupe/test/bench/simulated_cluster.hpp>

namespace {

using namespace troupe;
constexpr int kMost = 4, kRepetitions = 5;
constexpr std::int64_t kFloats = 25'000'000, kColumns = 256, kUsed = 32;

enum class Kind { scalar, dense, sparse };

class Step {
 public:
  Step(Engine& engine, const bench::Processes& workers, int count, Kind kind) {
    const Shape shapes[] = {{}, {kFloats}, {kFloats / kColumns, kColumns}};
    Variable v = graph_.variable("parameters_" + std::to_string(static_cast<int>(kind)), DType::f32,
                                 shapes[static_cast<int>(kind)], Initializer::constant(0));
    const Expr value = kind == Kind::sparse ? Expr() : v.read();
    std::vector<Expr> fetches;
    for (int w = 0; w < count; ++w) {
      const Expr rows = kind == Kind::sparse ? gather(v, graph_.constant(rows_of(w))) : value;
      auto there = graph_.on_device(workers.device(static_cast<std::size_t>(w)));
      fetches.push_back(kind == Kind::scalar  ? rows + 1.0
                        : kind == Kind::dense ? slice(rows, {0}, {1}) + 1.0
                                              : slice(rows, {kUsed - 1, 0}, {1, 1}) + 1.0);
    }
    run_ = engine.compile(graph_, {}, fetches);
    ms(1);
  }
  double ms(int steps) {
    std::vector<Tensor> out;
    const double start = bench::now_ns();
    for (int i = 0; i < steps; ++i) out = run_({});
    const double took = bench::now_ns() - start;
    for (const Tensor& t : out) bench::require(t.at(0) == 1, "a step whose value is right");
    return took / steps / 1e6;
  }

 private:
  static Tensor rows_of(int worker) {
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < kUsed; ++i)
      rows.push_back((i * 9973 + worker * 131) % (kFloats / kColumns));
    return Tensor::of<std::int64_t>(rows, {kUsed});
  }

  Graph graph_;
  Function run_;
};

double memcpy_ms(std::size_t bytes) {
  static std::vector<char> from(bytes, 1), to(bytes, 2);
  const double start = bench::now_ns();
  std::memcpy(to.data(), from.data(), bytes);
  const double took = bench::now_ns() - start;
  if (to[bytes / 2] != 1) std::exit(1);
  return took / 1e6;
}

/// Messages of a step to many workers in the simulation, after the first, which makes the plan.
void simulated(int workers, Kind kind) {
  auto nodes = std::make_unique<bench::SimulatedCluster>(workers + 1);
  Graph g;
  const bool is_sparse = kind == Kind::sparse;
  const Variable v = g.variable("parameters", DType::f32, is_sparse ? Shape{1024, 8} : Shape{},
                                Initializer::constant(0));
  const Expr value = is_sparse ? Expr() : v.read();
  Exprs fetches;
  for (int w = 1; w <= workers; ++w) {
    const Expr rows =
        is_sparse ? gather(v, g.constant(Tensor::of<std::int64_t>({w, 2 * w}, {2}))) : value;
    auto there = g.on_device("/node:" + nodes->names()[static_cast<std::size_t>(w)] + "/cpu:0");
    fetches.push_back(rows + 1.0);
  }
  const Function f = nodes->engine().compile(g, {}, fetches);
  const auto step = [&] {
    RunHandle h = f.start({});
    while (!h.is_done() && nodes->step()) {}
    h.get();
  };
  step();
  const double before = nodes->messages(), began_ms = nodes->now_ms();
  step();
  bench::Comparison c{
      .name = std::string(is_sparse ? "null_step_rows_simulated_" : "null_step_simulated_") +
              std::to_string(workers),
      .unit = "messages",
      .peer = "none",
      .threads = 1,
      .ours = {nodes->messages() - before},
      .also = {{"a_worker", (nodes->messages() - before) / workers},
               {"virtual_ms", nodes->now_ms() - began_ms}}};
  c.note = "a step; virtual clock, 50 us to 5 ms a message";
  c.print();
}

}  // namespace

int main() {
  bench::Processes workers(kMost);
  auto node = workers.join();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const char* const names[] = {"null_step_scalar_", "null_step_100MB_", "null_step_32_rows_"};
  const char* const peers[] = {"none", "warm memcpy, once a worker", "the scalar step"};
  for (const Kind kind : {Kind::scalar, Kind::dense, Kind::sparse})
    for (int count = 1; count <= kMost; ++count) {
      Step step(node->engine(), workers, count, kind);
      std::unique_ptr<Step> scalar;
      if (kind == Kind::sparse)
        scalar = std::make_unique<Step>(node->engine(), workers, count, Kind::scalar);
      const bool is_dense = kind == Kind::dense;
      const std::size_t bytes = 4 * static_cast<std::size_t>(kFloats);
      bench::Comparison c{.name = names[static_cast<int>(kind)] + std::to_string(count),
                          .unit = "ms",
                          .peer = peers[static_cast<int>(kind)],
                          .threads = count + 1,
                          .speed_up = true};
      for (int i = 0; i < kRepetitions; ++i) {
        c.ours.push_back(step.ms(is_dense ? 3 : 300));
        if (scalar) c.theirs.push_back(scalar->ms(300));
        if (!is_dense) continue;
        double copy = 0;
        for (int w = 0; w < count; ++w) copy += memcpy_ms(bytes);
        c.theirs.push_back(copy);
      }
      c.also = {{"steps_s", 1e3 / bench::median(c.ours)}};
      if (is_dense)
        c.also.emplace_back("gb_s",
                            static_cast<double>(bytes) * count / bench::median(c.ours) / 1e6);
      if (count + 1 > cores) c.note = "more processes than cores";
      c.print();
    }
  for (const int workers_there : {16, 64, 256})
    for (const Kind kind : {Kind::scalar, Kind::sparse}) simulated(workers_there, kind);
}
