// The smallest program: a graph of two inputs, run by the engine.
#include <cstdio>

#include <troupe/troupe.hpp>

using namespace troupe;

int main() {
  // Building computes nothing: each expression adds a node to the graph.
  Graph g;
  Expr x = g.input("x", DType::f32, {kAny, 2});
  Expr w = g.input("w", DType::f32, {2, 1});
  Expr y = relu(matmul(x, w) + 1.0);

  // Compiling prunes, fuses and places it; calling feeds tensors in and gets tensors out.
  Engine engine;
  Function f = engine.compile(g, {x, w}, {y});
  Tensor out =
      f({Tensor::of<float>({1, 2, 3, 4, -5, -6}, {3, 2}), Tensor::of<float>({10, 1}, {2, 1})})[0];
  std::printf("relu(x w + 1) = %s\n", out.text().c_str());
  if (out.to_vector<float>() != std::vector<float>{13, 35, 0}) return 1;

  // A wrong program is refused while it is built, naming the op and this line.
  try {
    matmul(w, w);
    return 1;
  } catch (const Error& e) { std::printf("refused, as it should be: %s\n", e.what()); }
  return 0;
}
