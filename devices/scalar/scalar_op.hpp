// The scalar operations that a pointwise program is made of, and their numbers of operands.
#pragma once

#include <cstdint>
#include <string_view>

namespace troupe::detail {

enum class ScalarOp : std::uint8_t {
  input,
  constant,
  cast,
  // one operand
  neg,
  abs,
  sign,
  sqrt,
  rsqrt,
  reciprocal,
  square,
  exp,
  expm1,
  log,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  erfc,
  gelu,
  gelu_slope,
  sigmoid,
  floor,
  ceil,
  round,
  trunc,
  logical_not,
  bit_not,
  is_nan,
  is_inf,
  is_finite,
  // two operands
  add,
  sub,
  mul,
  div,
  floor_div,
  mod,
  pow,
  atan2,
  min,
  max,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,
  logical_xor,
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right,
  // three operands: condition, value if true, value if false
  select,
};
inline constexpr int kScalarOps = static_cast<int>(ScalarOp::select) + 1;

std::string_view name_of(ScalarOp op);
constexpr int arity(ScalarOp op) {
  return op <= ScalarOp::constant ? 0
         : op < ScalarOp::neg     ? 1
         : op < ScalarOp::add     ? 1
         : op < ScalarOp::select  ? 2
                                  : 3;
}
/// Comparisons and classifications: operands of any dtype, result bool.
constexpr bool yields_bool(ScalarOp op) {
  return (op >= ScalarOp::eq && op <= ScalarOp::logical_xor) || op == ScalarOp::logical_not ||
         (op >= ScalarOp::is_nan && op <= ScalarOp::is_finite);
}

}  // namespace troupe::detail
