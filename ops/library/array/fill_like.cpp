#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/base/representable.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// A tensor of x's dtype and shape, every element `value`.
TROUPE_DSL(Expr fill_like(Operand x, double value))
Expr fill_like(Operand x, double value) { return bind1("FillLike", {x}, Attrs{{"value", value}}); }

/// Zeros of x's dtype and shape.
TROUPE_DSL(Expr zeros_like(Operand x))
Expr zeros_like(Operand x) { return fill_like(Composite("zeros_like", {x})[0], 0); }

/// Ones of x's dtype and shape.
TROUPE_DSL(Expr ones_like(Operand x))
Expr ones_like(Operand x) { return fill_like(Composite("ones_like", {x})[0], 1); }

TROUPE_OP(FillLike) {
  op.doc("A tensor of the input's dtype and shape filled with one value.");
  op.inputs(1);
  op.shape_only({0});
  op.attr<double>("value");
  op.not_differentiable();
  op.infer([](Inference& c) {
    require_representable(c.dtype(0), c.attrs().get<double>("value"), "the value");
    c.output(c.dtype(0), c.shape(0));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    const Tensor& x = c.input(0);
    Tensor value = Tensor::scalar_as(x.dtype(), attrs.get<double>("value"));
    if (x.is_inline()) {
      c.set(0, value);
      return;
    }
    Tensor out = c.allocate(x.dtype(), x.shape());
    c.primitives().fill(c.stream(), value, View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
