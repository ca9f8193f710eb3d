#include <fmt/format.h>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Slices of `params` along `axis`, chosen by `indices` (i32 or i64, each in [0, extent)). The
/// gradient with respect to params along axis 0 touches only the rows used.
TROUPE_DSL(Expr gather(Operand params, Operand indices, std::int64_t axis = 0))
Expr gather(Operand params, Operand indices, std::int64_t axis) {
  return bind1("Gather", {params, indices.as_written()}, Attrs{{"axis", axis}});
}

namespace {
Shape gathered(const Shape& params, const Shape& indices, std::int64_t axis_attr) {
  if (!params.has_rank() || !indices.has_rank()) return Shape::unknown();
  int axis = normalize_axis(axis_attr, params.rank());
  Shape out;
  for (int i = 0; i < axis; ++i) out.push_back(params[i]);
  for (std::int64_t d : indices) out.push_back(d);
  for (int i = axis + 1; i < params.rank(); ++i) out.push_back(params[i]);
  return out;
}
}  // namespace

TROUPE_OP(Gather) {
  op.doc("Slices of the first input along one axis, chosen by the indices in the second.");
  op.inputs(2);
  op.takes_strings();
  op.attr<std::int64_t>("axis", 0);
  op.infer([](Inference& c) {
    c.require_index(1, "indices");
    c.require(!c.shape(0).has_rank() || c.shape(0).rank() > 0,
              "a scalar has nothing to gather from");
    c.output(c.dtype(0), gathered(c.shape(0), c.shape(1), c.attrs().get<std::int64_t>("axis")));
  });
  op.gradient([](Gradient& g) {
    Expr params = g.x(0), indices = g.x(1), dy = g.dy();
    Shape p = params.shape();
    if (!p.has_rank() || !indices.shape().has_rank())
      throw Error(Code::unimplemented, "the gradient of Gather needs the ranks of its inputs");
    int axis = normalize_axis(g.attrs().get<std::int64_t>("axis"), p.rank()),
        index_rank = indices.shape().rank();
    // Bring the index axes to the front; then each index has one row of updates.
    if (axis != 0) {
      std::vector<std::int64_t> front, back;
      for (int i = 0; i < index_rank; ++i) front.push_back(axis + i);
      for (int i = 0; i < dy.shape().rank(); ++i)
        if (i < axis || i >= axis + index_rank) front.push_back(i);
      for (int i = 0; i < p.rank(); ++i) back.push_back(i < axis ? i + 1 : i == axis ? 0 : i);
      std::vector<std::int64_t> to_front{axis};
      for (int i = 0; i < p.rank(); ++i)
        if (i != axis) to_front.push_back(i);
      Expr like = transpose(params, to_front);
      g.set(0, transpose(scatter_add(zeros_like(like), indices, transpose(dy, front)), back));
      return;
    }
    g.set(0, Cotangent::sparse(indices, dy, params));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView params(c.input(0)), indices(c.input(1));
    int axis = normalize_axis(attrs.get<std::int64_t>("axis"), params.shape.rank());
    Tensor out = c.allocate(params.dtype, gathered(params.shape, indices.shape, axis));
    c.primitives().gather(c.stream(), params, indices, axis, View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
