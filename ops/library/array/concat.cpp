#include <fmt/format.h>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The inputs one after the other along `axis`; other extents agree.
TROUPE_DSL(Expr concat(const std::vector<Expr>& xs, std::int64_t axis,
                       std::source_location at = std::source_location::current()))
Expr concat(const std::vector<Expr>& xs, std::int64_t axis, std::source_location at) {
  std::vector<Operand> operands;
  for (const Expr& x : xs) operands.emplace_back(x, at);
  return bind1("Concat", operands, Attrs{{"axis", axis}}, at);
}

namespace {

// `shape(i)` of `n` inputs; unknown extents stay so.
template <class ShapeOf>
Shape concatenated(int n, ShapeOf shape, std::int64_t axis_attr) {
  Shape out = shape(0);
  for (int i = 0; i < n; ++i)
    if (!shape(i).has_rank()) return Shape::unknown();
  int axis = normalize_axis(axis_attr, out.rank());
  for (int i = 1; i < n; ++i) {
    Shape s = shape(i);
    std::int64_t sum =
        out[axis] < 0 || s.rank() != out.rank() || s[axis] < 0 ? kAny : out[axis] + s[axis];
    Shape a = out, b = s;
    a.set(axis, kAny);
    if (b.rank() == a.rank()) b.set(axis, kAny);
    if (!a.is_compatible(b))
      throw Error(
          Code::invalid_argument,
          fmt::format("shapes {} and {} differ in more than axis {}", out.text(), s.text(), axis));
    out = a.merge(b);
    out.set(axis, sum);
  }
  return out;
}

}  // namespace

TROUPE_OP(Concat) {
  op.doc("The inputs one after the other along one axis.");
  op.inputs(1, -1);
  op.takes_strings();
  op.attr<std::int64_t>("axis");
  op.infer([](Inference& c) {
    for (int i = 1; i < c.inputs(); ++i) c.require_same_dtype(0, i);
    c.output(c.dtype(0), concatenated(
                             c.inputs(), [&](int i) { return c.shape(i); },
                             c.attrs().get<std::int64_t>("axis")));
  });
  op.gradient([](Gradient& g) {
    std::int64_t axis = g.attrs().get<std::int64_t>("axis");
    std::vector<Operand> operands{g.dy()};
    for (int i = 0; i < g.inputs(); ++i) operands.emplace_back(g.x(i));
    Exprs parts = bind_op("SplitLike", operands, Attrs{{"axis", axis}}, operands[0].site());
    for (int i = 0; i < g.inputs(); ++i) g.set(i, parts[i]);
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    Shape shape = concatenated(
        c.inputs(), [&](int i) { return c.input(i).shape(); }, attrs.get<std::int64_t>("axis"));
    int axis = normalize_axis(attrs.get<std::int64_t>("axis"), shape.rank());
    Tensor out = c.allocate(c.input(0).dtype(), shape);
    Block from = Block::origin(shape.rank()), to = from;
    for (int i = 0; i < c.inputs(); ++i) {
      ConstView in(c.input(i));
      c.primitives().copy_block(c.stream(), in, from, View(out), to, in.shape);
      to.start.set(axis, to.start[axis] + in.shape[axis]);
    }
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
