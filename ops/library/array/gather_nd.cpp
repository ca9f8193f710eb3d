#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/coordinates.hpp>

namespace troupe {

/// The slices of `params` that stand at coordinates: indices [batch..., n..., depth], i32 or i64,
/// name places along the `depth` axes behind the first `batch_axes`, which both have alike; result:
/// [batch..., n..., rest of params].
TROUPE_DSL(Expr gather_nd(Operand params, Operand indices, std::int64_t batch_axes = 0))
/// The slices of each batch of `params` along axis `batch_axes` that its own indices [batch...,
/// n...] name.
TROUPE_DSL(Expr batched_gather(Operand params, Operand indices, std::int64_t batch_axes = 1))

Expr gather_nd(Operand params, Operand indices, std::int64_t batch_axes) {
  return bind1("GatherNd", {params, indices}, Attrs{{"batch_axes", batch_axes}});
}

Expr batched_gather(Operand params, Operand indices, std::int64_t batch_axes) {
  Composite c("batched_gather", {params, indices});
  return gather_nd(c[0], expand_dims(c[1], -1), batch_axes);
}

TROUPE_OP(GatherNd) {
  op.doc(
      "Slices of the first input at the coordinates that stand along the last axis of the second; "
      "the first `batch_axes` axes of both go together.");
  op.inputs(2);
  op.attr<std::int64_t>("batch_axes", 0);
  op.infer([](Inference& c) {
    c.require_index(1, "indices");
    c.output(
        c.dtype(0),
        coordinates_of(c.shape(0), c.shape(1), c.attrs().get<std::int64_t>("batch_axes")).taken);
  });
  op.gradient([](Gradient& g) {
    g.set(0, bind1("ScatterNd", {zeros_like(g.x(0)), g.x(1), g.dy()},
                   Attrs{{"mode", std::string("add")},
                         {"batch_axes", g.attrs().get<std::int64_t>("batch_axes")}}));
  });
  op.calls({Primitive::along});
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView params(c.input(0)), indices(c.input(1));
    const Coordinates at =
        coordinates_of(params.shape, indices.shape, attrs.get<std::int64_t>("batch_axes"));
    Tensor out = c.allocate(params.dtype, at.taken);
    c.primitives().along(c.stream(), at.args(Along::take_at, params, indices, View(out)));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
