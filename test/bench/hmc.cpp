// Hamiltonian Monte Carlo on a correlated Gaussian of two dimensions: steps of ten leapfrog steps,
// a loop in a loop, for 1, 10 and 200 chains. Momenta and acceptance levels are fed, so that both
// sides compute the same. The gradient is with respect to the step size.
#include <troupe/controlflow/functional.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/bench/jax_loops.hpp>
#include <troupe/test/bench/pattern.hpp>

namespace {

using namespace troupe;
constexpr std::int64_t kSteps = 20;

void measure(std::int64_t chains) {
  Engine engine(bench::one_worker());
  Graph g;
  const Expr first = g.input("q", DType::f32, {chains, 2}), eps = g.input("eps", DType::f32, {}),
             momenta = g.input("momenta", DType::f32, {kSteps, chains, 2}),
             levels = g.input("levels", DType::f32, {kSteps, chains});
  const Expr precision = g.constant(Tensor::of<float>({50.25f, -49.75f, -49.75f, 50.25f}, {2, 2}));
  const auto energy = [&](const Expr& q) { return sum(matmul(q, precision) * q, {1}) * 0.5; };
  const Expr last = fold_left(
      [&](Expr q, const std::tuple<Expr, Expr>& given) {
        const auto& [p, level] = given;
        const Expr before = energy(q) + sum(p * p, {1}) * 0.5;
        auto [moved, ended] = for_loop(
            0, 10,
            [&](Expr, Expr at, Expr momentum) {
              const Expr half = momentum - eps * 0.5 * matmul(at, precision);
              const Expr next = at + eps * half;
              return std::tuple{next, half - eps * 0.5 * matmul(next, precision)};
            },
            std::tuple{q, p});
        const Expr after = energy(moved) + sum(ended * ended, {1}) * 0.5;
        const Expr accepted = reshape(level < exp(before - after), {chains, 1});
        return where(accepted, moved, q);
      },
      std::tuple{momenta, levels}, first);
  const bench::SmallLoop loop{.name = "hmc_" + std::to_string(chains),
                              .peer = {"hmc", "1", std::to_string(chains)},
                              .iterations = kSteps,
                              .budget = 1};
  loop.compare(engine, g, {first, eps, momenta, levels},
               {bench::pattern({chains, 2}, 1, 1), Tensor::scalar(0.05f),
                bench::pattern({kSteps, chains, 2}, 2, 2), bench::pattern({kSteps, chains}, 1, 3)},
               sum(last), {eps});
}

}  // namespace

int main() {
  for (const std::int64_t chains : {1, 10, 200}) measure(chains);
}
