// The sender's side of direct records (direct_ring.hpp): the peers that can be reached directly,
// and the number of messages before a direct record, which it must not overtake.
//
//   // the transport's thread:
//   senders.opened(peer);  senders.add(peer, rings, bell);  …
//   senders.remove(peer, rings);  senders.over(peer);
//   // any thread:
//   senders.in_order(peer, [&] { …the message of the data lane goes to its queue… });
//   if (!senders.send(peer, record)) …as a message…
//
// Invariants: 1. a direct record has the number of the messages that were passed before it: one
// lock orders both; 2. rings and bell are used between `add` and `remove` only, so `remove` is
// called before they are destroyed.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include <troupe/cluster/transport/channel/shared_rings.hpp>
#include <troupe/cluster/transport/transport.hpp>

namespace troupe {

class DirectSenders {
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
    if (const auto found = senders_.find(peer); found != senders_.end()) ++found->second.messages;
  }
  bool send(Peer peer, std::span<const std::byte> record, bool may_wait);
  /// Adds what went this way.
  void count(TransportCounters& all) const;
  void count(std::vector<PeerCounters>& all) const;

 private:
  struct Sender {
    SharedRings* rings = nullptr;  // null: there are none
    int bell = -1;                 // a socket
    std::uint64_t messages = 0;    // messages of data priority so far
    std::uint64_t bytes = 0;       // bytes that went directly
  };

  mutable std::mutex mutex_;  // guards everything below
  std::unordered_map<Peer, Sender> senders_;
  std::uint64_t records_ = 0, bytes_ = 0;
};

}  // namespace troupe
