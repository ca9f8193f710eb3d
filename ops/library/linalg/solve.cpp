#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/algebra.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <fmt/format.h>

namespace troupe {

/// x of a x = b for each matrix; transposed: of a^T x = b. a: [batch..., n, n], b: [batch..., n,
/// right], as x.
TROUPE_DSL(Expr solve(Operand a, Operand b, bool transposed = false))
/// Solves with a's lower (or upper) half alone; the other half is ignored.
TROUPE_DSL(Expr triangular_solve(Operand a, Operand b, bool lower = true, bool transposed = false))
/// a^-1 of each matrix; an error where one is singular.
TROUPE_DSL(Expr inverse(Operand a))

Expr solve(Operand a, Operand b, bool transposed) {
  return computed_wide("solve", {a, b}, [&](const Exprs& x) {
    return bind_op("Solve", {x[0], x[1]}, Attrs{{"transposed", transposed}});
  })[0];
}
Expr triangular_solve(Operand a, Operand b, bool lower, bool transposed) {
  return computed_wide("triangular_solve", {a, b}, [&](const Exprs& x) {
    return bind_op("TriangularSolve", {x[0], x[1]},
                   Attrs{{"lower", lower}, {"transposed", transposed}});
  })[0];
}
Expr inverse(Operand a) {
  return computed_wide("inverse", {a},
                       [](const Exprs& x) { return Exprs{solve(x[0], identity_like(x[0]))}; })[0];
}

namespace {

std::vector<Shape> solution(const Shape& a, const Shape& b) {
  Shape wanted = batch_and(a, {rows_of(a), b.rank() >= 1 ? columns_of(b) : kAny});
  if (b.rank() != a.rank() || !wanted.is_compatible(b))
    throw Error(
        Code::invalid_argument,
        fmt::format(
            "the right side of {} must be [batch..., n, right] with its batch and rows, not {}",
            a.text(), b.text()));
  return {b};
}

void infer_solution(Inference& c) {
  require_matrices(c, 0, true);
  c.require_same_dtype(0, 1);
  if (c.shape(0).has_rank() && c.shape(1).has_rank()) solution(c.shape(0), c.shape(1));
  c.output(c.dtype(0), c.shape(1));
}

// With x = a^-1 b: db = a^-T dx, da = -db x^T; transposed, the other way round.
Expr matrix_part(const Gradient& g, const Expr& db) {
  const bool transposed = g.attrs().get<bool>("transposed");
  return -(transposed ? matmul(g.y(), db, false, true) : matmul(db, g.y(), false, true));
}

}  // namespace

TROUPE_OP(Solve) {
  op.doc("The solution x of a x = b for each matrix of a batch.");
  op.inputs(2);
  op.attr<bool>("transposed", false);
  op.infer(infer_solution);
  op.gradient([](Gradient& g) {
    Expr db = solve(g.x(0), g.dy(), !g.attrs().get<bool>("transposed"));
    if (g.needs(0)) g.set(0, matrix_part(g, db));
    if (g.needs(1)) g.set(1, db);
  });
  algebra_kernel(op, Algebra::solve, true, solution);
}

TROUPE_OP(TriangularSolve) {
  op.doc(
      "The solution x of a x = b for triangular matrices; the other half of each is not looked "
      "at.");
  op.inputs(2);
  op.attr<bool>("lower", true);
  op.attr<bool>("transposed", false);
  op.infer(infer_solution);
  op.gradient([](Gradient& g) {
    const bool lower = g.attrs().get<bool>("lower");
    Expr db = triangular_solve(g.x(0), g.dy(), lower, !g.attrs().get<bool>("transposed"));
    if (g.needs(0)) g.set(0, lower ? tril(matrix_part(g, db)) : triu(matrix_part(g, db)));
    if (g.needs(1)) g.set(1, db);
  });
  algebra_kernel(op, Algebra::triangular_solve, true, solution);
}

}  // namespace troupe
