#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/algebra.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/custom_gradient.hpp>

namespace troupe {

/// The sign of each matrix's determinant (0 if the matrix is singular) and the logarithm of the
/// determinant's size (then -inf).
TROUPE_DSL(Exprs log_determinant(Operand a))
/// The determinant of each matrix. The second derivative at a singular matrix is an error.
TROUPE_DSL(Expr determinant(Operand a))

Exprs log_determinant(Operand a) {
  return computed_wide("log_determinant", {a},
                       [](const Exprs& x) { return bind_op("LogDeterminant", {x[0]}); });
}
Expr determinant(Operand a) {
  return computed_wide("determinant", {a}, [](const Exprs& x) {
    Exprs parts = log_determinant(stop_gradient(x[0]));
    return Exprs{with_gradient(
        parts[0] * exp(parts[1]), {x[0]}, [](const Expr& dy, const Exprs& of, const Expr&) {
          return Exprs{expand_dims(expand_dims(dy, -1), -1) * bind1("Cofactors", {of[0]})};
        })};
  })[0];
}

TROUPE_OP(LogDeterminant) {
  op.doc("The sign of each matrix's determinant and the logarithm of its absolute value.");
  op.inputs(1);
  op.infer([](Inference& c) {
    require_matrices(c, 0, true);
    for (int i = 0; i < 2; ++i) c.output(c.dtype(0), batch_and(c.shape(0), {}));
  });
  op.gradient([](Gradient& g) {
    if (g.has_dy(1))
      g.set(0,
            expand_dims(expand_dims(g.dy(1), -1), -1) * solve(g.x(), identity_like(g.x()), true));
  });
  algebra_kernel(op, Algebra::determinant, true, [](const Shape& a, const Shape&) {
    return std::vector<Shape>{batch_and(a, {}), batch_and(a, {})};
  });
}

TROUPE_OP(Cofactors) {
  op.doc("The derivative of the determinant of each matrix by each element.");
  op.inputs(1);
  op.infer([](Inference& c) {
    require_matrices(c, 0, true);
    c.output(c.dtype(0), c.shape(0));
  });
  op.gradient([](Gradient& g) {
    // c = det(a) a^-T, so that with w = dy da = (<w, c> - c w^T) a^-T.
    const Expr a = g.x(), c = g.y(), w = g.dy();
    const Expr by = sum(w * c, {-2, -1}, true) * identity_like(a) - matmul(c, w, false, true);
    g.set(0, matrix_transpose(solve(a, matrix_transpose(by))));
  });
  algebra_kernel(op, Algebra::cofactors, true,
                 [](const Shape& a, const Shape&) { return std::vector<Shape>{a}; });
}

}  // namespace troupe
