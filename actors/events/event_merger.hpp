// Merges the engine's events of several clocks into one stream, in the order of hybrid clocks.
//
//   EventMerger merger({.patience = 2'000'000'000});
//   merger.add("a", events_of_a, complete_until, now);    // all that ended until then are given
//   auto [events, guarantee] = merger.take(now);          // stamped; none follows <= guarantee
//
//   a ──send s──────────┬───────►  stamp(s)
//   b ────────receive r─┴───────►  stamp(r) > stamp(s), however the clocks of a and b differ
//
// Threads: one at a time. Times are ns on the caller's clock, as well as it is known.
//
// Invariants
// 1. A receive is stamped after the send of its token. It waits for the send until the sender's
//    events are complete up to its time; a send that was overwritten is waited for no longer.
// 2. Stamps of a clock rise, and are beyond what was declared complete before them.
// 3. A clock that is not heard of for `patience`, or has ended, does not hold the guarantee. Its
//    later events that would break it are dropped, and counted as late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <troupe/actors/events/engine_events.hpp>
#include <troupe/actors/events/hybrid_clock.hpp>

namespace troupe::events {

/// An event and its token: `flow` is equal for its send and its receive; 0: none.
struct FlowEvent {
  EngineEvent event;
  std::uint64_t flow = 0;
};

class EventMerger {
 public:
  struct Options {
    Time patience = 2'000'000'000;  ///< ns
    std::size_t flows = 1 << 16;    ///< sends that are remembered for their receives
  };
  explicit EventMerger(Options options) : options_(options) {}

  /// Adds events in the order of their ends. `heard`: when the clock was last heard of.
  void add(const std::string& clock, std::vector<FlowEvent> events, Time complete_until,
           Time heard);
  /// The clock is gone: it holds nothing from now on, unless it is heard of again.
  void end(const std::string& clock);

  struct Part {
    std::vector<EngineEvent> events;  ///< their ends are stamps, in order
    Time guarantee = kNever;
  };
  Part take(Time now);

  /// A clock that holds the guarantee, and up to where it is complete.
  struct Clock {
    std::string name;
    Time complete_until;
    bool holds;
  };
  std::vector<Clock> clocks(Time now) const;
  std::uint64_t late() const { return late_; }
  /// The most by which a stamp is beyond its physical time, ns.
  Time most_ahead() const { return most_ahead_; }

 private:
  struct Source {
    HybridClock clock;
    std::deque<FlowEvent> waiting;
    Time complete_until = kNever, heard = kNever;
    bool has_ended = false;
  };
  bool holds(const Source& source, Time now) const {
    return !source.has_ended && now - source.heard <= options_.patience;
  }
  bool may_leave(const FlowEvent& event, Time complete) const;
  void leave(Source& source, Part& part);
  void remember(std::uint64_t flow, Time stamp);

  const Options options_;
  std::map<std::string, Source> sources_;
  std::unordered_map<std::uint64_t, Time> sent_;     // stamps by flow
  std::deque<std::uint64_t> order_;                  // flows of `sent_`, the oldest first
  std::unordered_set<std::uint64_t> sends_waiting_;  // flows of sends in `waiting`
  Time guarantee_ = kNever, most_ahead_ = 0;
  std::uint64_t late_ = 0;
};

}  // namespace troupe::events
