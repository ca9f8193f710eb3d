// A gated recurrent unit written as a `scan`: 32 units, 100 steps, batches of 1 and 32.
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/jax_loops.hpp>
#include <troupe/test/bench/pattern.hpp>

namespace {

using namespace troupe;
constexpr std::int64_t kUnits = 32, kSteps = 100;

void measure(std::int64_t batch) {
  Engine engine(bench::one_worker());
  Graph g;
  const Expr xs = g.input("xs", DType::f32, {kSteps, batch, kUnits}),
             first = g.input("h", DType::f32, {batch, kUnits}),
             w = g.input("w", DType::f32, {kUnits, 3 * kUnits}),
             u = g.input("u", DType::f32, {kUnits, 3 * kUnits}),
             b = g.input("b", DType::f32, {3 * kUnits});
  const auto gate = [&](const Expr& x, std::int64_t k) {
    return slice(x, {0, k * kUnits}, {batch, kUnits});
  };
  const Expr last = fold_left(
      [&](Expr h, Expr x) {
        const Expr of_x = matmul(x, w) + b, of_h = matmul(h, u);
        const Expr z = sigmoid(gate(of_x, 0) + gate(of_h, 0)),
                   r = sigmoid(gate(of_x, 1) + gate(of_h, 1)),
                   made = tanh(gate(of_x, 2) + r * gate(of_h, 2));
        return (1.0 - z) * made + z * h;
      },
      xs, first);
  const bench::SmallLoop loop{.name = "scan_small_" + std::to_string(batch),
                              .peer = {"gru", "1", std::to_string(batch)},
                              .iterations = kSteps,
                              .budget = 0.9};
  loop.compare(engine, g, {xs, first, w, u, b},
               {bench::pattern({kSteps, batch, kUnits}, 1, 1),
                bench::pattern({batch, kUnits}, 1, 2), bench::pattern({kUnits, 3 * kUnits}, 0.5, 3),
                bench::pattern({kUnits, 3 * kUnits}, 0.5, 4), bench::pattern({3 * kUnits}, 1, 5)},
               sum(last), {w, u, b});
}

}  // namespace

int main() {
  for (const std::int64_t batch : {1, 32}) measure(batch);
}
