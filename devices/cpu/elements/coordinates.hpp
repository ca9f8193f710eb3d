// Taking and putting at coordinates; the dtype of scattered sums.
#pragma once

#include <vector>

#include <troupe/devices/cpu/element_types.hpp>
#include <troupe/devices/device/axis_indexing.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

void take_at(WorkerPool* pool, const AlongArgs& a);
void put_at(const AlongArgs& a);

/// Calls f with the elements of `out`; of f16 and bf16 with floats that begin as they are and
/// become them after: a sum of many is rounded once.
template <class T, class F>
void in_sums(const View& out, F&& f) {
  T* elements = static_cast<T*>(out.data);
  if constexpr (is_small_float<T>) {
    std::vector<float> sums(static_cast<std::size_t>(out.elements()));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = float(elements[i]);
    f(sums.data());
    for (std::size_t i = 0; i < sums.size(); ++i) elements[i] = T(sums[i]);
  } else {
    f(elements);
  }
}

}  // namespace troupe::cpu
