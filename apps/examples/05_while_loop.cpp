// A loop inside the graph: Newton's method, as many steps as each input needs. The graph is built
// once; how often the body runs is decided while it runs.
#include <cmath>
#include <cstdio>

#include <troupe/troupe.hpp>

using namespace troupe;

int main() {
  Graph g;
  Expr a = g.input("a", DType::f64, Shape{});
  // The variables of the loop: how many steps were taken, and the estimate of sqrt(a).
  struct State {
    Expr steps, root;
    auto members() { return std::tie(steps, root); }
  };
  State last = while_loop([&](State s) { return abs(s.root * s.root - a) > 1e-12 * a; },
                          [&](State s) {
                            return State{s.steps + 1, 0.5 * (s.root + a / s.root)};
                          },
                          State{g.constant(std::int64_t{0}), a}, {.name = "newton"});

  Engine engine;
  Function f = engine.compile(g, {a}, {last.steps, last.root});
  for (double x : {2.0, 81.0, 1e12}) {
    std::vector<Tensor> out = f({Tensor::scalar(x)});
    std::printf("sqrt(%g) = %.12g after %lld steps\n", x, out[1].at(0),
                static_cast<long long>(out[0].item<std::int64_t>()));
    if (std::abs(out[1].at(0) - std::sqrt(x)) > 1e-9 * std::sqrt(x)) return 1;
  }
  for (const LoopReport& r : f.loops()) std::printf("%s\n", r.text().c_str());

  // A wrong loop is refused while it is built, naming the loop, the variable and this line.
  try {
    while_loop([](Expr x) { return sum(x) < 10.0; },
               [](Expr x) {
                 return concat({x, x}, 0);
               },
               g.ones(DType::f32, {2}), {.name = "grow"});
    return 1;
  } catch (const Error& e) { std::printf("refused, as it should be: %s\n", e.what()); }
  return 0;
}
