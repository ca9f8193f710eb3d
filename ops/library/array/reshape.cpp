#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace troupe {

/// The same elements under another shape. An extent may be kAny and follows from the others; of
/// several, all but the last are x's own at the same places: of [batch, time, 512] with {kAny,
/// kAny, 8, 64} comes [batch, time, 8, 64].
TROUPE_DSL(Expr reshape(Operand x, const Shape& shape))
Expr reshape(Operand x, const Shape& shape) {
  return bind1("Reshape", {x}, Attrs{{"shape", shape}});
}

namespace {

// `x` may have unknown extents; then so has what follows from them.
Shape resolved(const Shape& wanted, const Shape& x) {
  int last = -1;  // the open extent that follows from the others
  for (int i = 0; i < wanted.rank(); ++i)
    if (wanted[i] < 0) last = i;
  if (!x.has_rank()) return wanted;
  // What is taken over counts on neither side, so that it may be 0 or not known yet.
  Shape out = wanted, given, asked;
  for (int i = 0; i < std::max(wanted.rank(), x.rank()); ++i) {
    const bool is_taken = i < last && i < wanted.rank() && wanted[i] < 0;
    if (is_taken && i >= x.rank())
      throw Error(Code::invalid_argument,
                  fmt::format("extent {} of {} would be that of {}, which has none there", i,
                              wanted.text(), x.text()));
    if (is_taken) out.set(i, x[i]);
    else {
      if (i < x.rank()) given.push_back(x[i]);
      if (i < wanted.rank() && i != last) asked.push_back(wanted[i]);
    }
  }
  const std::int64_t elements = given.elements(), known = asked.elements();
  if (elements < 0) return out;
  if (last < 0 ? known != elements : known == 0 || elements % known != 0)
    throw Error(Code::invalid_argument,
                fmt::format("{} elements cannot take shape {}",
                            x.elements() < 0 ? x.text() + "'s" : std::to_string(x.elements()),
                            wanted.text()));
  if (last >= 0) out.set(last, elements / known);
  return out;
}

}  // namespace

TROUPE_OP(Reshape) {
  op.doc("The same elements, in the same order, under another shape.");
  op.inputs(1);
  op.takes_strings();
  op.attr<Shape>("shape");
  op.infer([](Inference& c) {
    c.output(c.dtype(0), resolved(c.attrs().get<Shape>("shape"), c.shape(0)));
  });
  op.gradient([](Gradient& g) { g.set(0, reshape_like(g.dy(), g.x())); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    Tensor x = c.take(0);
    c.set(0, x.reshaped(resolved(attrs.get<Shape>("shape"), x.shape())));
  });
}

}  // namespace troupe
