// The clock of an engine: the steady one or, for a deterministic engine, CAF's virtual one. It also
// calls back for runs whose time is up.
//
//   EngineClock clock([](std::uint64_t run) { ... });
//   const EngineClock::Due due = clock.remind(run, std::chrono::seconds(1));
//   clock.forget(due, run);  // the run has ended
//
// Threads: any. Ownership: the actor of virtual time is released before its system ends.
// Invariants: 1. callbacks come one at a time, with nothing locked, from the thread of `Deadlines`
// or, in virtual time, as a step of an actor; 2. a reminder calls back once at most.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include <caf/fwd.hpp>

#include <troupe/actors/runtime/deadlines.hpp>
#include <troupe/actors/runtime/lean_actor.hpp>

namespace troupe {

class EngineClock {
 public:
  using Due = Deadlines::Clock::time_point;
  /// Longer delays are cut to this one, because their end would be no point in time.
  static constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365 * 100);

  explicit EngineClock(std::function<void(std::uint64_t run)> expire);
  ~EngineClock();

  /// Switches to the virtual time of this system; before the first use.
  void use_virtual_time(caf::actor_system& system);
  /// Ends virtual time, before its system ends.
  void leave_system();
  std::chrono::nanoseconds now() const;
  /// Calls back with `run` after `delay`.
  Due remind(std::uint64_t run, std::chrono::nanoseconds delay);
  /// Cancels that call. In virtual time it comes all the same, and finds the run gone.
  void forget(Due due, std::uint64_t run);
  /// Waits for a call in real time that is under way; after it there are none.
  void stop() { deadlines_.stop(); }

 private:
  class Timekeeper;

  const std::function<void(std::uint64_t)> expire_;
  caf::actor_system* system_ = nullptr;  // has the virtual time; null: time is real
  LeanRef<Timekeeper> timekeeper_;
  Deadlines deadlines_;
};

}  // namespace troupe
