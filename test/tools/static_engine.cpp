// An engine, a graph and a function of static lifetime end in order: after main, when the main
// thread's thread-locals are gone. A crash would show in the exit status.
#include <cstdio>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/functions.hpp>

namespace {

troupe::Engine engine;
troupe::Graph graph;
troupe::Function twice;

}  // namespace

int main() {
  using namespace troupe;
  Expr x = graph.input("x", DType::f32, {2});
  twice = engine.compile(graph, {x}, {x * 2.0});
  const float y = twice({Tensor::of<float>({1, 2})})[0].to_vector<float>()[1];
  std::printf("%g\n", static_cast<double>(y));
  return y == 4 ? 0 : 1;
}
