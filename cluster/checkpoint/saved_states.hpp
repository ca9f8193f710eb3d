// States of a store as named tensors, and back: variables, queues, and actors that can be saved.
//
//   save_states(store, {"w", "lines", "reader"}, [](Status status, NamedTensors values) { ... });
//   load_states(store, values, [](Status status) { ... });
//
//   w                          the variable
//   lines#  lines#0.0 ...      a queue: element 0, component 0
//   lines#0.1/  lines#0.1/0    a component that is a list: what it is, and its first element
//   lines#draws  lines#closed  draws of a shuffling queue so far; there if it is closed
//   reader# reader#next        an actor: its SavedValues
//
// No run that uses the states is in flight. Elements that wait to be enqueued are saved behind
// those that are in the queue, and stay behind them. A shuffling queue goes on with the same
// choices.
//
// Threads: any. `done` is called once, on the calling thread or that of an actor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/safetensors.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

/// Follows a state's name in the names of its values, but not a variable's.
inline constexpr char kOfState = '#';

/// Fails with not_found for a name that is no state, and failed_precondition, naming the state, for
/// an actor that is no SavedActor.
void save_states(const std::shared_ptr<StateStore>& states, const std::vector<std::string>& names,
                 std::function<void(Status status, NamedTensors values)> done);
/// Fails as `save_states`, and with invalid_argument for values that do not fit. Queues and actors
/// have each a value of their name and `#` alone.
void load_states(const std::shared_ptr<StateStore>& states, const NamedTensors& values,
                 std::function<void(Status status)> done);

}  // namespace troupe
