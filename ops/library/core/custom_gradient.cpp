#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe {

namespace {
class FunctionAttr final : public AttrObject {
 public:
  explicit FunctionAttr(GradientFunction f) : function(std::move(f)) {}
  std::string text() const override { return "a user's gradient"; }
  const GradientFunction function;
};
}  // namespace

namespace {
Expr bind_with_gradient(const Operand& y, std::vector<Operand> operands,
                        GradientFunction gradient) {
  if (!gradient)
    throw Error(
        Code::invalid_argument,
        fmt::format("with_gradient at {}: the gradient's function is empty", y.site().text()));
  operands.insert(operands.begin(), y);
  std::shared_ptr<const AttrObject> function = std::make_shared<FunctionAttr>(std::move(gradient));
  return bind1("WithGradient", operands, Attrs{{"function", function}}, y.site());
}
}  // namespace

Expr with_gradient(Operand y, std::initializer_list<Operand> xs, GradientFunction gradient) {
  return bind_with_gradient(y, {xs.begin(), xs.end()}, std::move(gradient));
}

Expr detail::with_gradient_of(const Operand& y, const std::vector<Expr>& xs,
                              GradientFunction gradient) {
  return bind_with_gradient(y, {xs.begin(), xs.end()}, std::move(gradient));
}

TROUPE_OP(WithGradient) {
  op.doc("The first input, with a user's function as its gradient with respect to the others.");
  op.inputs(2, -1);
  op.attr<std::shared_ptr<const AttrObject>>("function");
  op.infer([](Inference& c) { c.output(c.dtype(0), c.shape(0)); });
  op.gradient([](Gradient& g) {
    auto object = g.attrs().get<std::shared_ptr<const AttrObject>>("function");
    std::vector<Expr> xs;
    for (int i = 1; i < g.inputs(); ++i) xs.push_back(g.x(i));
    std::vector<Expr> dxs = static_cast<const FunctionAttr&>(*object).function(g.dy(), xs, g.y());
    if (dxs.size() != xs.size())
      throw Error(
          Code::invalid_argument,
          fmt::format("its custom gradient yields {} gradients for {} xs", dxs.size(), xs.size()));
    for (std::size_t i = 0; i < dxs.size(); ++i) {
      if (dxs[i].is_empty()) continue;
      const Expr dx = g.dy().reader().adopt(dxs[i], Site());  // which refuses that of another graph
      const ValueSpec wanted = xs[i].spec(), given = dx.spec();
      if (given.dtype != wanted.dtype || given.depth != wanted.depth ||
          !given.shape.is_compatible(wanted.shape))
        throw Error(
            Code::invalid_argument,
            fmt::format(
                "its custom gradient with respect to xs[{}] is {}; it must be {}, as xs[{}] is", i,
                given.text(), wanted.text(), i));
      g.set(static_cast<int>(i) + 1, dx);
    }
  });
  op.run([](KernelContext& c) { c.set(0, c.take(0)); });
}

}  // namespace troupe
