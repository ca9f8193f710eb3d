// Numbers in attributes that become elements: those a dtype does not hold are refused, as a literal
// in an expression is (`u8 + 300`).
#pragma once

#include <string_view>

#include <troupe/devices/base/dtype.hpp>

namespace troupe::detail {

/// Does `t` hold `value`: for integers exactly, for bool 0 and 1; any number for the others,
/// rounded to what they have.
bool holds(DType t, double value);
/// Throws invalid_argument, naming what the number is, unless `t` holds it.
void require_held(DType t, double value, std::string_view what);

}  // namespace troupe::detail
