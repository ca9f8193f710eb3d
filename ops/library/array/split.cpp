#include <fmt/format.h>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x cut along `axis` into pieces of the given extents, which sum to the axis's.
TROUPE_DSL(Exprs split(Operand x, std::vector<std::int64_t> extents, std::int64_t axis = 0))
Exprs split(Operand x, std::vector<std::int64_t> extents, std::int64_t axis) {
  return bind_op("Split", {x}, Attrs{{"extents", std::move(extents)}, {"axis", axis}});
}

namespace {

// The piece's shapes; throws if the extents do not sum to the axis.
std::vector<Shape> pieces(const Shape& in, const std::vector<std::int64_t>& extents,
                          std::int64_t axis_attr) {
  std::vector<Shape> out;
  if (!in.has_rank()) return std::vector<Shape>(extents.size(), Shape::unknown());
  int axis = normalize_axis(axis_attr, in.rank());
  std::int64_t total = 0;
  for (std::int64_t e : extents) {
    if (e < 0) throw Error(Code::invalid_argument, fmt::format("a piece cannot have extent {}", e));
    Shape s = in;
    s.set(axis, e);
    out.push_back(s);
    total += e;
  }
  if (in[axis] >= 0 && total != in[axis])
    throw Error(Code::invalid_argument,
                fmt::format("pieces [{}] do not sum to extent {} of axis {}",
                            fmt::join(extents, ", "), in[axis], axis));
  return out;
}

}  // namespace

TROUPE_OP(Split) {
  op.doc("The input cut along one axis into pieces.");
  op.inputs(1);
  op.takes_strings();
  op.attr<std::vector<std::int64_t>>("extents");
  op.attr<std::int64_t>("axis", 0);
  op.infer([](Inference& c) {
    for (const Shape& s : pieces(c.shape(0), c.attrs().get<std::vector<std::int64_t>>("extents"),
                                 c.attrs().get<std::int64_t>("axis")))
      c.output(c.dtype(0), s);
  });
  op.gradient([](Gradient& g) {
    std::vector<Expr> parts;
    for (int i = 0; i < g.outputs(); ++i) parts.push_back(g.dy(i));
    g.set(0, concat(parts, g.attrs().get<std::int64_t>("axis")));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView in(c.input(0));
    int axis = normalize_axis(attrs.get<std::int64_t>("axis"), in.shape.rank()), i = 0;
    Block from = Block::origin(in.shape.rank()), to = from;
    for (const Shape& s : pieces(in.shape, attrs.get<std::vector<std::int64_t>>("extents"), axis)) {
      Tensor out = c.allocate(in.dtype, s);
      c.primitives().copy_block(c.stream(), in, from, View(out), to, s);
      from.start.set(axis, from.start[axis] + s[axis]);
      c.set(i++, std::move(out));
    }
  });
}

}  // namespace troupe
