// An op of the user's own: known to this program alone, it runs and is differentiated like others.
#include <troupe/op.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;

TROUPE_OP(UsersTwice) {
  op.doc("Each element twice.");
  op.pointwise([](auto x) { return x + x; });
  op.gradient([](Gradient& g) { g.set(0, g.dy() * 2.0); });
}

bool defines();

bool defines() {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2});
  const Expr y = sum(bind1("UsersTwice", {x * x}));
  Engine engine;
  const std::vector<Tensor> out =
      engine.run(g, {{x, Tensor::of<float>({1, 3})}}, {y, gradients(y, x)[0]});
  return out[0].item<float>() == 20 && out[1].to_vector<float>() == std::vector<float>{4, 12};
}
