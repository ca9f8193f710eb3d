// The nodes of the cluster as this one sees them: the roster, refused addresses and what was
// observed of members, behind one lock.
//
//   ClusterView::Change change =
//       view.change(now, [&](Roster& r) { r.connected(now, peer, info); });
//   log(change.news);  act(change.effects);                   // by NodeCore, without the lock
//   view.find("worker1");  view.peer_of("worker1");  view.wait_for({"worker1"}, 10s);
//
// Threads: any. The lock is a leaf: the view calls nothing that takes another, so that a service
// may look here with its own lock held.
//
// Invariants:
// 1. A session that has ended is gone from here before any service is notified of its loss. A
//    service that looks for the session under its own lock therefore sees the loss, or is notified
//    later.
// 2. After `close` no message is accepted.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/cluster/membership/observed_members.hpp>
#include <troupe/cluster/node/roster.hpp>
#include <troupe/cluster/node/waiter.hpp>

namespace troupe {

class ClusterView {
 public:
  using Time = Roster::Time;
  /// Consequences of a change of the roster: messages, sessions that end, and lines for the log.
  struct Change {
    Roster::Effects effects;
    std::vector<LogRecord> news;
  };

  /// `time_ns`: since the Unix epoch. Throws invalid_argument as `Roster` does.
  ClusterView(const Member& self, const MembershipOptions& options,
              std::function<std::int64_t()> time_ns, const Waiter& waiter)
      : name_(self.name), time_ns_(std::move(time_ns)), waiter_(waiter),
        roster_(self, options, self.incarnation) {}

  /// Calls `event(roster)` under the lock.
  template <class Event>
  Change change(Event event) {
    std::lock_guard lock(mutex_);
    event(roster_);
    return taken_change();
  }
  /// Calls `open` under the lock, which returns the address at which this node listens: no peer
  /// gets a word of it before. `join`: addresses of nodes.
  template <class Open>
  void open(const std::vector<std::string>& join, Open open_transport) {
    std::lock_guard lock(mutex_);
    join_ = join;
    has_joined_ = join.empty();
    roster_.set_address(open_transport());
    for (const std::string& address : join) roster_.ask(address);
  }
  Change close(Time now);
  /// Placement leads here no more; others learn it with the next gossip.
  void drain();
  /// Calls `read(roster, observed)` under the lock.
  template <class Read>
  auto look(Read read) const {
    std::lock_guard lock(mutex_);
    return read(std::as_const(roster_), observed_);
  }

  // ---- sessions

  /// The other end of a session; nothing if there is none.
  std::optional<NodeId> session(Peer peer) const;
  bool has_session(Peer peer) const;
  /// The incarnation of a peer whose messages are accepted; nothing if they are not.
  std::optional<std::uint64_t> accepts(Peer peer) const {
    std::lock_guard lock(mutex_);
    const NodeId* node = is_closed_ ? nullptr : roster_.session(peer);
    return node ? std::optional(node->incarnation) : std::nullopt;
  }
  /// Checks the sender of a direct record: without the lock if it is the peer of the last call, and
  /// nothing has changed since.
  bool accepts_direct(Peer peer) {
    return direct_from_.load(std::memory_order_relaxed) == peer || accepts_direct_anew(peer);
  }
  std::string name_of(Peer peer) const;
  /// The session with a node that can be worked with; 0: none.
  Peer find(const std::string& name) const;
  /// Returns the node's peer. Throws not_found, naming the nodes of `plan` that are present.
  Peer peer_of(const std::string& node, const Plan* plan = nullptr) const;

  // ---- nodes

  std::vector<std::string> names() const;
  std::vector<Member> members() const;
  std::vector<NodeLabels> nodes_with_labels() const;
  bool has_joined() const;
  Status status() const;
  std::uint64_t outdated_by() const;
  MembershipCounters counters() const;
  Time detection_bound(std::size_t nodes) const { return roster_.detection_bound(nodes); }
  /// Members whose state is another than it was, as lines for the log.
  std::vector<LogRecord> note_all();

  // ---- dialling

  void refused(const std::string& address, const Status& why);
  void forget_refusal(const std::string& address);
  /// Why an address could not be dialled; nothing if that is not known.
  std::optional<Status> refusal(const std::string& address) const;
  /// As ClusterNode::wait_for.
  void wait_for(const std::vector<std::string>& names, std::chrono::nanoseconds timeout);
  /// As ClusterNode::wait_joined. Calls `dial` for addresses that are tried again, and `warn` once
  /// if no name resolves, without the lock.
  bool wait_joined(std::chrono::nanoseconds timeout, const std::function<bool()>& gives_up,
                   const std::function<void(const std::string&)>& dial,
                   const std::function<void(const std::string&)>& warn);
  /// Waits, at most for `patience`; true if the view was closed.
  bool wait_closed(std::chrono::nanoseconds patience);

 private:
  using Refusals = std::map<std::string, Status>;  // by address

  Change taken_change();
  bool accepts_direct_anew(Peer peer);
  std::vector<LogRecord> note_states(const std::vector<std::string>& changed);
  static std::string listed(const std::vector<std::string>& addresses, const Refusals& refusals);

  const std::string name_;  // this node's
  const std::function<std::int64_t()> time_ns_;
  const Waiter& waiter_;

  std::atomic<Peer> direct_from_{0};  // accepts_direct; written under mutex_, publishes nothing
  mutable std::mutex mutex_;          // guards everything below
  std::condition_variable changed_;   // signalled when roster_, refusals_ or is_closed_ changes
  Roster roster_;
  Refusals refusals_;
  // observations of members of roster_; its clocks are estimates
  mutable ObservedMembers observed_;
  std::vector<std::string> join_;
  bool has_joined_ = false;
  bool is_closed_ = false;
};

}  // namespace troupe
