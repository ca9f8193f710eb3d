// The nodes that are present: the members that `Membership` knows and the sessions that the
// transport has with them, as one.
//
//   roster.connected(now, peer, info);  roster.heard(now, peer, gossip);  due = roster.tick(now);
//   for (auto& [peer, why] : roster.take().ended) ...  // the caller acts on the effects
//
// A node is usable while a session with it is open and it does not count as dead. The two end
// apart:
//   session lost      messages were lost, so work under way with it ends; suspected, dialled again
//   connection breaks nothing is lost; suspected, and refutes that with its next message
//   dead              no answer came while its session was open: the session is ended
//   leaves            its notice comes first: nothing new begins; the last message ends its session
//   started anew      the session of its earlier life is ended
//
// Threads: one at a time. Invariants: 1. it makes no calls; 2. a session stays until `lost`.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <troupe/cluster/membership/membership.hpp>
#include <troupe/cluster/membership/round_trip_check.hpp>
#include <troupe/cluster/protocol/messages.hpp>

namespace troupe {

/// A life's number is the milliseconds of the Unix epoch at its start, above so many drawn bits.
inline constexpr int kLifeBits = 22;  // the milliseconds take 41 until 2039

class Roster final : private MembershipHost {
 public:
  using Time = Membership::Time;

  /// The actions for the caller, in this order.
  struct Effects {
    std::vector<std::pair<Peer, Gossip>> said;
    // lost sessions; work under way with those nodes ends
    std::vector<std::pair<Peer, Status>> ended;
    std::vector<std::string> dialled;  // addresses
    bool has_changed = false;          // true: nodes came or went
    // nodes whose state, or connection, may have changed
    std::vector<std::string> changed;
    std::vector<std::string> warnings;  // lines for the log
  };

  /// Throws invalid_argument for a name, labels or options that make no sense.
  Roster(Member self, const MembershipOptions& options, std::uint64_t seed);

  /// Sets the address at which this node listens, once that is known; before any node learns of it.
  void set_address(const std::string& address) { membership_.set_address(address); }
  /// Adds an address that the user wants to be connected with. It is dialled again until a node
  /// answers.
  void ask(const std::string& address) { asked_.insert(address); }
  void connected(Time now, Peer peer, const PeerInfo& info);
  /// Returns the node of the lost session; nothing if this node had ended it before.
  std::optional<NodeId> lost(Time now, Peer peer);
  void broken(Time now, Peer peer);
  /// Throws data_loss for gossip that this peer cannot send.
  void heard(Time now, Peer peer, const Gossip& told);
  Time tick(Time now);
  void leave(Time now);
  /// Labels itself so that placement leads here no more.
  void drain();
  Effects take() { return std::exchange(effects_, {}); }

  /// Null: there is none.
  const NodeId* session(Peer peer) const;
  const std::map<Peer, NodeId>& sessions() const { return sessions_; }
  /// The session with a node, whatever is thought of it, and with one that can be worked with; 0:
  /// none.
  Peer session_with(const std::string& name) const;
  Peer find(const std::string& name) const;
  /// Returns the names of the usable nodes, this node first.
  std::vector<std::string> names() const;
  bool is_alone() const { return names().size() == 1; }
  std::vector<Member> members() const { return membership_.members(); }
  const Member* member(const std::string& name) const { return membership_.find(name); }
  /// How many are known, with this node.
  std::size_t size() const { return membership_.size(); }
  Time detection_bound(std::size_t nodes) const { return membership_.detection_bound(nodes); }
  const MembershipCounters& counters() const { return membership_.counters(); }
  Time round_trip(const std::string& name) const { return membership_.round_trip(name); }
  /// Not ok: another process of this name has started since, and this one takes part in nothing any
  /// more.
  const Status& status() const { return status_; }
  /// The greatest number of an earlier life of this node that others remember and that is greater
  /// than its own, because its clock went back; 0: none.
  std::uint64_t outdated_by() const { return outdated_by_; }

 private:
  void send(const Member& to, MembershipMessage message) override;
  void note_change(const std::string& name);
  void changed(const Member& member) override;
  void superseded(const Member& by) override;
  bool has_session(const Member& member) const override;
  void end(Peer peer, Status why);
  void dial(const Member& member);
  void ask_again(Time now);

  Time now_{};
  const MembershipOptions options_;
  Membership membership_;
  RoundTripCheck round_trips_{options_.period};
  std::map<Peer, NodeId> sessions_;
  std::map<std::string, Peer> by_name_;
  // sessions with nodes that have announced their leaving: the time at which patience ends
  std::map<Peer, Time> farewells_;
  std::set<std::string> asked_;
  Time dial_at_{}, ask_at_{}, ask_names_at_{};
  Time ask_pause_{};  // between dials of asked_; grows
  Effects effects_;
  Status status_;
  std::uint64_t outdated_by_ = 0;
};

}  // namespace troupe
