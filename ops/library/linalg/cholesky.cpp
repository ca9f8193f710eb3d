#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/algebra.hpp>

namespace troupe {

/// The lower triangular l with a = l l^T of each symmetric, positive definite matrix, of which only
/// the lower half is read.
TROUPE_DSL(Expr cholesky(Operand a))
Expr cholesky(Operand a) {
  return computed_wide("cholesky", {a},
                       [](const Exprs& x) { return bind_op("Cholesky", {x[0]}); })[0];
}

TROUPE_OP(Cholesky) {
  op.doc("The lower triangular factor of symmetric, positive definite matrices.");
  op.inputs(1);
  op.infer([](Inference& c) {
    require_matrices(c, 0, true);
    c.output(c.dtype(0), c.shape(0));
  });
  op.gradient([](Gradient& g) {
    // Murray, Differentiation of the Cholesky decomposition, 2016: l^-T P l^-1, P the lower half of
    // l^T dl, its diagonal halved.
    Expr l = g.y(), p = matmul(l, g.dy(), true, false);
    Expr halved = tril(p) - 0.5 * (p * identity_like(p));
    Expr right = matrix_transpose(triangular_solve(l, matrix_transpose(halved), true, true));
    g.set(0, onto_lower_half(triangular_solve(l, right, true, true)));
  });
  algebra_kernel(op, Algebra::cholesky, true,
                 [](const Shape& a, const Shape&) { return std::vector<Shape>{a}; });
}

}  // namespace troupe
