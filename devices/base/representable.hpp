// Numbers in attributes that become elements: those a dtype does not hold are refused, as a literal
// in an expression is (`u8 + 300`).
#pragma once

#include <string_view>

#include <troupe/devices/base/dtype.hpp>

namespace troupe::detail {

/// True if `t` can represent `value`: exactly for integers, 0 and 1 for bool, any number, rounded,
/// for other dtypes.
bool is_representable(DType t, double value);
/// Throws invalid_argument, naming the number as `what`, unless `t` can represent it.
void require_representable(DType t, double value, std::string_view what);

}  // namespace troupe::detail
