#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/algebra.hpp>

namespace troupe {

/// u, s, v of each matrix a = u diag(s) v^T: with k the smaller side of [m, n], u is [m, k], s [k]
/// falling and not negative, v [n, k]. The largest element of each column of u is positive.
/// Gradients need distinct, positive s; of s alone they are right always.
TROUPE_DSL(Exprs svd(Operand a))
Exprs svd(Operand a) {
  return computed_wide("svd", {a}, [](const Exprs& x) { return bind_op("Svd", {x[0]}); });
}

namespace {

// 1 / (x[j] - x[i]), 0 on the diagonal.
Expr reciprocal_gaps(const Expr& x) {
  Expr gaps = expand_dims(x, -2) - expand_dims(x, -1), diagonal = identity_like(gaps);
  return (1.0 - diagonal) / (gaps + diagonal);
}

}  // namespace

TROUPE_OP(Svd) {
  op.doc("Singular values and vectors: a = u diag(s) v^T.");
  op.inputs(1);
  op.infer([](Inference& c) {
    require_matrices(c, 0, false);
    const Shape& a = c.shape(0);
    if (!a.has_rank()) {
      for (int i = 0; i < 3; ++i) c.output(c.dtype(0), a);
      return;
    }
    c.output(c.dtype(0), batch_and(a, {rows_of(a), smaller_side(a)}));
    c.output(c.dtype(0), batch_and(a, {smaller_side(a)}));
    c.output(c.dtype(0), batch_and(a, {columns_of(a), smaller_side(a)}));
  });
  op.gradient([](Gradient& g) {
    // Townsend, Differentiating the singular value decomposition, 2016.
    Expr u = g.y(0), s = g.y(1), v = g.y(2), row = expand_dims(s, -2);
    // Gaps of squares of scaled values near 1, because those of s may be too large or too small.
    Expr total = stop_gradient(sum(0x1p-16 * s, {-1}, true)),
         scale = where(total > 0.0, total, ones_like(total)), near = s / scale;
    const auto share = [&](const Expr& turned) {
      return reciprocal_gaps(square(near)) / expand_dims(scale, -1) *
             (turned - matrix_transpose(turned));
    };
    Expr inner;
    auto add = [&](const Expr& more) { inner = inner.is_empty() ? more : inner + more; };
    if (g.has_dy(1)) add(expand_dims(g.dy(1), -1) * identity_like(matmul(u, u, true, false)));
    if (g.has_dy(0)) {
      Expr turned = matmul(u, g.dy(0), true, false);
      add(share(turned) * expand_dims(near, -2));
    }
    if (g.has_dy(2)) {
      Expr turned = matmul(v, g.dy(2), true, false);
      add(expand_dims(near, -1) * share(turned));
    }
    Expr da = matmul(matmul(u, inner), v, false, true);
    auto outside = [](const Expr& basis, const Expr& x) {
      return x - matmul(basis, matmul(basis, x, true, false));
    };
    if (g.has_dy(0)) da = da + matmul(outside(u, g.dy(0)) / row, v, false, true);
    if (g.has_dy(2)) da = da + matmul(u / row, outside(v, g.dy(2)), false, true);
    g.set(0, da);
  });
  algebra_kernel(op, Algebra::svd, false, [](const Shape& a, const Shape&) {
    const std::int64_t k = smaller_side(a);
    return std::vector<Shape>{batch_and(a, {rows_of(a), k}), batch_and(a, {k}),
                              batch_and(a, {columns_of(a), k})};
  });
}

/// Eigenvalues, rising, and eigenvectors, as columns, of each symmetric matrix, of which only the
/// lower half is read. The largest element of each vector is positive. Gradients of vectors need
/// distinct values.
TROUPE_DSL(Exprs eigh(Operand a))
Exprs eigh(Operand a) {
  return computed_wide("eigh", {a}, [](const Exprs& x) { return bind_op("Eigh", {x[0]}); });
}

TROUPE_OP(Eigh) {
  op.doc("Eigenvalues and eigenvectors of symmetric matrices.");
  op.inputs(1);
  op.infer([](Inference& c) {
    require_matrices(c, 0, true);
    const Shape& a = c.shape(0);
    c.output(c.dtype(0), a.has_rank() ? batch_and(a, {rows_of(a)}) : a);
    c.output(c.dtype(0), a);
  });
  op.gradient([](Gradient& g) {
    Expr w = g.y(0), v = g.y(1), inner;
    if (g.has_dy(0)) inner = expand_dims(g.dy(0), -1) * identity_like(v);
    if (g.has_dy(1)) {
      Expr turned = reciprocal_gaps(w) * matmul(v, g.dy(1), true, false);
      inner = inner.is_empty() ? turned : inner + turned;
    }
    g.set(0, onto_lower_half(matmul(matmul(v, inner), v, false, true)));
  });
  algebra_kernel(op, Algebra::eigh, true, [](const Shape& a, const Shape&) {
    return std::vector<Shape>{batch_and(a, {rows_of(a)}), a};
  });
}

}  // namespace troupe
