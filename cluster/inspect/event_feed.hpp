// EventFeed: the engine's own events of all nodes, or of one, as a source of queries.
//
//   EventFeed feed(node, {});
//   Subscription mine = feed.subscribe();
//   for (Batch& batch : feed.take(mine)) run.feed("engine", std::move(batch));
//
// Events: turns, kernels, sends, receives, waits and failures of flight recorders (firings too, if
// asked for), `membership` (named by the state) and `heartbeat` (an answer of a node) as this node
// sees them, `record` (a training record). Each is a point at its stamp (event_merger.hpp).
//
//   node ◄─ asks each period ─┐
//   node ◄────────────────────┼─ EventMerger ─► ring of `room` events ─► subscribers, at their pace
//   node ◄────────────────────┘
//
// A question gives a node credit for one answer, so nodes send nothing unasked. No node is asked
// after no subscriber has taken events for `idle`. A subscriber that is slower than the ring loses
// the oldest events, which are counted. A node that is not heard of for `patience` holds the
// guarantee no longer; one that is dead or has left holds it not at all.
//
// Threads: any. The node outlives the feed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/events/event_merger.hpp>
#include <troupe/cluster/node/node.hpp>

namespace troupe {

struct FeedOptions {
  std::string node = {};  ///< empty: of all nodes
  /// Time between two questions; 0: `poll` asks, and there is no thread.
  std::chrono::nanoseconds period = std::chrono::milliseconds(200);
  std::chrono::nanoseconds patience = std::chrono::seconds(2);  ///< with silent nodes and tracks
  std::chrono::nanoseconds answer = std::chrono::milliseconds(400);  ///< for an answer
  std::chrono::nanoseconds idle = std::chrono::seconds(10);
  std::size_t room = 1 << 16;  ///< events that the ring has
  bool firings = false;        ///< also each firing: recorders trace for as long as it lasts
};

/// A subscriber's place, and what it has lost so far.
struct Subscription {
  std::uint64_t next = 0;
  std::uint64_t lost = 0;
  events::Key key = 0;
};

class EventFeed {
 public:
  EventFeed(const ClusterNode& node, FeedOptions options);
  ~EventFeed();
  EventFeed(const EventFeed&) = delete;
  EventFeed& operator=(const EventFeed&) = delete;

  /// Begins with the events that the ring has; at first these are those of the recorders.
  Subscription subscribe() const;
  /// Returns the events since the last call as batches of events::finished_schema(), the last of
  /// them with the guarantee.
  std::vector<events::Batch> take(Subscription& who);

  /// For subscribers that keep their place themselves.
  struct Part {
    std::vector<events::EngineEvent> events;
    std::uint64_t next = 0;  ///< for the next call
    std::uint64_t lost = 0;  ///< events between `after` and the first of these
    events::Time guarantee = events::kNever;
  };
  Part after(std::uint64_t next, std::size_t most);

  struct Counts {
    std::vector<events::EventMerger::Clock> clocks;
    std::uint64_t late = 0;  ///< events of a node that was waited for no longer
    std::uint64_t gaps = 0;  ///< times that a recorder had overwritten events before the answer
    events::Time most_ahead = 0;  ///< ns, of a stamp before its physical time
    std::uint64_t asked = 0;      ///< questions
  };
  Counts counts() const;
  /// Asks all nodes once. Not from within an actor.
  void poll();

 private:
  class Asker;
  std::unique_ptr<Asker> asker_;
};

}  // namespace troupe
