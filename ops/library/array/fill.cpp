#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

TROUPE_OP(Fill) {
  op.doc("A tensor of one value; the shape is an attribute.");
  op.inputs(0);
  op.attr<Tensor>("value");
  op.attr<Shape>("shape");
  op.infer([](Inference& c) {
    const Tensor& value = c.attrs().get<Tensor>("value");
    const Shape& shape = c.attrs().get<Shape>("shape");
    c.require(value.shape().is_scalar(), "the value must be a scalar, not " + value.shape().text());
    c.require(shape.is_known(), "the shape " + shape.text() + " must be known in full");
    c.output(value.dtype(), shape);
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    const Tensor& value = attrs.get<Tensor>("value");
    Tensor out = c.allocate(value.dtype(), attrs.get<Shape>("shape"));
    if (out.is_inline()) {
      c.set(0, value);
      return;
    }
    c.primitives().fill(c.stream(), value, View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
