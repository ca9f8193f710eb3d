// Moving elements without looking at them, by element size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

/// Calls f with an unsigned type of `bytes` bytes (16: a pair).
struct Bits16 {
  std::uint64_t low, high;
};
template <class F>
void visit_bytes(std::size_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    case 8: return f(std::uint64_t{});
    default: return f(Bits16{});
  }
}

/// out's axis i is in's axis permutation[i].
void permute(WorkerPool* pool, const void* in, const Shape& in_shape, void* out,
             std::span<const std::int64_t> permutation, std::size_t bytes);

/// Index i of an i32 or i64 tensor.
inline std::int64_t index_at(const ConstView& indices, std::int64_t i) {
  return indices.dtype == DType::i32 ? static_cast<const std::int32_t*>(indices.data())[i]
                                     : static_cast<const std::int64_t*>(indices.data())[i];
}
/// Throws invalid_argument unless i32 or i64.
void check_index_type(const ConstView& indices);
/// Throws out_of_range, naming index, position and bound.
void check_index(std::int64_t index, std::int64_t position, std::int64_t bound);
/// Is each of n indices in [0, bound)?
template <class I>
bool are_inside(const I* index, std::int64_t n, std::int64_t bound) {
  using U = std::make_unsigned_t<I>;
  // The sign of an index, and of what is left up to the last: no comparison, of which 64 bits at a
  // time have none before x86-64-v4.
  const U last = static_cast<U>(std::min<std::int64_t>(bound - 1, std::numeric_limits<I>::max()));
  U signs = 0;
  for (std::int64_t i = 0; i < n; ++i)
    signs = static_cast<U>(signs | static_cast<U>(index[i]) | (last - static_cast<U>(index[i])));
  return static_cast<I>(signs) >= 0;
}
/// Checks dtype and bounds of all indices.
void check_indices(const ConstView& indices, std::int64_t bound);
/// Calls f with a pointer to them, i32 or i64.
template <class F>
void visit_indices(const ConstView& indices, F&& f) {
  if (indices.dtype == DType::i32) f(static_cast<const std::int32_t*>(indices.data()));
  else f(static_cast<const std::int64_t*>(indices.data()));
}

}  // namespace troupe::cpu
