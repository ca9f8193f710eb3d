// A neural ordinary differential equation, y' = tanh(y W1 + b1) W2 + b2, by 100 steps of the
// classical Runge-Kutta method: 20 states of two dimensions, 50 hidden units.
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/jax_loops.hpp>
#include <troupe/test/bench/pattern.hpp>

int main() {
  using namespace troupe;
  constexpr std::int64_t kStates = 20, kHidden = 50, kSteps = 100;
  constexpr double h = 0.05;
  Engine engine(bench::one_worker());
  Graph g;
  const Expr first = g.input("y", DType::f32, {kStates, 2}),
             w1 = g.input("w1", DType::f32, {2, kHidden}),
             b1 = g.input("b1", DType::f32, {kHidden}),
             w2 = g.input("w2", DType::f32, {kHidden, 2}), b2 = g.input("b2", DType::f32, {2});
  const auto slope = [&](const Expr& y) { return matmul(tanh(matmul(y, w1) + b1), w2) + b2; };
  const Expr last = for_loop(
      0, static_cast<int>(kSteps),
      [&](Expr, Expr y) {
        const Expr k1 = slope(y), k2 = slope(y + k1 * (h / 2)), k3 = slope(y + k2 * (h / 2)),
                   k4 = slope(y + k3 * h);
        return y + (k1 + (k2 + k3) * 2.0 + k4) * (h / 6);
      },
      first);
  const bench::SmallLoop loop{.name = "ode",
                              .peer = {"ode", "1", std::to_string(kStates)},
                              .iterations = kSteps,
                              .budget = 0.9};
  loop.compare(engine, g, {first, w1, b1, w2, b2},
               {bench::pattern({kStates, 2}, 1, 1), bench::pattern({2, kHidden}, 1, 2),
                bench::pattern({kHidden}, 1, 3), bench::pattern({kHidden, 2}, 1, 4),
                bench::pattern({2}, 1, 5)},
               sum(last), {w1, b1, w2, b2});
}
