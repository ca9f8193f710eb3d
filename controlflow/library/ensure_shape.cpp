#include <fmt/format.h>

#include <troupe/controlflow/list_ops.hpp>

namespace troupe {

TROUPE_OP(EnsureShape) {
  op.doc("The input, whose attributes add details to the shape known when the graph is built.");
  op.inputs(1);
  op.takes_lists();
  op.takes_strings();
  spec_attrs(op);
  op.infer([](Inference& c) {
    ValueSpec is = c.input(0), wanted = spec_of(c.attrs());
    c.require(is.dtype == wanted.dtype && is.depth == wanted.depth &&
                  is.shape.is_compatible(wanted.shape),
              is.text() + " is no " + wanted.text());
    is.shape = is.shape.merge(wanted.shape);
    c.output(is);
  });
  op.gradient([](Gradient& g) { g.set(0, g.cotangent()); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    Value& x = c.all_inputs()[0];
    if (!fits(x, spec_of(attrs)))
      throw Error(Code::invalid_argument,
                  fmt::format("the value is {}, not {}", text_of(x), spec_of(attrs).text()));
    c.set(0, std::move(x));
  });
}

}  // namespace troupe
