// The engine's own events, as a recorded trace or a running node gives them.
//
//   for (const EngineEvent& e : events_of_trace(text)) ...     // `troupe trace -o FILE`
//   Batch batch = batch_of(events, kFinished, key);            // points at the ends of events
//
// Times are nanoseconds: of a trace since its begin, of a node since the Unix epoch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/events/query.hpp>

namespace troupe::events {

struct EngineEvent {
  Time begin = 0, length = 0;  // ns
  std::string node, track, kind, name;
};

/// Reads Chrome's trace format. Returns events in order of their ends. Throws Error (data_loss) for
/// a text that is no trace.
std::vector<EngineEvent> events_of_trace(const std::string& text);

/// The answer of a node at /api/events. It has all events that ended before a time.
struct EngineAnswer {
  std::vector<EngineEvent> events;
  Time complete_until = 0;  // ns
};
EngineAnswer events_of_answer(const std::string& text);

/// The answer of a node at /api/stream: events since a place, stamped by hybrid clocks, in order.
struct StreamAnswer {
  std::vector<EngineEvent> events;
  std::uint64_t next = 0;   ///< the place after them
  std::uint64_t lost = 0;   ///< events before them that the node has no more
  Time guarantee = kNever;  ///< no later event ends by then; kNever: none is known
};
StreamAnswer stream_of_answer(const std::string& text);

/// (node text, kind text, name text, ns integer): an event as a point at its end, and its length.
const Schema& finished_schema();
/// Adds the events to batches of at most Batch::kMost; `key` counts on.
std::vector<Batch> finished_batches(const std::vector<EngineEvent>& events, Key& key);

/// The standing queries that `troupe watch` knows; each has the source `engine` of
/// finished_schema().
struct StandingQuery {
  std::string name, help;
};
const std::vector<StandingQuery>& standing_queries();
/// `window` in ns. `alert-once` is strong, the others are at the default level. Throws Error
/// (not_found) for another name.
Query standing_query(const std::string& name, Time window);

}  // namespace troupe::events
