#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/base/representable.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// A new last axis of extent `depth`: `on` at the index, `off` elsewhere; an index outside gives a
/// row of `off`.
TROUPE_DSL(Expr one_hot(Operand indices, std::int64_t depth, DType dtype = DType::f32,
                        double on = 1, double off = 0))
Expr one_hot(Operand indices, std::int64_t depth, DType dtype, double on, double off) {
  return bind1("OneHot", {indices},
               Attrs{{"depth", depth}, {"dtype", dtype}, {"on", on}, {"off", off}});
}

TROUPE_OP(OneHot) {
  op.doc("For each index a vector with one element different from the others.");
  op.inputs(1);
  op.attr<std::int64_t>("depth");
  op.attr<DType>("dtype", DType::f32);
  op.attr<double>("on", 1.0);
  op.attr<double>("off", 0.0);
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require_index(0, "indices");
    std::int64_t depth = c.attrs().get<std::int64_t>("depth");
    c.require(depth >= 0, "depth cannot be negative");
    const DType t = c.attrs().get<DType>("dtype");
    require_representable(t, c.attrs().get<double>("on"), "on");
    require_representable(t, c.attrs().get<double>("off"), "off");
    Shape s = c.shape(0);
    if (s.has_rank()) s.push_back(depth);
    c.output(t, s);
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView indices(c.input(0));
    DType dtype = attrs.get<DType>("dtype");
    Shape shape = indices.shape;
    shape.push_back(attrs.get<std::int64_t>("depth"));
    Tensor out = c.allocate(dtype, shape);
    c.primitives().one_hot(c.stream(), indices, Tensor::scalar_as(dtype, attrs.get<double>("on")),
                           Tensor::scalar_as(dtype, attrs.get<double>("off")), View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
