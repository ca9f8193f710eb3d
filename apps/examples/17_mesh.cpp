// One network, cut over four devices by three layouts: the data split, the model split, both. The
// program is written once; its losses equal those of the program on one device.
//
//   mesh                                    # all three, and the program as it is
//   mesh "rows:2;cols:2" "batch:rows;hidden:cols"
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/troupe.hpp>

using namespace troupe;

namespace {

constexpr int kSteps = 60;
const mesh::Dim batch{"batch", 64}, in{"in", 2}, hidden{"hidden", 32}, out{"out", 1};

// Points of two arms that wind around each other, and the arm of each.
std::pair<Tensor, Tensor> spirals() {
  std::vector<double> points, arms;
  for (std::int64_t i = 0; i < batch.size; ++i) {
    const double turn = 2.0 * static_cast<double>(i) / static_cast<double>(batch.size),
                 arm = static_cast<double>(i % 2), angle = 3.14159265 * (turn + arm);
    points.insert(points.end(), {turn * std::cos(angle), turn * std::sin(angle)});
    arms.push_back(arm);
  }
  return {Tensor::of<double>(points, {batch.size, in.size}),
          Tensor::of<double>(arms, {batch.size, out.size})};
}

std::vector<double> train(const std::optional<mesh::Partitioning>& cut, bool explains) {
  Graph g;
  const Expr points = g.input("points", DType::f64, {batch.size, in.size}),
             arms = g.input("arms", DType::f64, {batch.size, out.size});
  const Variable w = g.variable("w", DType::f64, {in.size, hidden.size},
                                Initializer::normal(0, 1, 3)),
                 b = g.variable("b", DType::f64, {hidden.size}, Initializer::constant(0)),
                 v = g.variable("v", DType::f64, {hidden.size, out.size},
                                Initializer::normal(0, 0.5, 4));
  const Expr x = mesh::named(points, {batch, in}), y = mesh::named(arms, {batch, out});
  const Expr h = tanh(mesh::einsum({x, mesh::named(w.read(), {in, hidden})}, {batch, hidden}) +
                      mesh::named(b.read(), {hidden}));
  const Expr made = mesh::einsum({h, mesh::named(v.read(), {hidden, out})}, {batch, out});
  const Expr loss = mean(binary_cross_entropy(made, y));
  const Expr step = Adam({.learning_rate = 0.05}).minimize(loss, {w, b, v});

  CompileOptions options;
  options.mesh = cut;
  Engine engine({.workers = 2});
  const Function run = engine.compile(g, {points, arms}, {loss, step}, options);
  if (explains) std::printf("%s", run.explain().c_str());
  const auto [where, which] = spirals();
  std::vector<double> losses;
  for (int i = 0; i < kSteps; ++i) losses.push_back(run({where, which})[0].item<double>());
  return losses;
}

mesh::Partitioning over_four(const std::string& axes, const std::string& layout) {
  return {mesh::Mesh(axes, {"cpu:0", "cpu:1", "cpu:2", "cpu:3"}), mesh::Layout(layout)};
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<double> whole = train(std::nullopt, false);
  std::printf("%-40s loss %.6f, after %d steps %.6f\n", "one device", whole[0], kSteps,
              whole.back());
  std::vector<std::pair<std::string, std::string>> cuts{
      {"p:4", "batch:p"}, {"p:4", "hidden:p"}, {"rows:2;cols:2", "batch:rows;hidden:cols"}};
  if (argc == 3) cuts = {{argv[1], argv[2]}};
  bool are_equal = true;
  for (const auto& [axes, layout] : cuts) {
    const std::vector<double> losses = train(over_four(axes, layout), argc == 3);
    double apart = 0;
    for (std::size_t i = 0; i < losses.size(); ++i)
      apart = std::max(apart, std::abs(losses[i] - whole[i]) / whole[i]);
    std::printf("%-40s loss %.6f, after %d steps %.6f; at most %.1e apart\n",
                (axes + ", " + layout).c_str(), losses[0], kSteps, losses.back(), apart);
    are_equal = are_equal && apart < 1e-9;
  }
  return are_equal && whole.back() < 0.6 * whole[0] ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
