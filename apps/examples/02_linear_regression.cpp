// Fits a line to noisy points by gradient descent: variables, gradients, an optimizer, the engine.
#include <cmath>
#include <cstdio>

#include <troupe/troupe.hpp>

using namespace troupe;

int main() {
  // The model: y = x w + b.
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny, 1});
  Expr y = g.input("y", DType::f32, {kAny, 1});
  Variable w = g.variable("w", DType::f32, {1, 1}, Initializer::constant(0));
  Variable b = g.variable("b", DType::f32, {1}, Initializer::constant(0));
  Expr loss = mean(square(matmul(x, w) + b - y));

  // The optimizer differentiates the loss: its step is more nodes of the same graph.
  Expr step = Sgd({.learning_rate = 0.1}).minimize(loss, {w, b});

  // Points of y = 3 x + 2 with noise, drawn by another graph.
  Graph data;
  Expr points = data.random_uniform({256, 1}) * 2.0 - 1.0;
  Expr noisy = 3.0 * points + 2.0 + 0.1 * data.random_normal({256, 1});

  Engine engine({.seed = 7});
  Function draw = engine.compile(data, {}, {points, noisy});
  Function train = engine.compile(g, {x, y}, {loss, step});
  for (int i = 0; i <= 200; ++i) {
    float error = train(draw({}))[0].item<float>();
    if (i % 50 == 0) std::printf("step %3d  loss %.4f\n", i, error);
  }

  // State lives in the engine, by name.
  float slope = engine.get(w).at(0), offset = engine.get(b).at(0);
  std::printf("y = %.3f x + %.3f\n", slope, offset);
  return std::abs(slope - 3) < 0.05 && std::abs(offset - 2) < 0.05 ? 0 : 1;
}
