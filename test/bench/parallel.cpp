// Measures the gain of a second worker: two independent heavy branches on an engine of two workers
// against one of one worker, hot and after 200 ms of idleness (budget: 1.8×). Measures its cost,
// too: graphs of 10,000 tiny operations, which must not run slower with two workers than with one
// (budget: 1×).
//
// The engines live in this process and alternate. Their results are compared bit for bit.
#include <troupe/actors/engine/engine.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>
#include <troupe/test/bench/pattern.hpp>

#include <cstdlib>
#include <thread>

namespace {

using namespace troupe;
using namespace std::chrono_literals;
// the cache contents of a sleeping core, and its time to run, vary by a third
constexpr int kRepetitions = 15, kAfterIdle = 41;

/// One graph on engines that differ in their workers alone.
class Engines {
 public:
  Engines(const std::vector<int>& workers, const Graph& graph, const std::vector<Expr>& feeds,
          const std::vector<Expr>& fetches, std::vector<Tensor> values, bool optimize)
      : values_(std::move(values)), results_(workers.size()) {
    for (std::size_t e = 0; e < workers.size(); ++e) {
      EngineOptions options;
      options.workers = workers[e];
      CompileOptions compile;
      compile.optimize = optimize;
      engines_.push_back(std::make_unique<Engine>(options));
      functions_.push_back(engines_[e]->compile(graph, feeds, fetches, compile));
      for (int i = 0; i < 5; ++i) run(e);
    }
    check();
  }

  /// ns of one run of an engine.
  double run(std::size_t engine, std::chrono::milliseconds idle = 0ms) {
    std::this_thread::sleep_for(idle);
    const double start = bench::now_ns();
    results_[engine] = functions_[engine](values_);
    return bench::now_ns() - start;
  }
  double several(std::size_t engine, int runs) {
    run(engine);  // wakes the workers
    double sum = 0;
    for (int i = 0; i < runs; ++i) sum += run(engine);
    return sum / runs;
  }
  void check() const {
    for (const std::vector<Tensor>& result : results_)
      for (std::size_t i = 0; i < result.size(); ++i)
        if (!identical(results_[0][i], result[i])) {
          std::fprintf(stderr, "engines of different workers disagree\n");
          std::exit(1);
        }
  }

 private:
  std::vector<Tensor> values_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<Function> functions_;
  std::vector<std::vector<Tensor>> results_;
};

void two_branches() {
  Graph g;
  const Shape square{512, 512};
  Expr x = g.input("x", DType::f32, square), w = g.input("w", DType::f32, square);
  Expr left = x, right = x + 1.0;
  for (int i = 0; i < 4; ++i) {
    left = matmul(left, w);
    right = matmul(w, right);
  }
  Engines engines({1, 2}, g, {x, w}, {left, right},
                  {bench::pattern(square, 1, 1), bench::pattern(square, 0.2, 2)}, true);
  for (const auto idle : {0ms, 200ms}) {
    bench::Comparison c{.name = idle == 0ms ? "two_branches_hot" : "two_branches_after_idle",
                        .unit = "ns",
                        .peer = "the same engine with one worker",
                        .peer_version = "same build",
                        .budget = 1.8,
                        .threads = 2,
                        .speed_up = true,
                        .note = "two branches of four 512x512 f32 products each"};
    for (int i = 0; i < (idle == 0ms ? kRepetitions : kAfterIdle); ++i) {
      if (idle == 0ms) engines.run(0);
      c.theirs.push_back(engines.run(0, idle));
      if (idle == 0ms) engines.run(1);
      c.ours.push_back(engines.run(1, idle));
      engines.check();
    }
    c.print();
  }
}

Expr step(const Expr& y, const Expr& a, const Expr& b, int i) { return i % 2 == 0 ? y * a : y + b; }

void tiny_ops(const char* name, int chains, int rank) {
  Graph g;
  const Shape shape = rank == 0 ? Shape{} : Shape{1};
  Expr x = g.input("x", DType::f32, shape), a = g.input("a", DType::f32, shape),
       b = g.input("b", DType::f32, shape);
  Expr sum;
  const int length = 10'000 / chains;
  for (int k = 0; k < chains; ++k) {
    Expr y = x;
    for (int i = 0; i < length - 1; ++i) y = step(y, a, b, i);
    sum = sum.is_empty() ? y * a : sum + y;
  }
  auto value = [&](float v) { return rank == 0 ? Tensor::scalar(v) : Tensor::of({v}); };
  Engines engines({1, 2, 1}, g, {x, a, b}, {sum}, {value(0.25f), value(0.999f), value(0.5f)},
                  false);
  bench::Comparison c{.name = name,
                      .unit = "ns an op",
                      .peer = "the same engine with one worker",
                      .peer_version = "same build",
                      .budget = 1,
                      .threads = 2,
                      .note = "10,000 one-element ops, unfused; medians of means over 20 runs"};
  // a second engine of one worker: what two engines that are the same differ by
  std::vector<double> again;
  for (int i = 0; i < kRepetitions; ++i) {
    c.theirs.push_back(engines.several(0, 20) / 10'000);
    c.ours.push_back(engines.several(1, 20) / 10'000);
    again.push_back(engines.several(2, 20) / 10'000);
    engines.check();
  }
  c.also = {{"one_worker_again_ratio", bench::median(again) / bench::median(c.theirs)}};
  c.print();
}

}  // namespace

int main() {
  two_branches();
  tiny_ops("tiny_ops_chain_scalar", 1, 0);
  tiny_ops("tiny_ops_chain", 1, 1);
  tiny_ops("tiny_ops_wide", 100, 1);
  tiny_ops("tiny_ops_very_wide", 2500, 1);
}
