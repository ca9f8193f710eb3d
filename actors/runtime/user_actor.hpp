// Hosting a user's actor: a supervisor, the actor it makes, and the firings that wait.
//
//   node ── fire ──► supervisor ── one firing at a time ──► actor (a worker's, or a thread of its own)
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

/// What an actor is at, for those who ask why a run does not get on: its code cannot be asked.
struct AtWork {
  const std::string name;
  // They publish nothing but themselves.
  std::atomic<std::int64_t> since_ns{0};    // in the user's code, of the steady clock; 0: it is not
  std::atomic<std::uint64_t> run{0};        // and for which run, last
  std::atomic<std::int64_t> longest_ns{0};  // that it was there, so far
};

}  // namespace detail

/// The state that hosts `spec`'s actor in `system`; the actor is made at its first firing. Without
/// `has_threads` one that blocks is fired as any other: a deterministic engine takes every step
/// itself.
Ref<State> host_actor(caf::actor_system& system, const StateSpec& spec, bool has_threads,
                      std::shared_ptr<AtWork> at_work);

}  // namespace troupe
