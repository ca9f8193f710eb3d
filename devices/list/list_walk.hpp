// What is done to all tensors that a value holds: itself, or those of a list and of the lists
// within it. Lists may be nested as deep as memory allows: what is open meanwhile is kept on the
// heap. A list that lies in several places is looked at in each. Scalars that lie in their handles
// are in no device's memory: they are no tensors here, and stay as they are.
#pragma once

#include <functional>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/list/list.hpp>

namespace troupe {

/// Each tensor, in order; what was swapped out comes back.
void each_tensor(const Value& value, const std::function<void(const Tensor&)>& f);

/// The same value with f of each of its tensors in their places, which f is given in order and
/// where they lie (`List::peek`). Lists of saved values are `swapper`'s from now on.
Value with_tensors(const Value& value, Swapper* swapper,
                   const std::function<Tensor(const Tensor&)>& f);

}  // namespace troupe
