// Visits all tensors that a value holds: itself, or the tensors of a list and of the lists within
// it. Lists may be nested as deep as memory allows: open lists are kept on the heap. A list that
// lies in several lists is visited in each. Scalars that lie in their handles are in no device's
// memory: they count as no tensors here, and stay as they are.
#pragma once

#include <functional>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/list/list.hpp>

namespace troupe {

/// Calls f for each tensor, in order; swapped-out tensors come back.
void each_tensor(const Value& value, const std::function<void(const Tensor&)>& f);

/// Returns the value with each tensor replaced by f of it. f receives the tensors in order and on
/// the device that holds them (`List::peek`). Lists of saved values belong to `swapper` from now
/// on.
Value with_tensors(const Value& value, Swapper* swapper,
                   const std::function<Tensor(const Tensor&)>& f);

}  // namespace troupe
