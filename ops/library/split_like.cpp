#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

TROUPE_OP(SplitLike) {
  op.doc("The first input cut along one axis into pieces of the extents of the others.");
  op.inputs(2, -1);
  op.shape_only_from(1);
  op.attr<std::int64_t>("axis");
  op.infer([](Inference& c) {
    for (int i = 1; i < c.inputs(); ++i) c.output(c.dtype(0), c.shape(i));
  });
  op.gradient([](Gradient& g) {
    std::vector<Expr> parts;
    for (int i = 0; i < g.outputs(); ++i) parts.push_back(g.dy(i));
    g.set(0, concat(parts, g.attrs().get<std::int64_t>("axis")));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView in(c.input(0));
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
