#include <troupe/functions.hpp>
#include <troupe/ops/families/extents.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <fmt/format.h>

namespace troupe {

/// x under the extents in a vector (i32 or i64). `known` has one entry for each: the extent if it
/// is known, else kAny.
TROUPE_DSL(Expr reshape_to(Operand x, Operand extents, const Shape& known))
Expr reshape_to(Operand x, Operand extents, const Shape& known) {
  return bind1("ReshapeTo", {x, extents}, Attrs{{"shape", known}});
}

TROUPE_OP(ReshapeTo) {
  op.doc(
      "The first input's elements, in the same order, under the shape that the second one holds.");
  op.inputs(2);
  op.takes_strings();
  op.attr<Shape>("shape");
  op.attr<std::vector<std::int64_t>>("open", {});
  op.infer([](Inference& c) {
    Shape known = c.attrs().get<Shape>("shape");
    c.require_index(1, "extents");
    c.require_rank(1, 1, "the vector of extents");
    if (c.shape(1).has_rank())
      c.require(c.shape(1)[0] < 0 || c.shape(1)[0] == known.rank(), [&] {
        return fmt::format("there are {} extents for shape {}", c.shape(1)[0], known.text());
      });
    const std::int64_t from = c.shape(0).elements(), to = known.elements();
    c.require(from < 0 || to < 0 || from == to,
              fmt::format("{} elements cannot take shape {}", from, known.text()));
    c.output(c.dtype(0), known);
  });
  op.gradient([](Gradient& g) { g.set(0, reshape_like(g.dy(), g.x(0))); });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [attrs = s.attrs](KernelContext& c) {
      Tensor x = c.take(0);
      const Shape to = reshaped(extents_given(attrs, integers_of(c.input(1))), x.shape());
      c.set(0, x.reshaped(to));
    });
  });
}

}  // namespace troupe
