// Who fills the queues of a program and who empties them, which tells a wait that others may end from one that nobody will.
//
//   may_end(program, dequeue, true)   // the Enqueues and QueueCloses of its queue that do not wait for it themselves
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/ops/graph.hpp>

namespace troupe {

/// Queues as waits name them, `queue 'q'`, in order.
struct QueueUses {
  std::vector<std::string> filled, emptied;  // or closed
  friend bool operator==(const QueueUses&, const QueueUses&) = default;
};
QueueUses queue_uses(const Graph& program);
/// `queue 'q'`; empty: the state is no queue.
std::string queue_text(const StateSpec& state);

/// Nodes that may end what `node`, an operation that puts into a queue or takes out of it, waits for there: those that do the opposite, or close it.
/// `is_outermost`: it is in no loop and no function; then those that cannot happen before it has are left out. *Argument*: a node that takes a value from it, or
/// starts after it, has all its tokens only when it has; a Merge passes on what comes first, so it has to wait only if all that enters it does (what comes round a
/// loop comes after that), and what a call begins or gives back need not wait for all that the call takes, so nobody behind a call is left out.
std::vector<std::int32_t> may_end(const Graph& program, std::int32_t node, bool is_outermost);

}  // namespace troupe
