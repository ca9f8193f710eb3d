// Computes here for the eager scopes of other nodes, and keeps their values.
//
//   scope elsewhere                               this node
//     │ EagerProgram(program) ─────────────────────►│ request worker: make
//     │ EagerSteps(put, call, release, read …) ────►│ names are resolved at once, in order;
//     │                                             │ steps run in the order of their stream,
//     │ ◄────────────── EagerResults(value, batch) ─│ each when its inputs are there
//
// A call is a run of its program on this node. If it fails, so do its results, and whatever is
// computed from them: `cause` names the call that failed first.
// Threads: any. A stream goes on where its last run has ended. Ownership: values, programs and
// streams belong to the session with their node, and end with it.
//
// Invariants:
// 1. A node names only what it has put or made in this session: all else ends the session.
// 2. A step keeps what it uses: what is released while the step waits stays until it has run.
// 3. A node has a bounded share here (EagerLimits, EarlyLimits), and is disconnected if it takes
//    more. Answers that are not read hold up its reads (PeerQuota).
// 4. A session's lock is a leaf, but for PeerQuota and the inbox of the request worker: nothing is
//    posted there once the session is over, and all are before the worker ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <troupe/cluster/node/node_parts.hpp>
#include <troupe/cluster/node/state_service.hpp>

namespace troupe {

class EagerService {
 public:
  EagerService(const NodeParts& node, StateService& states) : node_(node), states_(states) {}
  ~EagerService();

  /// `owner`: the incarnation of `from`; `bytes`: of the message. Both throw for anything that a
  /// peer may not send.
  void make(Peer from, std::uint64_t owner, EagerProgram&& m, std::uint64_t bytes);
  void handle(Peer from, std::uint64_t owner, EagerSteps&& m, std::uint64_t bytes);
  /// Drops all of a session, and ends its runs.
  void lost(Peer peer);
  /// Refuses new programs from now on. Programs that are here may still be called.
  void drain() { is_draining_.store(true, std::memory_order_relaxed); }
  /// Ends all sessions.
  void close();
  /// Values that are kept for others.
  std::size_t values();

 private:
  struct Program;
  struct Slot;
  struct Work;
  struct Stream;
  struct Copies;
  class Session;
  using SessionRef = std::shared_ptr<Session>;
  using WorkRef = std::shared_ptr<Work>;

  SessionRef session_of(Peer from, std::uint64_t owner);
  void make_program(const SessionRef& session, const std::shared_ptr<Program>& program,
                    EagerProgram& m);
  void post(const SessionRef& session, std::function<void()> job);
  void later(const SessionRef& session, std::uint64_t stream);
  void advance(const SessionRef& session, std::uint64_t stream);
  bool rearrange(const SessionRef& session, Work& work);
  void call(const SessionRef& session, const WorkRef& work);
  void bring(const SessionRef& session, const WorkRef& work, std::vector<Tensor>&& results);
  void brought(const SessionRef& session, const WorkRef& work, Copies& copies);
  void called(const SessionRef& session, const WorkRef& work, const Status& status,
              std::vector<Tensor>&& results);
  void answer(const SessionRef& session, const WorkRef& work, bool is_read);
  void done(const SessionRef& session, const Work& work, std::vector<EagerResult> results);
  void send_results(const SessionRef& session, std::uint64_t batch,
                    std::vector<EagerResult> results);

  const NodeParts node_;
  StateService& states_;
  std::atomic<bool> is_draining_{false};  // publishes nothing but itself
  std::mutex mutex_;                      // guards everything below
  bool is_closed_ = false;
  std::map<Peer, SessionRef> sessions_;
};

}  // namespace troupe
