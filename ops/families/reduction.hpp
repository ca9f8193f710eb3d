// Axes, shapes and gradients of the reductions.
#pragma once

#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// Binds a reduction over `axes` (each in [-rank, rank); none: all).
Expr reduce(std::string_view op, Operand x, std::vector<std::int64_t> axes, bool keep_dims);
/// Returns the axes as bits, each once; no axes mean all.
std::uint32_t reduced_axes(const std::vector<std::int64_t>& axes, int rank);
/// Returns the shape after the reduction.
Shape reduced_shape(const Shape& in, std::uint32_t axes, bool keep_dims);
/// Returns the spec of `in` reduced over the attributes' axes; throws invalid_argument if `in`
/// cannot be reduced so.
ValueSpec reduced_spec(const Inference& c, Reduction kind, const ValueSpec& in);
/// Signature, inference and kernel of a reduction.
void define_reduction(OpBuilder& op, Reduction kind);

/// The axes of the reduction whose gradient this is.
std::vector<std::int64_t> reduction_axes(const Gradient& g);
/// Another value of x's shape reduced over the same axes, kept or not as in y.
Expr reduce_alike(const Gradient& g, std::string_view op, const Expr& value);
/// A value of y's shape repeated over the axes that were reduced.
Expr spread(const Gradient& g, const Expr& reduced);
/// A value over the number of elements that went into each result.
Expr divided_by_count(const Gradient& g, const Expr& value);
/// dy divided evenly among the elements that equal the result (max, min).
Expr spread_to_extremes(const Gradient& g);

}  // namespace troupe::detail
