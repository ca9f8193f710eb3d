// QueueUsers: finds the nodes that may end a wait at a queue. If no node may end it, it is a hang.
//
//   // the Enqueues and QueueCloses of its queue that do not wait for the dequeue themselves
//   QueueUsers(program).may_end(dequeue, true)
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <troupe/ops/graph/graph.hpp>

namespace troupe::detail {

/// Sorted texts of queues, `queue 'q'`.
struct QueueUses {
  std::vector<std::string> filled, emptied;  // both include queues that are closed
  friend bool operator==(const QueueUses&, const QueueUses&) = default;
};
QueueUses queue_uses(const Graph& program);
/// Returns `queue 'q'`; empty: the state is no queue.
std::string queue_text(const StateSpec& state);

/// The queue users of one program. The constructor visits every node once.
class QueueUsers {
 public:
  explicit QueueUsers(const Graph& program);
  /// Returns the nodes that may end the wait of `node`, an operation that puts into a queue or
  /// takes out of it: operations that do the opposite, or close the queue. `is_outermost`: `node`
  /// is in no loop and no function. Then nodes that cannot fire before `node` has fired are left
  /// out. *Argument*: a node that uses a value of `node`, or starts after it, fires after it. A
  /// Merge passes on the first token, so it has to wait only if all inputs that enter it wait (an
  /// input that comes round a loop comes after these). A call's body and results need not wait for
  /// all arguments of the call, so no node behind a call is left out.
  std::vector<std::int32_t> may_end(std::int32_t node, bool is_outermost);

 private:
  void drop_behind(std::int32_t node, std::vector<std::int32_t>& others);

  const Graph& program_;
  std::vector<std::vector<std::int32_t>> users_;
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> of_state_;
  // by node: the last search that visited it; so a search allocates nothing
  std::vector<std::uint32_t> seen_;
  std::uint32_t search_ = 0;
};

}  // namespace troupe::detail
