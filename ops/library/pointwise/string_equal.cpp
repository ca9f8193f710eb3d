#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

TROUPE_OP(StringEqual) {
  op.doc(
      "Whether two strings are the same bytes, element by element; the operands have one shape, or "
      "one is a scalar.");
  op.inputs(2);
  op.takes_strings();
  op.commutative();
  op.not_differentiable();
  op.infer([](Inference& c) {
    for (int i : {0, 1}) c.require_dtype(i, DType::string, "an input");
    const bool is_left = !c.shape(0).is_scalar();
    c.require(
        c.shape(0).is_compatible(c.shape(1)) || c.shape(0).is_scalar() || c.shape(1).is_scalar(),
        "shapes " + c.shape(0).text() + " and " + c.shape(1).text() +
            " are not the same, and none is a scalar");
    c.output(DType::boolean, is_left && !c.shape(1).is_scalar() ? c.shape(0).merge(c.shape(1))
                                                                : c.shape(is_left ? 0 : 1));
  });
  op.run([](KernelContext& c) {
    const Tensor &x = c.input(0), &y = c.input(1);
    const bool x_varies = !x.shape().is_scalar(), y_varies = !y.shape().is_scalar();
    if (x_varies && y_varies && x.shape() != y.shape())
      throw Error(Code::invalid_argument, "strings of shapes " + x.shape().text() + " and " +
                                              y.shape().text() + " cannot be compared");
    Tensor out = c.allocate(DType::boolean, x_varies ? x.shape() : y.shape());
    auto* equal = static_cast<bool*>(out.raw_mutable());
    for (std::int64_t i = 0; i < out.elements(); ++i)
      equal[i] = x.data<StringRef>()[x_varies ? i : 0] == y.data<StringRef>()[y_varies ? i : 0];
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
