// What the reductions share: axes, shapes, and how a cotangent spreads back.
#pragma once

#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// Binds a reduction over `axes` (each in [-rank, rank); none: all).
Expr reduce(std::string_view op, Operand x, std::vector<std::int64_t> axes, bool keep_dims);
/// Signature, inference and kernel of a reduction.
void define_reduction(OpBuilder& op, Reduction kind);

/// The axes of the reduction whose gradient this is.
std::vector<std::int64_t> reduction_axes(const Gradient& g);
/// A reduced value repeated over the axes that were reduced.
Expr spread(const Gradient& g, const Expr& reduced);
/// How many elements went into each result, as a scalar of x's dtype.
Expr reduced_elements(const Gradient& g);
/// dy divided evenly among the elements that equal the result (max, min).
Expr spread_to_extremes(const Gradient& g);

}  // namespace troupe
