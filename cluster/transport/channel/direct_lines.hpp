// The sender's side of direct records (direct_ring.hpp): the peers that can be reached directly,
// and the number of messages before a direct record, which it must not overtake.
//
//   // the router's thread:
//   lines.opened(peer);  lines.add(peer, rings, bell);  …
//   lines.remove(peer, rings);  lines.over(peer);
//   // any thread:
//   lines.in_order(peer, [&] { …the message of the data lane goes to its queue… });
//   if (!lines.send(peer, record)) …as a message…
//
// A line is removed before its rings and its bell go.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include <troupe/cluster/transport/channel/shared_rings.hpp>
#include <troupe/cluster/transport/transport.hpp>

namespace troupe {

class DirectLines {
 public:
  void opened(Peer peer);
  void over(Peer peer);
  void add(Peer peer, SharedRings& rings, int bell);
  void remove(Peer peer, const SharedRings& rings);

  /// A message of data priority, which `pass` puts where the order of all of them is decided.
  template <class Pass>
  void in_order(Peer peer, Pass pass) {
    std::lock_guard lock(mutex_);
    pass();
    if (const auto found = lines_.find(peer); found != lines_.end()) ++found->second.messages;
  }
  bool send(Peer peer, std::span<const std::byte> record, bool may_wait);
  /// Adds what went this way.
  void count(TransportCounters& all) const;
  void count(std::vector<PeerCounters>& all) const;

 private:
  struct Line {
    SharedRings* rings = nullptr;  // null: there are none
    int bell = -1;                 // a socket
    std::uint64_t messages = 0;    // messages of data priority so far
    std::uint64_t bytes = 0;       // bytes that went directly
  };

  mutable std::mutex mutex_;  // guards everything below
  std::unordered_map<Peer, Line> lines_;
  std::uint64_t records_ = 0, bytes_ = 0;
};

}  // namespace troupe
