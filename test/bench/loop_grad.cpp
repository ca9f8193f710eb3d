// Measures a gradient through a loop: 10,000 iterations of y = y * a + b. The backward pass is the
// run of both less that of the forward pass that saves (budget: 3× the latter). A forward pass
// without a gradient saves nothing: for this measurement, the pass that removes the saving is
// skipped. The derivative with respect to y's first value is compared with a^n. `long`: time of an
// iteration of forward and backward in a loop of a million, divided by the time in one of ten
// thousand: a ratio well above 1 shows that an op walks the saved values. A second line has both
// passes, against JAX's of a scan.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/peer.hpp>

namespace {

using namespace troupe;
constexpr int kRepetitions = 15, kIterations = 10'000;

// A million iterations' share of ten thousand's time an iteration, both passes.
double long_by_short(Engine& engine) {
  Graph g;
  Expr n = g.input("n", DType::i64, Shape{}), x = g.input("x", DType::f64, Shape{}),
       a = g.input("a", DType::f64, Shape{});
  auto [i_end, y] = while_loop([&](Expr i, Expr) { return i < n; },
                               [&](Expr i, Expr v) {
                                 return std::tuple{i + 1, v * a + x};
                               },
                               std::tuple{g.constant(std::int64_t{0}), x});
  Function f = engine.compile(g, {n, x, a}, {y, gradients(y, {a})[0]});
  auto time = [&](std::int64_t iterations) {
    double least = 1e30;
    for (int i = 0; i < 3; ++i) {
      const double start = bench::now_ns();
      f({Tensor::scalar(iterations), Tensor::scalar(0.5), Tensor::scalar(0.9999)});
      least = std::min(least, (bench::now_ns() - start) / static_cast<double>(iterations));
    }
    return least;
  };
  const double is_short = time(10'000);
  return time(1'000'000) / is_short;
}

}  // namespace

int main() {
  EngineOptions one;
  one.workers = 1;
  Engine engine(one);
  Graph g;
  Expr x = g.input("x", DType::f64, Shape{}), a = g.input("a", DType::f64, Shape{}),
       b = g.input("b", DType::f64, Shape{});
  auto [n, y] = while_loop([](Expr i, Expr) { return i < kIterations; },
                           [&](Expr i, Expr v) {
                             return std::tuple{i + 1, v * a + b};
                           },
                           std::tuple{g.constant(0), x});
  Function plain = engine.compile(g, {x, a, b}, {y});
  std::vector<Expr> d = gradients(y, {x, a, b});
  CompileOptions saving;
  saving.skip_passes = {"drop_unused_outputs"};
  Function forward = engine.compile(g, {x, a, b}, {y}, saving);
  Function both = engine.compile(g, {x, a, b}, {y, d[0], d[1], d[2]});
  CompileOptions interpreting;
  interpreting.compiled_loops = false;
  Function interpreted = engine.compile(g, {x, a, b}, {y, d[0], d[1], d[2]}, interpreting);
  const std::vector<Tensor> values{Tensor::scalar(0.5), Tensor::scalar(0.9999),
                                   Tensor::scalar(1e-4)};
  auto time = [&](const Function& f) {
    const double start = bench::now_ns();
    const std::vector<Tensor> out = f(values);
    const double took = bench::now_ns() - start;
    if (out.size() > 1 && std::abs(out[1].at(0) - std::pow(0.9999, kIterations)) > 1e-9) {
      std::fprintf(stderr, "dy/dx is %.12g\n", out[1].at(0));
      std::exit(1);
    }
    return took / kIterations;
  };
  for (int i = 0; i < 3; ++i) time(plain), time(forward), time(both);
  bench::Comparison c{.name = "loop_grad",
                      .unit = "ns an iteration, backward alone",
                      .peer = "the forward pass that saves",
                      .peer_version = "same build",
                      .budget = 3};
  std::vector<double> unsaved;
  for (int i = 0; i < kRepetitions; ++i) {
    unsaved.push_back(time(plain));
    const double forward_took = time(forward);
    c.theirs.push_back(forward_took);
    c.ours.push_back(time(both) - forward_took);
  }
  c.also = {{"iterations", kIterations},
            {"forward_without_gradient", bench::median(unsaved)},
            {"long", long_by_short(engine)},
            // One scalar an iteration, in a list whose elements are handles.
            {"saved_bytes", static_cast<double>(kIterations * sizeof(Value))}};
  c.print();

  bench::Peer jax("JAX", "loops_jax.py", {"fma", "1"});
  bench::Comparison of_both{.name = "loop_grad_both",
                            .unit = "ns an iteration, forward and backward",
                            .peer = {},
                            .budget_value = 20};
  jax.describe(of_both, "JAX scan, jit");
  std::vector<double> by_interpreter;
  const std::string request = "grad " + std::to_string(kIterations);
  if (jax.is_here()) jax.ask(request);
  for (int i = 0; i < kRepetitions; ++i) {
    of_both.ours.push_back(time(both));
    by_interpreter.push_back(time(interpreted));
    if (!jax.is_here()) continue;
    const std::vector<double> answer = jax.ask(request);
    of_both.theirs.push_back(answer[0]);
    if (std::abs(answer[2] - std::pow(0.9999, kIterations)) > 1e-9) {
      std::fprintf(stderr, "JAX's dy/dx is %.12g\n", answer[2]);
      return 1;
    }
  }
  of_both.also = {{"interpreted", bench::median(by_interpreter)}};
  of_both.print();
}
