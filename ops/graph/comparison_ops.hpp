// Comparisons by order. All are false if an operand is NaN.
#pragma once

#include <troupe/ops/graph/op.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// <, <=, >, >=.
bool is_ordering(const OpDef& op);
/// Returns the negation of such a comparison, which differs from it everywhere but at NaN.
const OpDef& negated_comparison(const OpDef& op);
/// Returns true if an element is NaN; false for tensors without floats.
bool has_nan(const Tensor& t);

}  // namespace troupe
