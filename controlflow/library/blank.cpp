#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

// Blank replaces a forward value of which a gradient needs only the shape. It takes memory during
// the firing that uses it, instead of a value saved from the forward pass.
TROUPE_OP(Blank) {
  op.doc(
      "A tensor of the shape in the attribute, or in the input if there is one; its contents are "
      "undefined.");
  op.inputs(0, 1);
  op.attr<DType>("dtype");
  op.attr<Shape>("shape");
  op.not_differentiable();
  op.infer([](Inference& c) {
    if (c.inputs()) require_integers(c, 0, 1, "the shape");
    else
      c.require(c.attrs().get<Shape>("shape").is_known(),
                "needs a shape, or an input with the shape");
    c.output(c.attrs().get<DType>("dtype"), c.attrs().get<Shape>("shape"));
  });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({0}, [attrs = s.attrs](KernelContext& c) {
      Shape shape = attrs.get<Shape>("shape");
      if (c.inputs()) shape = Shape(integers_of(c.input(0)));
      DType dtype = attrs.get<DType>("dtype");
      c.set(0, shape.is_scalar() ? Tensor::scalar_as(dtype, 0) : c.allocate(dtype, shape));
    });
  });
}

}  // namespace troupe
