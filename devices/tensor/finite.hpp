// Finds the elements of a tensor that are not finite.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

/// How far a value is from finite. A later one is worse.
enum class Finiteness : std::uint8_t { finite, infinite, nan };

/// Returns true if all elements are finite, in complex numbers both parts; always for dtypes that
/// hold no floats. The tensor must be on the host. Reads 8 bytes at a time.
bool is_all_finite(const Tensor& t);

/// The worst element of a tensor on the host, the first if several are.
struct WorstElement {
  Finiteness what = Finiteness::finite;
  std::int64_t element = 0;
};
WorstElement worst_element(const Tensor& t);
/// The worst element of all tensors among the values. A list counts as NaN: its elements are not
/// read.
Finiteness worst_of(std::span<const Value> values);

/// `element 3 of f32[10]`, `element [1, 2] of f32[3, 4]`.
std::string element_text(const Tensor& t, std::int64_t element);

}  // namespace troupe
