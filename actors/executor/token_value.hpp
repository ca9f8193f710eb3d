// Values as tokens carry them: their size, and whether two of them are equal.
#pragma once

#include <cstdint>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/kernel.hpp>
#include <troupe/devices/list/list.hpp>

namespace troupe {

/// Returns the bytes that the value keeps alive; for a list, the sum over its elements.
inline std::uint64_t bytes_of(const Value& value) {
  if (value.kind() == Value::Kind::tensor) return value.tensor().bytes();
  return value.is_list() ? value.list().bytes() : 0;
}

/// Returns the bytes that a token adds to its edge's count. A scalar lies in the token.
inline std::uint64_t bytes_sent(const Value& value) {
  return value.is_inline() ? size_of(value.dtype()) : bytes_of(value);
}

/// True if the value owns memory of its own.
inline bool holds_bytes(const Value& value) { return value.has_value() && !value.is_inline(); }

/// True if two tokens are equal: both dead, both without a value (control edges), or both the same
/// scalar. `b`: null if that token is dead.
inline bool is_same_token(bool is_dead, const Value& a, const Value* b) {
  if (is_dead || !b) return is_dead && !b;
  return a.is_same_scalar(*b) || !(a.has_value() || b->has_value());
}

/// True for an inline bool that is true.
inline bool is_true(const Value& value) {
  return value.is_inline() && value.dtype() == DType::boolean &&
         *static_cast<const unsigned char*>(value.scalar_bits()) != 0;
}

}  // namespace troupe
