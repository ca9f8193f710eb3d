// The sessions of a router, by number, connection and name, and their time-outs.
//
//   PeerTable peers(due_of);
//   PeerEntry* entry = peers.at(connection);         // marked: its time-outs are computed again
//   while (PeerEntry* due = peers.pop_due(now)) ...  // by Router::tick
//
// Threads: the transport's.
//
// Invariants:
// 1. An entry that may change is got by `find`, `at`, `named` or `add`, which mark it as touched.
// 2. timers_ has, for each settled entry, a time no later than its next time-out. Most time-outs
//    move on with every wire frame, so the table recomputes an entry's time-out only when its time
//    has come.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/cluster/transport/peer_entry.hpp>

namespace troupe::detail {

class PeerTable {
 public:
  /// `due_of`: when the next time-out of an entry is.
  explicit PeerTable(std::function<Time(const PeerEntry&)> due_of) : due_of_(std::move(due_of)) {}

  bool is_empty() const { return entries_.empty(); }
  const std::map<Peer, std::unique_ptr<PeerEntry>>& all() const { return entries_; }

  // ---- to be changed; null: there is none

  PeerEntry* find(Peer peer) {
    const auto found = entries_.find(peer);
    return found == entries_.end() ? nullptr : &touched(*found->second);
  }
  PeerEntry* at(Connection connection) {
    const auto found = by_connection_.find(connection);
    return found == by_connection_.end() ? nullptr : find(found->second);
  }
  /// The session with a node of this name, except those that are only being drained.
  PeerEntry* named(const std::string& name);
  /// The session of this number that a node has dialled, by its name.
  template <class IsIt>
  PeerEntry* named(const std::string& name, IsIt is_it) {
    const auto [first, end] = by_name_.equal_range(name);
    for (auto it = first; it != end; ++it)
      if (PeerEntry* const entry = entries_.at(it->second).get(); is_it(*entry))
        return &touched(*entry);
    return nullptr;
  }

  // ---- to be looked at; null: there is none

  const PeerEntry* look(Peer peer) const {
    const auto found = entries_.find(peer);
    return found == entries_.end() ? nullptr : found->second.get();
  }
  const PeerEntry* look(Connection connection) const {
    const auto found = by_connection_.find(connection);
    return found == by_connection_.end() ? nullptr : look(found->second);
  }

  PeerEntry& add(std::unique_ptr<PeerEntry> entry);
  void erase(PeerEntry& entry);
  /// Makes this the connection of the entry.
  void connect(PeerEntry& entry, Connection connection) {
    entry.connection = connection;
    by_connection_[connection] = entry.peer;
  }
  void disconnect(Connection connection) { by_connection_.erase(connection); }

  // ---- time-outs

  /// Returns a time no later than the next time-out. The cost does not grow with the entries.
  Time due();
  /// The next entry whose time-out may have come; null: none is due.
  PeerEntry* pop_due(Time now);
  /// Looks at the time-outs of entries that were touched.
  void settle();

 private:
  using Timer = std::pair<Time, Peer>;

  PeerEntry& touched(PeerEntry& entry) {
    if (!std::exchange(entry.is_touched, true)) touched_.push_back(entry.peer);
    return entry;
  }
  bool is_over(const Timer& timer) const;

  const std::function<Time(const PeerEntry&)> due_of_;
  std::map<Peer, std::unique_ptr<PeerEntry>> entries_;
  std::unordered_map<Connection, Peer> by_connection_;
  // several where earlier sessions are being drained
  std::unordered_multimap<std::string, Peer> by_name_;
  std::vector<Peer> touched_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
};

}  // namespace troupe::detail
