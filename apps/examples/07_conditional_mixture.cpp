// A conditional mixture: for every input one of several experts runs, chosen inside the graph; the
// others do not run at all, and only the chosen one learns from that input.
#include <cmath>
#include <cstdio>

#include <troupe/troupe.hpp>

using namespace troupe;

int main() {
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny}), y = g.input("y", DType::f32, {kAny});
  Variable slope = g.variable("slope", DType::f32, {3}, Initializer::constant(0));
  Variable offset = g.variable("offset", DType::f32, {3}, Initializer::constant(0));
  Variable runs = g.variable("runs", DType::f32, {3}, Initializer::constant(0));

  // The gate: which third of [-1, 1) the input lies in.
  Expr errors = map(
      [&](Expr xi, Expr yi) {
        Expr which = cast(floor((xi + 1.0) * 1.5), DType::i32);
        std::vector<std::function<Expr()>> experts;
        for (int k = 0; k < 3; ++k)
          experts.push_back([&, k] {
            runs.scatter_add(g.constant(Tensor::of<std::int32_t>({k})),
                             g.constant(Tensor::of<float>({1})));
            return square(gather(slope, g.constant(k)) * xi + gather(offset, g.constant(k)) - yi);
          });
        return switch_case(which, experts, {.name = "experts"});
      },
      std::tuple{x, y});
  Expr loss = mean(errors);
  Expr step = Adam({.learning_rate = 0.05}).minimize(loss, {slope, offset});

  // A function of three pieces.
  const float slopes[] = {2, -1, 0.5f}, offsets[] = {1, 0, -2};
  Graph data;
  Expr points = data.random_uniform({48}) * 2.0 - 1.0;
  Engine engine({.seed = 5});
  Function draw = engine.compile(data, {}, {points});
  Function train = engine.compile(g, {x, y}, {loss, step});
  float error = 0;
  for (int i = 0; i <= 1000; ++i) {
    Tensor xs = draw({})[0];
    std::vector<float> values = xs.to_vector<float>(), ys;
    for (float v : values) {
      auto k = static_cast<std::size_t>(std::min(2.f, std::floor((v + 1) * 1.5f)));
      ys.push_back(slopes[k] * v + offsets[k]);
    }
    error = train({xs, Tensor::of<float>(ys, {48})})[0].item<float>();
    if (i % 250 == 0) std::printf("step %3d  loss %.5f\n", i, static_cast<double>(error));
  }
  bool learned = error < 1e-3f;
  float total = 0;
  for (std::int64_t k = 0; k < 3; ++k) {
    const double a = engine.get(slope).at(k), b = engine.get(offset).at(k),
                 n = engine.get(runs).at(k);
    std::printf("expert %lld: y = %.3f x + %.3f, ran %.0f times\n", static_cast<long long>(k), a, b,
                n);
    learned = learned && std::abs(a - slopes[k]) < 0.05 && std::abs(b - offsets[k]) < 0.05;
    total += static_cast<float>(n);
  }
  return learned && total == 48 * 1001 ? 0 : 1;  // one expert an input, no more
}
