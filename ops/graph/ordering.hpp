// Comparisons that say which of two comes first: false, all of them, where an operand is NaN.
#pragma once

#include <troupe/ops/graph/op.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// <, <=, >, >=.
bool is_ordering(const OpDef& op);
/// Of such a one, the one that is true just where it is false, but for NaN.
const OpDef& opposite_of(const OpDef& op);
/// Is one of its elements NaN? Not of what holds no floats.
bool has_nan(const Tensor& t);

}  // namespace troupe
