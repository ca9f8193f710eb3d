// Checks, shapes and kernels of the ops of linear algebra. They work on the last two axes of f32
// and f64; axes before are a batch. Their functions take f16 and bf16, too.
#pragma once

#include <functional>

#include <troupe/devices/device/algebra.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// Input i is a batch of matrices of f32 or f64; square: as many rows as columns.
void require_matrices(const Inference& c, int i, bool square);
/// Returns the batch's axes, then `more`; unknown if the rank of `matrices` is.
Shape batch_and(const Shape& matrices, std::initializer_list<std::int64_t> more);
/// Rows and columns of the matrices of a shape whose rank is known.
std::int64_t rows_of(const Shape& s);
std::int64_t columns_of(const Shape& s);
/// The smaller of the two, kAny if either is unknown.
std::int64_t smaller_side(const Shape& s);

/// Sets the kernel of an op whose outputs have the shapes that `shapes` returns; with two inputs
/// the op solves.
void algebra_kernel(OpBuilder& op, Algebra what, bool square,
                    std::function<std::vector<Shape>(const Shape& a, const Shape& b)> shapes);

/// Returns f of the operands of the function `name`. f16 and bf16 are converted to f32, and the
/// results are rounded back to their dtype.
Exprs computed_wide(std::string_view name, std::initializer_list<Operand> operands,
                    const std::function<Exprs(const Exprs&)>& f);

/// The transpose of the last two axes, whose rank must be known.
Expr matrix_transpose(const Expr& x);
/// Matrices of x's shape: 1 on the diagonal, else 0.
Expr identity_like(const Expr& x);
/// A symmetric gradient, for an op that reads the lower half alone.
Expr onto_lower_half(const Expr& symmetric);

}  // namespace troupe::detail
