#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>

namespace troupe {

/// x without `axes`, one or several, whose extents are 1.
TROUPE_DSL(Expr squeeze(Operand x, detail::Axes axes))
Expr squeeze(Operand x, detail::Axes which) {
  std::vector<std::int64_t> axes = which;
  if (axes.size() == 1) return bind1("Squeeze", {x}, Attrs{{"axis", axes[0]}});
  Composite c("squeeze", {x});
  for (std::int64_t& axis : axes) axis = c.axis(0, axis);
  std::sort(axes.rbegin(), axes.rend());  // the last first: those before it stay where they are
  c.require(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "an axis is named twice");
  Expr y = identity(c[0]);
  for (std::int64_t axis : axes) y = squeeze(y, axis);
  return y;
}

namespace {
Shape squeezed(const Shape& s, std::int64_t axis) {
  int a = normalize_axis(axis, s.rank());
  if (s[a] >= 0 && s[a] != 1)
    throw Error(Code::invalid_argument,
                "axis " + std::to_string(a) + " of " + s.text() + " has more than one element");
  return s.without(a);
}
}  // namespace

TROUPE_OP(Squeeze) {
  op.doc("The input without an axis of extent 1.");
  op.inputs(1);
  op.takes_strings();
  op.attr<std::int64_t>("axis");
  op.infer([](Inference& c) {
    c.output(c.dtype(0), c.shape(0).has_rank()
                             ? squeezed(c.shape(0), c.attrs().get<std::int64_t>("axis"))
                             : Shape::unknown());
  });
  op.gradient([](Gradient& g) { g.set(0, reshape_like(g.dy(), g.x())); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    c.set(0, c.input(0).reshaped(squeezed(c.input(0).shape(), attrs.get<std::int64_t>("axis"))));
  });
}

}  // namespace troupe
