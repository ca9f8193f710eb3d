// Measures the gain of parallel iterations: a loop whose bodies do not depend on each other, on two
// workers, two iterations at a time against one (budget: 1.8×). A body is products too small to be
// divided between workers (a kernel of 6 million multiply-adds or more would be), so only
// iterations overlap.
#include <cstdlib>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/bench.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 15, kIterations = 60, kExtent = 176;  // 5.5 million multiply-adds

class Loop {
 public:
  Loop(Engine& engine, int parallel_iterations) {
    const Shape square{kExtent, kExtent};
    Expr x = graph_.input("x", DType::f32, square);
    auto [n, total] = while_loop([](Expr i, Expr) { return i < kIterations; },
                                 [&](Expr i, Expr s) {
                                   Expr y = x * cast(i, DType::f32);
                                   for (int k = 0; k < 4; ++k) y = matmul(x, y);
                                   return std::tuple{i + 1, s + sum(y)};
                                 },
                                 std::tuple{graph_.constant(0), graph_.constant(0.f)},
                                 {.parallel_iterations = parallel_iterations});
    run_ = engine.compile(graph_, {x}, {total});
    for (int i = 0; i < 3; ++i) run();
  }
  double run() {
    const double start = bench::now_ns();
    result_ = run_({x_})[0];
    return bench::now_ns() - start;
  }
  const Tensor& result() const { return result_; }
  std::string report() const { return run_.loops()[0].text(); }

 private:
  const Tensor x_ =
      Tensor::of<float>(std::vector<float>(kExtent * kExtent, 0.001f), {kExtent, kExtent});
  Graph graph_;
  Function run_;
  Tensor result_;
};

}  // namespace

int main() {
  EngineOptions two;
  two.workers = 2;
  Engine engine(two);
  Loop one_at_a_time(engine, 1), two_at_a_time(engine, 2);
  bench::Comparison c{.name = "parallel_iterations",
                      .unit = "ns a run",
                      .peer = "parallel_iterations = 1",
                      .peer_version = "same build",
                      .budget = 1.8,
                      .threads = 2,
                      .speed_up = true};
  for (int i = 0; i < kRepetitions; ++i) {
    c.theirs.push_back(one_at_a_time.run());
    c.ours.push_back(two_at_a_time.run());
    if (!identical(one_at_a_time.result(), two_at_a_time.result())) {
      std::fprintf(stderr, "one iteration at a time and two disagree\n");
      return 1;
    }
  }
  c.note = two_at_a_time.report();
  c.print();
}
