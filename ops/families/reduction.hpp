// What the reductions share: axes, shapes, and how a cotangent spreads back.
#pragma once

#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// Binds a reduction over `axes` (each in [-rank, rank); none: all).
Expr reduce(std::string_view op, Operand x, std::vector<std::int64_t> axes, bool keep_dims);
/// The axes, each once, none of which says all, as bits.
std::uint32_t reduced_axes(const std::vector<std::int64_t>& axes, int rank);
/// What is left of a shape.
Shape reduced_shape(const Shape& in, std::uint32_t axes, bool keep_dims);
/// What a reduction of `in`, over the attributes' axes, yields; throws invalid_argument if there is
/// no such one.
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
