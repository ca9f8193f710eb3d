// A recurrent network whose loop over time is inside the graph: `scan` runs as many steps as the
// sequence has, and gradients go through it. It learns to add up marked numbers: each step shows a
// number and a mark, and the answer is the sum of the two numbers that were marked.
#include <cstdio>

#include <troupe/troupe.hpp>

using namespace troupe;

int main() {
  constexpr std::int64_t kBatch = 32, kUnits = 32;
  Graph g;
  // Time first: [steps, batch, features]; how many steps there are is known when it runs.
  Expr numbers = g.input("numbers", DType::f32, {kAny, kBatch, 1});
  Expr marks = g.input("marks", DType::f32, {kAny, kBatch, 1});
  Variable wx = g.variable("wx", DType::f32, {2, 3 * kUnits}, Initializer::glorot(2, kUnits, 1));
  Variable wh =
      g.variable("wh", DType::f32, {kUnits, 3 * kUnits}, Initializer::glorot(kUnits, kUnits, 2));
  Variable b = g.variable("b", DType::f32, {3 * kUnits}, Initializer::constant(0));
  Variable wo = g.variable("wo", DType::f32, {kUnits, 1}, Initializer::glorot(kUnits, 1, 3));

  const std::vector<std::int64_t> thirds(3, kUnits);

  // A gated recurrent unit (Cho et al., 2014).
  Expr states = scan(
      [&](Expr h, Expr x) {
        std::vector<Expr> in = split(matmul(x, wx) + b, thirds, 1),
                          kept = split(matmul(h, wh), thirds, 1);
        Expr update = sigmoid(in[0] + kept[0]), reset = sigmoid(in[1] + kept[1]);
        return update * h + (1.0 - update) * tanh(in[2] + reset * kept[2]);
      },
      concat({numbers, marks}, 2), g.zeros(DType::f32, {kBatch, kUnits}), {.name = "time"});
  Expr last = reshape(slice(states, {-1, 0, 0}, {1, kBatch, kUnits}), {kBatch, kUnits});
  Expr error = mean(square(matmul(last, wo) - sum(numbers * marks, {0})));
  Expr step = Adam({.learning_rate = 4e-3}).minimize(error, {wx, wh, b, wo});

  // Data: uniform numbers; the marks stand at one place of each half.
  Engine engine({.seed = 3});
  std::vector<std::pair<std::int64_t, Function>> draws;
  Graph data;
  for (std::int64_t steps : {8, 10, 12}) {
    auto one_of = [&](std::int64_t places) {  // [places, batch, 1], a one in each column
      Expr place =
          cast(floor(data.random_uniform({kBatch}) * static_cast<double>(places)), DType::i32);
      return expand_dims(transpose(one_hot(place, places)), 2);
    };
    Expr drawn = data.random_uniform({steps, kBatch, 1});
    Expr where_marked = concat({one_of(steps / 2), one_of(steps - steps / 2)}, 0);
    draws.emplace_back(steps, engine.compile(data, {}, {drawn, where_marked}));
  }
  Function train = engine.compile(g, {numbers, marks}, {error, step});
  float first = 0, mean_error = 0;
  for (int i = 0; i < 600; ++i) {
    // one graph, sequences of any length
    const auto& [steps, draw] = draws[static_cast<std::size_t>(i) % draws.size()];
    const float e = train(draw({}))[0].item<float>();
    if (i == 0) first = e;
    mean_error = i == 0 ? e : 0.98f * mean_error + 0.02f * e;
    if (i % 100 == 0)
      std::printf("step %3d  %lld steps of time  mean squared error %.4f\n", i,
                  static_cast<long long>(steps), static_cast<double>(mean_error));
  }
  std::printf("mean squared error %.4f; always answering 1 would make 0.1667\n",
              static_cast<double>(mean_error));
  for (const LoopReport& r : train.loops()) std::printf("%s\n", r.text().c_str());
  return mean_error < 0.03f && first > mean_error ? 0 : 1;
}
