#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>
#include <fmt/format.h>

namespace troupe {

/// The same elements under another shape; one extent may be kAny and follows from the others.
TROUPE_DSL(Expr reshape(Operand x, const Shape& shape))
Expr reshape(Operand x, const Shape& shape) { return bind1("Reshape", {x}, Attrs{{"shape", shape}}); }

namespace {

Shape resolved(const Shape& wanted, std::int64_t elements) {
  std::int64_t known = 1;
  int open = -1;
  for (int i = 0; i < wanted.rank(); ++i) {
    if (wanted[i] >= 0) known *= wanted[i];
    else open = i;
  }
  if (elements < 0) return wanted;
  if (open < 0 ? known != elements : known == 0 || elements % known != 0)
    throw Error(Code::invalid_argument, fmt::format("{} elements cannot take shape {}", elements, wanted.text()));
  Shape out = wanted;
  if (open >= 0) out.set(open, elements / known);
  return out;
}

}  // namespace

TROUPE_OP(Reshape) {
  op.doc("The same elements, in the same order, under another shape.");
  op.inputs(1);
  op.takes_strings();
  op.attr<Shape>("shape");
  op.infer([](Inference& c) {
    const Shape& wanted = c.attrs().get<Shape>("shape");
    int open = 0;
    for (std::int64_t d : wanted) open += d < 0;
    c.require(open <= 1, "at most one extent of " + wanted.text() + " may be left open");
    c.output(c.dtype(0), resolved(wanted, c.shape(0).elements()));
  });
  op.gradient([](Gradient& g) { g.set(0, reshape_like(g.dy(), g.x())); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    Tensor x = c.take(0);
    c.set(0, x.reshaped(resolved(attrs.get<Shape>("shape"), x.elements())));
  });
}

}  // namespace troupe
