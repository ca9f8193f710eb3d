// Gradients that wait in the queue of an arrival step, as values of a checkpoint, and the loop that
// goes on with them (arrival_loop).
//
//   replicas/arrivals#life    the life of the loop that the checkpoint was taken from
//   replicas/arrivals#0.0     element 0's ticket: its life and batch
//   replicas/arrivals#0.1     its replica; then its loss and gradients (saved_states.hpp)
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::detail {

/// Returns the name of the value with the life.
std::string name_of_life(const std::string& queue);

/// Leaves the gradients of the checkpoint's life in `values`, in their order, and gives them the
/// life `now`. A gradient of an earlier life is removed, because its batch was computed again.
/// Removes the value with the life. Returns how many gradients each of the replicas has; zeros if
/// there is no such value. Throws data_loss, naming the element, for one that is no gradient.
std::vector<std::int64_t> adopt_gradients(std::map<std::string, Tensor>& values,
                                          const std::string& queue, std::size_t replicas,
                                          std::int64_t now);

}  // namespace troupe::detail
