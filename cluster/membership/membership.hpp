// Membership and failure detector: the nodes of the cluster, and their states. SWIM (Das, Gupta and
// Motivala, DSN 2002) with suspicion and incarnations, a state machine without clock or network:
//
//   Membership m({.name = "a", .incarnation = started, .address = "tcp://..."}, host, {}, seed);
//   m.join(now, "b");              // a node that was reached and may know others
//   m.receive(now, "b", message);  // a message of a node, known or not
//   next = m.tick(now);            // to be called again at `next`, or after a message
//
// Detection. Each period a node pings one other, in a shuffled round. Without an answer within
// `timeout` it has `helpers` others ping it. Without one by the period's end it suspects it, and
// pings it each period. A suspicion not refuted within `suspicion` makes it dead. So a silent node
// is dead everywhere detection_bound(n) later, whatever gossip is lost; mostly much sooner, as the
// first to notice spreads it. Spreading. News rides on pings and answers, each piece about log n
// times, the newest first. Every `sync_periods` periods two nodes compare all they know, which
// repairs losses and rejoins halves of a cut network: remembered dead nodes are asked too. Order.
// The news of a node with the greatest (incarnation, refutations, state) is true. A restarted
// process has a greater incarnation. A node that is reported suspected or dead sends `alive` with
// one more refutation. Within one life and refutation dead beats suspect beats alive. So all nodes
// agree in the end, in any order of arrival, and a dead node returns only by its own message. A
// node that was itself delayed (stopped, swapped out) accuses no node: it extends its waits by that
// time. A node that has left accuses none either: it ends its sessions and ignores others, which
// may leave too. Reports of deaths and silence: NOTES.md of cluster/, Note [Reports of deaths].
//
// Threads: one at a time, as an actor or a simulation calls it. The host must not call back.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace troupe {

enum class MemberState : std::uint8_t { alive, suspect, dead, left };
const char* name_of(MemberState state);

namespace detail {

struct Member {
  std::string name;               // unique in the cluster
  std::uint64_t incarnation = 0;  // greater each time a process of that name starts
  std::uint32_t refutations = 0;
  MemberState state = MemberState::alive;
  std::string address;      // address at which it listens
  std::string labels = {};  // `key=value` and spaces, for placement

  bool is_up() const { return state == MemberState::alive || state == MemberState::suspect; }
};

struct MembershipMessage {
  enum class Kind : std::uint8_t { ping, ping_for_me, answer, news, sync, sync_answer };
  Kind kind = Kind::news;
  std::uint64_t number = 0;  // number of a ping and its answer
  std::string target = {};   // ping_for_me: the node to ping; its answer: the node that answered
  std::vector<Member> members = {};
};

class MembershipHost {
 public:
  /// Sends to a node by its name; the host reaches it by the member's address. A message that
  /// cannot be sent is lost.
  virtual void send(const Member& to, MembershipMessage message) = 0;
  /// News of a member has changed: it is new, or its state or its life is. Not called for this node
  /// itself.
  virtual void changed(const Member& member) = 0;
  /// A process with this node's name has started since: this one is to stop.
  virtual void superseded(const Member& by) = 0;
  /// Is a session with this life of a member open?
  virtual bool has_session(const Member& member) const = 0;

 protected:
  ~MembershipHost() = default;
};

}  // namespace detail

struct MembershipOptions {
  std::chrono::nanoseconds period = std::chrono::milliseconds(500);
  // wait for a ping's answer, before others are asked to help
  std::chrono::nanoseconds timeout = std::chrono::milliseconds(200);
  int helpers = 3;
  // a node that is suspected for so long, and was asked each period, is dead
  std::chrono::nanoseconds suspicion = std::chrono::milliseconds(1500);
  int spread_factor = 3;    // a piece of news rides on so many messages times log2(n + 1)
  int news_a_message = 16;  // at most
  int sync_periods = 10;
  // how long a dead node is asked for
  std::chrono::nanoseconds remembered = std::chrono::minutes(10);
  // others that are known, those that are dead or have left too; news of more is dropped
  std::size_t most_members = 1 << 16;
};

/// A suspicion lasts for so many periods of pings.
inline constexpr int kPeriodsOfSuspicion = 3;
/// Options by which a node that stops answering is suspected at once if its connection breaks, and
/// is dead `after` later. Throws invalid_argument for less than a tenth of a second, or more than
/// an hour.
MembershipOptions suspecting_after(std::chrono::nanoseconds after);

struct MembershipCounters {
  std::uint64_t messages_out = 0, members_out = 0;  // members: pieces of news and of syncs
  std::uint64_t suspicions = 0, refuted = 0, deaths = 0, held_up = 0;
  // deaths that others reported of a member with an open session, and that this node did not know
  std::uint64_t doubted = 0;
};

