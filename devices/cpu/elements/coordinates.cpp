#include <troupe/devices/cpu/elements/coordinates.hpp>

#include <algorithm>
#include <complex>
#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/elements/move.hpp>

namespace troupe::cpu {
namespace {

template <class T>
constexpr bool has_no_order =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

/// All coordinates lie inside, or out_of_range.
void check_coordinates(const AlongArgs& a) {
  check_index_type(a.indices);
  for (std::int64_t i = 0; i < a.outer * a.n * a.depth; ++i)
    check_index(index_at(a.indices, i), i, a.extents[static_cast<std::size_t>(i % a.depth)]);
}

/// The row of [outer * extent, inner] that coordinates number `at` name.
std::int64_t row_of(const AlongArgs& a, std::int64_t at) {
  std::int64_t row = at / a.n;
  for (int k = 0; k < a.depth; ++k)
    row = row * a.extents[static_cast<std::size_t>(k)] + index_at(a.indices, at * a.depth + k);
  return row;
}

template <class T, class U>
void put_one(T& to, U from, Put how) {
  if constexpr (std::is_same_v<T, bool>) {
    to = how == Put::update ? from : how == Put::min || how == Put::mul ? to && from : to || from;
  } else if constexpr (std::is_integral_v<T>) {
    using Bits = std::uint64_t;  // integers wrap
    switch (how) {
      case Put::update: to = from; break;
      case Put::add: to = static_cast<T>(static_cast<Bits>(to) + static_cast<Bits>(from)); break;
      case Put::sub: to = static_cast<T>(static_cast<Bits>(to) - static_cast<Bits>(from)); break;
      case Put::mul: to = static_cast<T>(static_cast<Bits>(to) * static_cast<Bits>(from)); break;
      case Put::min: to = std::min<T>(to, from); break;
      case Put::max: to = std::max<T>(to, from); break;
    }
  } else if constexpr (has_no_order<T>) {
    to = how == Put::update ? from
         : how == Put::add  ? to + from
         : how == Put::sub  ? to - from
                            : to * from;
  } else {
    switch (how) {
      case Put::update: to = from; break;
      case Put::add: to += from; break;
      case Put::sub: to -= from; break;
      case Put::mul: to *= from; break;
      case Put::min: to = to != to || from >= to ? to : from; break;  // NaN wins
      case Put::max: to = to != to || from <= to ? to : from; break;
    }
  }
}

}  // namespace

void take_at(WorkerPool* pool, const AlongArgs& a) {
  check_coordinates(a);
  const std::size_t row = static_cast<std::size_t>(a.inner) * size_of(a.out.dtype);
  if (row == 0) return;
  const auto* from = static_cast<const unsigned char*>(a.x.data());
  auto* to = static_cast<unsigned char*>(a.out.data);
  const std::int64_t rows = a.outer * a.n, group = std::max<std::int64_t>(1, kBlock / a.inner);
  for_blocks(rows * a.inner <= kSmallWork ? nullptr : pool, (rows + group - 1) / group, [&](int b) {
    for (std::int64_t i = b * group; i < std::min(rows, (b + 1) * group); ++i)
      std::memcpy(to + static_cast<std::size_t>(i) * row,
                  from + static_cast<std::size_t>(row_of(a, i)) * row, row);
  });
}

void put_at(const AlongArgs& a) {
  check_coordinates(a);
  visit_dtype(a.out.dtype, [&]<class T>(type_tag<T>) {
    if constexpr (has_no_order<T>)
      if (a.how == Put::min || a.how == Put::max)
        throw Error(Code::unimplemented, fmt::format("{} has no order", name_of(a.out.dtype)));
    const T* x = static_cast<const T*>(a.x.data());
    in_sums<T>(a.out, [&]<class Sum>(Sum* sums) {
      for (std::int64_t i = 0; i < a.outer * a.n; ++i) {
        Sum* to = sums + row_of(a, i) * a.inner;
        for (std::int64_t j = 0; j < a.inner; ++j)
          put_one(to[j], static_cast<Sum>(x[i * a.inner + j]), a.how);
      }
    });
  });
}

}  // namespace troupe::cpu
