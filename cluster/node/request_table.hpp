// Requests of this node to others, from the question to the reply.
//
//   const std::uint64_t id = requests.add(peer);
//   requests.ask(id, bytes, [&] { transport.send(peer, lane, message); });  // waits for room there
//   const RequestTable::Reply reply = requests.await(id);
//   requests.answered(peer, answer, now);  requests.lost(peer, why);          // by the listener
//
// A request whose reply no call awaits has a continuation, which is called once.
//
// Threads: any. The table calls continuations and `send` without its lock. It asks `has_session`
// with its lock held, so that function takes no lock under which the table is called.
//
// Invariants:
// 1. Every request is done at last: by its answer, or because the session has ended. The session
//    ends before `lost` is called, and `add` looks for it under the lock; one of the two notices.
// 2. Only the peer that was asked can answer, once.
// 3. The unanswered requests to a peer stay within the limits, in the order of `ask`. A peer
//    disconnects a node that exceeds them (PeerQuota).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <troupe/cluster/node/waiter.hpp>
#include <troupe/cluster/protocol/messages.hpp>
#include <troupe/cluster/runs/early_limits.hpp>

namespace troupe {

class RequestTable {
 public:
  using Time = std::chrono::nanoseconds;
  /// The answer, or the report of an inspection; `status` has the reason if there is none.
  struct Reply : Answer {
    std::shared_ptr<NodeReport> report = {};
    std::int64_t ended_ns = 0;  // when the report came, since the Unix epoch
  };
  using Continuation = std::function<void(Reply&&)>;

  RequestTable(const detail::EarlyLimits& limits, std::function<bool(Peer)> has_session,
               const Waiter& waiter)
      : limits_(limits), has_session_(std::move(has_session)), waiter_(waiter) {}

  /// Adds a request to a peer. `began`: when it is sent, if the reply's `ns` is to be the time that
  /// it takes; 0: the answer says it.
  std::uint64_t add(Peer to, Time began = {});
  /// Calls `then` with the reply, at once if there is no session with that peer.
  std::uint64_t add(Peer to, Time began, Continuation then);
  /// Adds a request that this node answers itself, as peer 0.
  std::uint64_t add_here();

  /// Calls `send` when the requests sent to that peer before leave room for `bytes`, which are kept
  /// there until it is done. Blocks. Throws what `send` throws; the request is forgotten then. Does
  /// nothing if the request's continuation was called, because its peer was lost.
  void ask(std::uint64_t id, std::uint64_t bytes, const std::function<void()>& send);
  /// Blocks until the request is done, and forgets it.
  Reply await(std::uint64_t id);
  /// Blocks until all of these are done, or for as long as `patience`.
  void wait(const std::vector<std::uint64_t>& ids, Time patience);
  /// Forgets a request; its reply, if it is done.
  std::optional<Reply> take(std::uint64_t id);

  /// An answer has come at this time.
  void answered(Peer from, Answer&& answer, Time now);
  void inspected(Peer from, Inspected&& answer, std::int64_t now_ns);
  /// The session with a peer has ended.
  void lost(Peer peer, const Status& why);

 private:
  struct Request {
    Peer to = 0;
    // bytes that the peer keeps until it is done; rank among requests to it, 0: not sent by `ask`
    std::uint64_t bytes = 0, turn = 0;
    Time began{};
    bool is_done = false;
    Reply reply;
    Continuation then = {};
  };

  bool has_room(const Request& mine) const;
  template <class Fill>
  void finish(Peer from, std::uint64_t id, Fill fill);

  const detail::EarlyLimits limits_;
  const std::function<bool(Peer)> has_session_;
  const Waiter& waiter_;

  std::mutex mutex_;                 // guards everything below
  std::condition_variable changed_;  // signalled when requests_ changes
  std::map<std::uint64_t, Request> requests_;
  std::uint64_t last_ = 0, last_turn_ = 0;
};

}  // namespace troupe