namespace detail {

class Membership {
 public:
  using Time = std::chrono::nanoseconds;  // since whenever the host likes

  /// Throws invalid_argument if the options make no sense (a timeout longer than a period).
  Membership(Member self, MembershipHost& host, const MembershipOptions& options,
             std::uint64_t seed);

  /// Sets the address at which this node listens. Call it before any message is sent.
  void set_address(const std::string& address) { self_.address = own_.member.address = address; }
  /// Asks a node that was reached for the other members.
  void join(Time now, const Member& contact);
  /// Introduces this node to a node that was reached. Asks it for all members if `wants_all`, if no
  /// other node is known here, or if it is not alive here. It is known when it has answered.
  void greet(const Member& contact, bool wants_all);
  void receive(Time now, const Member& from, const MembershipMessage& message);
  /// Does the work that is due. Returns the time of the next call.
  Time tick(Time now);
  /// The network reports that this member is gone: it is suspected at once, unless this node has
  /// left.
  void suspect(Time now, const std::string& name);
  /// Others learn the labels as they learn a refutation.
  void relabel(const std::string& labels);
  /// Sends all others that this node leaves; nothing is sent after it.
  void leave(Time now);

  const Member& self() const { return self_; }
  /// Null if it is not known.
  const Member* find(const std::string& name) const;
  /// All that are known, this node included, by name.
  std::vector<Member> members() const;
  std::size_t size() const { return others_.size() + 1; }
  std::size_t count_up() const { return up_ + 1; }  // this node included

  Time suspicion_time() const { return options_.suspicion; }
  /// The time after which a node that has stopped answering is dead for every other, in a cluster
  /// of so many.
  Time detection_bound(std::size_t nodes) const;
  const MembershipCounters& counters() const { return counters_; }
  /// Returns the round trip of the last answered ping of this member; 0: none has come back yet.
  Time round_trip(const std::string& name) const;

 private:
  static constexpr Time kNever = Time::max();
  struct Entry {
    Member member;
    Time since{};            // start of its state
    Time round_trip{};       // round trip of the last ping that was answered
    int rides = 0;           // messages that this news is still to ride on
    std::uint64_t news = 0;  // counts up: the newest first
    // suspected or dead, and sent to the accused only: this node may have been cut off
    bool is_withheld = false;
    Time asked_at = kNever;  // withheld: when it was first asked again
  };
  /// A ping that waits for its answer.
  struct Probe {
    std::string target;
    Time began{}, helped_at{}, ends{};
    bool has_helpers = false;
    bool counts = true;         // true: used to decide whether this node is cut off
    std::string asked_by = {};  // by another node, which gets the answer, under its own number
    std::uint64_t number_there = 0;
  };

  void learn(Time now, const Member& news);
  void learn_of_self(const Member& news);
  void become(Time now, Entry& entry, const Member& news);
  void spread(Entry& entry);
  void send(const Member& to, MembershipMessage message);

  // The failure detector: failure_detector.cpp.
  void start_probe(Time now);
  void ping(Time now, const Member& target, bool counts);
  void ping_for(Time now, const Member& asker, const MembershipMessage& message);
  void answered(Time now, const Member& from, std::uint64_t number);
  void note_probe(bool was_answered);
  bool is_cut_off() const;
  void withhold(Entry& entry);
  void ask_accused(Time now);
  void ask_suspects(Time now);
  void help(Probe& probe, std::uint64_t number);
  void forgive(Time late);

  void sync_with(const Member& to, MembershipMessage::Kind kind);
  void forget(Time now);
  const Member* random_member(bool is_up);
  int log_of_nodes(std::size_t nodes) const;

  Member self_;
  MembershipHost& host_;
  const MembershipOptions options_;
  std::mt19937_64 random_;
  std::map<std::string, Entry> others_;
  std::size_t up_ = 0;
  Entry own_;  // news of this node itself
  std::vector<Entry*> suspects_;
  std::vector<Entry*> spreading_;          // entries with rides left
  std::vector<std::string> round_;         // nodes still to be pinged in this round
  std::map<std::uint64_t, Probe> probes_;  // by number
  static constexpr std::size_t kMostLate = 64;
  // pings that had no answer in time, by number: to which member, and when
  std::map<std::uint64_t, std::pair<std::string, Time>> late_;
  std::uint64_t next_number_ = 1, next_news_ = 1;
  Time next_period_{}, wanted_{};  // wanted: when tick was to be called again
  bool has_started_ = false, has_left_ = false;
  int periods_ = 0;
  unsigned missed_ = 0;  // a bit for each of the last own pings, the latest lowest: no answer came
  MembershipCounters counters_;
};

}  // namespace detail

}  // namespace troupe
