// A hybrid logical clock (Kulkarni, Demirbas et al., 2014), as one integer: nanoseconds that follow
// the physical clock, and go on by one where the physical clock would contradict causality.
//
//   const Time sent = a.stamp(t1);  const Time received = b.stamp(t2, sent);   // received > sent
//
// The paper counts beside the nanoseconds; here the count is within them, because events are
// application time. A stamp is ahead of its physical time by the error of the clocks at most.
//
// Threads: one at a time.
#pragma once

#include <algorithm>

#include <troupe/actors/events/time.hpp>

namespace troupe::events {

class HybridClock {
 public:
  /// Stamps an event of this clock; `cause` is the stamp of what it depends on elsewhere.
  Time stamp(Time physical, Time cause = kNever) {
    last_ = std::max({physical, later(last_, 1), cause == kNever ? kNever : later(cause, 1)});
    return last_;
  }
  /// No later stamp is `until` or before it.
  void pass(Time until) { last_ = std::max(last_, until); }
  Time last() const { return last_; }

 private:
  Time last_ = kNever;
};

}  // namespace troupe::events
