#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// For each of `indices` (i32 or i64, rows of `table`) the last position at which the same index
/// occurs, as i64 counted in row-major order. Duplicates are summed with it without sorting: see
/// autodiff/rows.hpp.
TROUPE_DSL(Expr last_position(Operand indices, Operand table))
Expr last_position(Operand indices, Operand table) {
  return bind1("LastPosition", {indices, table});
}

TROUPE_OP(LastPosition) {
  op.doc("The last position of each index among the indices; they are rows of the second input.");
  op.inputs(2);
  op.shape_only({1});
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require_index(0, "indices");
    c.require(!c.shape(1).has_rank() || c.shape(1).rank() > 0, "a scalar has no rows");
    c.output(DType::i64, c.shape(0));
  });
  op.run([](KernelContext& c) {
    ConstView indices(c.input(0));
    if (c.input(1).shape().rank() == 0) throw Error(Code::invalid_argument, "a scalar has no rows");
    Tensor out = c.allocate(DType::i64, indices.shape);
    View to(out);
    if (indices.elements() > 0) {
      // One word a row of the table, of which only the rows that occur are written and read.
      Tensor latest = c.allocate(DType::i64, Shape{c.input(1).shape()[0]});
      View words(latest);
      c.primitives().range(c.stream(), 0, 1, to);
      c.primitives().scatter(c.stream(), Scatter::update, indices,
                             ConstView(to.data, to.dtype, to.shape), words);
      c.primitives().gather(c.stream(), ConstView(words.data, words.dtype, words.shape), indices, 0,
                            to);
    }
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
