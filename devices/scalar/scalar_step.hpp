// The steps that scalar code is made of, for the interpreter and the translator.
#pragma once

#include <cstdint>

#include <troupe/devices/scalar/scalar_code.hpp>

// Arithmetic of the four usual dtypes has kinds of its own, because a call of a function takes as
// long as three of these. All else is `function`.
#define TROUPE_CODE_TYPES(X) \
  X(i32, std::int32_t)       \
  X(i64, std::int64_t)       \
  X(f32, float)              \
  X(f64, double)

namespace troupe::detail {

enum class ScalarCode::Kind : std::uint16_t {
  halt,
  call,
  copy,
  set_zero,
  jump,
  jump_unless,
  choose_bool,
  choose_i32,
  choose_i64,
  count,
  again_if,
  push_1,
  push_4,
  push_8,
  push_wide,
  pop_1,
  pop_4,
  pop_8,
  pop_wide,
  function,
  logical_not,
  logical_and,
  logical_or,
  select_1,
  select_4,
  select_8,
  i32_to_i64,
  i32_to_f32,
  i32_to_f64,
  i64_to_f32,
  i64_to_f64,
  f32_to_f64,
  f64_to_f32,
#define X(name, T)                                                                           \
  add_##name, sub_##name, mul_##name, lt_##name, le_##name, gt_##name, ge_##name, eq_##name, \
      ne_##name, again_lt_##name, again_le_##name, again_gt_##name, again_ge_##name, neg_##name,
  TROUPE_CODE_TYPES(X)
#undef X
      div_f32,
  div_f64,
  abs_f32,
  abs_f64,
  sqrt_f32,
  sqrt_f64,
  multiply_add_f32,
  multiply_add_f64,
};

}  // namespace troupe::detail
