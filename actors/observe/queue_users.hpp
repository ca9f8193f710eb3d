// Who fills the queues of a program and who empties them, which tells a wait that others may end
// from one that nobody will.
//
//   QueueUsers(program).may_end(dequeue, true)   // the Enqueues and QueueCloses of its queue that do not wait for it themselves
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <troupe/ops/graph/graph.hpp>

namespace troupe::detail {

/// Queues as waits name them, `queue 'q'`, in order.
struct QueueUses {
  std::vector<std::string> filled, emptied;  // or closed
  friend bool operator==(const QueueUses&, const QueueUses&) = default;
};
QueueUses queue_uses(const Graph& program);
/// `queue 'q'`; empty: the state is no queue.
std::string queue_text(const StateSpec& state);

/// Of one program, which it has gone through once.
class QueueUsers {
 public:
  explicit QueueUsers(const Graph& program);
  /// Nodes that may end what `node`, an operation that puts into a queue or takes out of it, waits
  /// for there: those that do the opposite, or close it. `is_outermost`: it is in no loop and no
  /// function; then those that cannot happen before it has are left out. *Argument*: a node that
  /// takes a value from it, or starts after it, has all its tokens only when it has; a Merge passes
  /// on what comes first, so it has to wait only if all that enters it does (what comes round a
  /// loop comes after that), and what a call begins or gives back need not wait for all that the
  /// call takes, so nobody behind a call is left out.
  std::vector<std::int32_t> may_end(std::int32_t node, bool is_outermost);

 private:
  void drop_behind(std::int32_t node, std::vector<std::int32_t>& others);

  const Graph& program_;
  std::vector<std::vector<std::int32_t>> users_;
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> of_state_;
  // Of nodes, the last search that came to them, which saves making room for each.
  std::vector<std::uint32_t> seen_;
  std::uint32_t search_ = 0;
};

}  // namespace troupe::detail
