#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/algebra.hpp>

namespace troupe {

/// q and r of each matrix a = q r: with k the smaller side of [m, n], q is [m, k] with orthonormal
/// columns, r [k, n] upper triangular with no negative number on its diagonal. Gradients need the
/// first k columns to be of full rank; of m < n both numbers are known while the graph is built.
TROUPE_DSL(Exprs qr(Operand a))
Exprs qr(Operand a) {
  return computed_wide("qr", {a}, [](const Exprs& x) { return bind_op("Qr", {x[0]}); });
}

TROUPE_OP(Qr) {
  op.doc("Orthonormal q and upper triangular r with a = q r.");
  op.inputs(1);
  op.infer([](Inference& c) {
    require_matrices(c, 0, false);
    const Shape& a = c.shape(0);
    if (!a.has_rank()) {
      c.output(c.dtype(0), a);
      return c.output(c.dtype(0), a);
    }
    c.output(c.dtype(0), batch_and(a, {rows_of(a), smaller_side(a)}));
    c.output(c.dtype(0), batch_and(a, {smaller_side(a), columns_of(a)}));
  });
  op.gradient([](Gradient& g) {
    const Shape a = g.x().shape();
    const bool is_wide =
        a.has_rank() && rows_of(a) >= 0 && columns_of(a) >= 0 && rows_of(a) < columns_of(a);
    Expr q = g.y(0), r = g.y(1), dq = g.dy(0), dr = g.dy(1), of_rest;
    if (is_wide) {
      // a = [b, c] with b square: b = q s and r = [s, q^T c].
      auto columns = [&](const Expr& e, bool first) {
        std::vector<std::int64_t> starts(static_cast<std::size_t>(a.rank()), 0),
            extents(starts.size(), -1);
        (first ? extents : starts).back() = rows_of(a);
        return slice(e, starts, extents);
      };
      Expr of_product = columns(dr, false);
      dq = dq + matmul(columns(g.x(), false), of_product, false, true);
      of_rest = matmul(q, of_product);
      r = columns(r, true);
      dr = columns(dr, true);
    }
    // (dq + q sym(m)) r^-T with m = r dr^T - dq^T q, sym taking its lower half for both.
    Expr m = matmul(r, dr, false, true) - matmul(dq, q, true, false);
    Expr both = tril(m) + matrix_transpose(tril(m, -1));
    Expr of_square =
        matrix_transpose(triangular_solve(r, matrix_transpose(dq + matmul(q, both)), false));
    g.set(0, is_wide ? concat({of_square, of_rest}, -1) : of_square);
  });
  algebra_kernel(op, Algebra::qr, false, [](const Shape& a, const Shape&) {
    return std::vector<Shape>{batch_and(a, {rows_of(a), smaller_side(a)}),
                              batch_and(a, {smaller_side(a), columns_of(a)})};
  });
}

}  // namespace troupe
