#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

namespace {
void require_pieces(const Shape& whole, const std::vector<Shape>& pieces, std::int64_t axis_attr) {
  if (!whole.has_rank()) return;
  const int axis = normalize_axis(axis_attr, whole.rank());
  std::int64_t sum = 0;
  for (const Shape& piece : pieces) {
    Shape around = whole;
    around.set(axis, kAny);
    if (!around.is_compatible(piece))
      throw Error(Code::invalid_argument, "a piece " + piece.text() + " differs from " +
                                              whole.text() + " in more than axis " +
                                              std::to_string(axis));
    sum = sum < 0 || !piece.has_rank() || piece[axis] < 0 ? kAny : sum + piece[axis];
  }
  if (sum >= 0 && whole[axis] >= 0 && sum != whole[axis])
    throw Error(Code::invalid_argument, "the pieces have " + std::to_string(sum) +
                                            " elements along axis " + std::to_string(axis) +
                                            " of " + whole.text());
}
}  // namespace

TROUPE_OP(SplitLike) {
  op.doc("The first input cut along one axis into pieces of the extents of the others.");
  op.inputs(2, -1);
  op.shape_only_from(1);
  op.attr<std::int64_t>("axis");
  op.infer([](Inference& c) {
    std::vector<Shape> pieces;
    for (int i = 1; i < c.inputs(); ++i) pieces.push_back(c.shape(i));
    require_pieces(c.shape(0), pieces, c.attrs().get<std::int64_t>("axis"));
    for (int i = 1; i < c.inputs(); ++i) c.output(c.dtype(0), c.shape(i));
  });
  op.gradient([](Gradient& g) {
    std::vector<Expr> parts;
    for (int i = 0; i < g.outputs(); ++i) parts.push_back(g.dy(i));
    g.set(0, concat(parts, g.attrs().get<std::int64_t>("axis")));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView in(c.input(0));
    std::vector<Shape> pieces;
    for (int i = 1; i < c.inputs(); ++i) pieces.push_back(c.input(i).shape());
    require_pieces(in.shape, pieces, attrs.get<std::int64_t>("axis"));
    int axis = normalize_axis(attrs.get<std::int64_t>("axis"), in.shape.rank());
    Block from = Block::origin(in.shape.rank()), to = from;
    for (int i = 1; i < c.inputs(); ++i) {
      const Shape shape = c.input(i).shape();
      Tensor out = c.allocate(in.dtype, shape);
      c.primitives().copy_block(c.stream(), in, from, View(out), to, shape);
      from.start.set(axis, from.start[axis] + shape[axis]);
      c.set(i - 1, std::move(out));
    }
  });
}

}  // namespace troupe
