// PartitionClock: the clock for loop times and the ends of traces. It counts processor ticks; in a
// stepped engine, nanoseconds of virtual time.
#pragma once

#include <chrono>
#include <cstdint>

#include <caf/actor_clock.hpp>

#include <troupe/actors/runtime/clock.hpp>

namespace troupe {

class PartitionClock {
 public:
  /// `virtual_time`: of an engine that is stepped; null: none.
  explicit PartitionClock(const caf::actor_clock* virtual_time) : virtual_time_(virtual_time) {}

  /// Returns true if a test steps the scheduler: measured times must then change no decision.
  bool is_stepped() const { return virtual_time_ != nullptr; }
  /// Returns this clock's time. `ticks`: the processor's ticks now.
  std::uint64_t at(std::uint64_t ticks) const {
    return virtual_time_
               ? static_cast<std::uint64_t>(
                     std::chrono::nanoseconds(virtual_time_->now().time_since_epoch()).count())
               : ticks;
  }
  /// Both convert a length of this clock; `clock` has the length of a tick.
  std::int64_t nanoseconds(std::uint64_t length, const TickClock& clock) const {
    return virtual_time_ ? static_cast<std::int64_t>(length) : clock.nanoseconds(length);
  }
  std::uint64_t length_of(std::int64_t nanoseconds, const TickClock& clock) const {
    return virtual_time_ ? static_cast<std::uint64_t>(nanoseconds) : clock.ticks_of(nanoseconds);
  }

 private:
  const caf::actor_clock* virtual_time_;
};

}  // namespace troupe
