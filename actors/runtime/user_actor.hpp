// Hosts a user's actor: a supervisor, the actor that it makes, and the firings that wait.
//
//   node ── fire ──► supervisor ── one firing at a time ──► actor (on a worker, or its own thread)
//                        ▲                                     │
//                        └────────── done │ down_msg ──────────┘
//
// An actor that throws ends; its supervisor, which monitors it, makes another for the next firing.
// Invariants: 1. at most one firing is with the actor; 2. every firing ends: with the actor's
// outputs or error, or as cancelled, or because the actor is down for good; 3. the failures in a
// row are counted by the supervisor alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include <caf/fwd.hpp>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/actor_node.hpp>

namespace troupe {

namespace detail {

/// The activity of a user's actor, for the diagnosis of hangs: the user's code cannot answer
/// inspections. The atomics publish nothing but themselves.
struct AtWork {
  const std::string name;
  std::atomic<std::int64_t> since_ns{0};    // entry into the user's code, steady clock; 0: outside
  std::atomic<std::uint64_t> run{0};        // the run of the last entry
  std::atomic<std::int64_t> longest_ns{0};  // longest stay in the user's code so far
};

}  // namespace detail

/// Returns the state that hosts `spec`'s actor in `system`. The actor is made at its first firing.
/// Without `has_threads` an actor that blocks runs like any other, because a deterministic engine
/// runs every step itself.
Ref<State> host_actor(caf::actor_system& system, const StateSpec& spec, bool has_threads,
                      std::shared_ptr<AtWork> at_work);

}  // namespace troupe
