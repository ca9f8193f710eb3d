// Eager work of this node on other nodes: sends steps, and keeps what comes of them.
//
//   EagerCalls::Asked by{"MatMul", site, stream};
//   calls.add(peer, step, by);                        // sent with others; no answer is awaited
//   EagerResult r = calls.ask(peer, read, by);        // blocks; throws the error of an op
//   calls.handle(peer, results);  calls.lost(peer, why);   // by the listener
//
// Steps for one node share one batch, whatever their stream, so that a value is released behind its
// last use. A batch is sent when nothing is on its way to that node, when it is long, or when
// something waits for it: a chain of ops waits for no round trip, and a release has no message of
// its own.
// Threads: any. Invariants: 1. a value is known here exactly while the other node has it: from the
// step that makes it until the step that releases it, or until the session is lost; 2. steps that
// are not done stay within the limits that the other node keeps (EagerService); 3. nothing is
// awaited with the lock held; `handle`, `lost` and `release` never block.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/cluster/node/node_parts.hpp>
#include <troupe/cluster/node/request_use.hpp>
#include <troupe/cluster/protocol/messages.hpp>

namespace troupe {

class EagerCalls {
 public:
  using Id = std::uint64_t;
  /// The work that a step belongs to, for errors.
  struct Asked {
    std::string what;  // the op, or the function with its line
    Site site = {};    // the op's
    Id stream = 0;
    bool acts = false;  // its failure is thrown by the next `ask` of the stream
  };

  explicit EagerCalls(const NodeParts& node) : node_(node) {}

  /// A number for a value, program, stream or step.
  Id fresh() { return last_.fetch_add(1, std::memory_order_relaxed) + 1; }
  /// Returns the session with a node that is here. Throws not_found.
  Peer session_with(const std::string& node);
  /// Sends a program. Throws resource_exhausted if the node has too many of this one. Blocks while
  /// too much is on its way.
  void send_program(Peer to, Id program, const Placed& placed);
  /// Throws unavailable if the session is over, and resource_exhausted if the node has too many
  /// values or streams of this one. Blocks while too much is on its way.
  void add(Peer to, EagerStep step, const Asked& by);
  /// Blocks until the result is there; `add` and then that. Throws the status of the call at fault.
  EagerResult ask(Peer to, EagerStep step, const Asked& by);
  /// Returns the session that has the value. Throws unavailable, with the op that yielded it, if
  /// the session is over.
  Peer holder_of(Id value);
  /// The value, of so many bytes, is used no more. Does nothing if it was never made.
  void release(Id value, std::uint64_t bytes) noexcept;
  /// The program, or the stream, is used no more.
  void finish(Peer to, EagerStep::Kind kind, Id of) noexcept;

  void handle(Peer from, EagerResults&& m);
  void lost(Peer peer, const std::string& node, const Status& why);
  /// Values of this node that others have.
  std::size_t values() const;

 private:
  struct Batch {
    std::uint64_t bytes = 0;
    std::vector<Id> numbers;  // its calls and reads
  };
  struct Link {
    std::string node;
    std::vector<EagerStep> pending;
    std::uint64_t pending_bytes = 0;  // at most so many
    std::map<Id, Batch> flying;
    RequestUse use;
    std::map<Id, Asked> asked;  // calls and reads that are not done, by number
    std::set<Id> awaited;
    std::map<Id, EagerResult> results;  // awaited ones that have come
    std::size_t values = 0, programs = 0;
    std::set<Id> streams;        // open ones with steps there
    std::uint64_t released = 0;  // bytes of values whose release is pending
  };
  struct Held {
    Peer session = 0;
    std::string what;
    Site site;
  };
  using Lock = std::unique_lock<std::mutex>;

  Link* find(Peer to);
  void append(Link& link, EagerStep&& step, const Asked& by);
  bool has_room(const Link& link, std::uint64_t bytes) const;
  void send_pending(Peer to, Link& link);
  void flush(Lock& lock, Peer to);
  void wait_for_room(Lock& lock, Peer to, std::uint64_t bytes);
  void take(Link& link, EagerResult&& result);
  [[noreturn]] void refuse_lost(const std::string& what, const Site& site, Peer session) const;
  void throw_failure(const EagerResult& result, Id stream);

  const NodeParts node_;
  std::atomic<Id> last_{0};  // publishes nothing but itself

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::map<Peer, Link> links_;
  std::unordered_map<Id, Held> values_;
  std::map<Id, Status> failures_;     // by call; the latest
  std::map<Id, Status> failed_;       // by stream: of a call that acts
  std::map<Peer, std::string> over_;  // why sessions are over; the latest
};

}  // namespace troupe
