#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x with an axis of extent 1 inserted at `axis`.
TROUPE_DSL(Expr expand_dims(Operand x, std::int64_t axis))
Expr expand_dims(Operand x, std::int64_t axis) {
  return bind1("ExpandDims", {x}, Attrs{{"axis", axis}});
}

TROUPE_OP(ExpandDims) {
  op.doc("The input with an axis of extent 1 inserted.");
  op.inputs(1);
  op.takes_strings();
  op.attr<std::int64_t>("axis");
  op.infer([](Inference& c) {
    if (!c.shape(0).has_rank()) return c.output(c.dtype(0), Shape::unknown());
    c.output(c.dtype(0),
             c.shape(0).with_inserted(
                 normalize_axis(c.attrs().get<std::int64_t>("axis"), c.shape(0).rank() + 1), 1));
  });
  op.gradient([](Gradient& g) { g.set(0, reshape_like(g.dy(), g.x())); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    const Shape& s = c.input(0).shape();
    c.set(0, c.input(0).reshaped(s.with_inserted(
                 normalize_axis(attrs.get<std::int64_t>("axis"), s.rank() + 1), 1)));
  });
}

}  // namespace troupe
