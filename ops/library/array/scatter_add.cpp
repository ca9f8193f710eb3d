#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/update_rows.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x with updates[i] added to row indices[i] (axis 0), for every i; duplicates add up.
/// indices: any shape I; updates: I followed by x's shape without axis 0.
TROUPE_DSL(Expr scatter_add(Operand x, Operand indices, Operand updates))
Expr scatter_add(Operand x, Operand indices, Operand updates) {
  return bind1("ScatterAdd", {x, indices.as_written(), updates});
}

TROUPE_OP(ScatterAdd) {
  op.doc("The first input with rows of the third added at the indices in the second.");
  op.inputs(3);
  op.infer([](Inference& c) {
    c.require_index(1, "indices");
    c.require_same_dtype(0, 2);
    c.require(!c.shape(0).has_rank() || c.shape(0).rank() > 0, "a scalar has no rows");
    if (c.shape(0).has_rank() && c.shape(1).has_rank()) {
      const Shape rows = update_rows(c.shape(1), c.shape(0));
      c.require(rows.is_compatible(c.shape(2)),
                "updates must have shape " + rows.text() + ", not " + c.shape(2).text());
    }
    c.output(c.dtype(0), c.shape(0));
  });
  op.gradient([](Gradient& g) {
    g.set(0, g.cotangent());
    if (g.needs(2)) g.set(2, gather(g.dy(), g.x(1)));
  });
  op.run([](KernelContext& c) {
    ConstView indices(c.input(1)), updates(c.input(2));
    ConstView x(c.input(0));
    if (x.shape.rank() == 0) throw Error(Code::invalid_argument, "a scalar has no rows");
    const Shape rows = update_rows(indices.shape, x.shape);
    if (updates.shape != rows)
      throw Error(Code::invalid_argument,
                  "updates must have shape " + rows.text() + ", not " + updates.shape.text());
    Tensor out = c.allocate_over(0, x.dtype, x.shape);
    View to(out);
    if (to.data != x.data()) c.primitives().copy(c.stream(), x, to);
    c.primitives().scatter(c.stream(), Scatter::add, indices, updates, to);
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
