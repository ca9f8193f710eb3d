// A user's program of sixty lines, built against the installed package: a graph, its gradient, the
// engine, all ops.
#include <troupe/op.hpp>
#include <troupe/troupe.hpp>

#include <cmath>
#include <cstdio>

using namespace troupe;

bool joins(), defines();  // node.cpp, own_op.cpp

/// A line through noiseless points, found by gradient descent; true if it is the right one.
static bool trains() {
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny, 1});
  Expr y = g.input("y", DType::f32, {kAny, 1});
  Variable w = g.variable("w", DType::f32, {1, 1}, Initializer::constant(0));
  Variable b = g.variable("b", DType::f32, {1}, Initializer::constant(0));
  Expr loss = mean(square(matmul(x, w) + b - y));
  Expr step = Sgd({.learning_rate = 0.1}).minimize(loss, {w, b});

  Engine engine;
  Function train = engine.compile(g, {x, y}, {loss, step});
  const Tensor xs = Tensor::of({-1.f, 0.f, 1.f, 2.f}, {4, 1});
  const Tensor ys = Tensor::of({-1.f, 2.f, 5.f, 8.f}, {4, 1});
  for (int i = 0; i < 300; ++i) train({xs, ys});
  const float slope = engine.get(w).data<float>()[0], offset = engine.get(b).data<float>()[0];
  std::printf("y = %.3f x + %.3f\n", slope, offset);
  return std::abs(slope - 3) < 0.01 && std::abs(offset - 2) < 0.01;
}

/// A wrong program is refused while it is built, naming this file.
static bool refuses() {
  try {
    Graph g;
    Expr x = g.input("x", DType::f32, {2, 3});
    matmul(x, x);
  } catch (const Error& error) {
    return std::string(error.what()).find("main.cpp") != std::string::npos;
  }
  return false;
}

/// Registration survived linking: every op is there, with its doc; one a line, then their number.
static bool lists() {
  const std::vector<const OpDef*> ops = all_ops();
  bool documented = true;
  for (const OpDef* op : ops) {
    std::printf("%s: %s\n", op->name.c_str(), op->doc.c_str());
    documented = documented && !op->doc.empty();
  }
  std::printf("%zu operations\n", ops.size());
  return documented;
}

int main() { return trains() && refuses() && lists() && joins() && defines() ? 0 : 1; }
