#include <troupe/cluster/transport/channel/direct_senders.hpp>

#include <sys/socket.h>

namespace troupe {

void DirectSenders::opened(Peer peer) {
  std::lock_guard lock(mutex_);
  senders_[peer];
}

void DirectSenders::over(Peer peer) {
  std::lock_guard lock(mutex_);
  senders_.erase(peer);
}

void DirectSenders::add(Peer peer, SharedRings& rings, int bell) {
  std::lock_guard lock(mutex_);
  Sender& sender = senders_[peer];
  sender.rings = &rings;
  sender.bell = bell;
}

void DirectSenders::remove(Peer peer, const SharedRings& rings) {
  std::lock_guard lock(mutex_);
  if (const auto found = senders_.find(peer);
      found != senders_.end() && found->second.rings == &rings)
    found->second.rings = nullptr;
}

bool DirectSenders::send(Peer peer, std::span<const std::byte> record, bool may_wait) {
  std::lock_guard lock(mutex_);
  const auto found = senders_.find(peer);
  if (found == senders_.end() || !found->second.rings) return false;
  Sender& sender = found->second;
  if (!sender.rings->direct_out().write(sender.messages, record, may_wait)) return false;
  ++records_;
  bytes_ += record.size();
  sender.bytes += record.size();
  // A socket that is full of bells needs no other. The transport's thread finds a broken one
  // itself.
  if (sender.rings->wakes_reader()) ::send(sender.bell, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

void DirectSenders::count(TransportCounters& all) const {
  std::lock_guard lock(mutex_);
  all.messages_out += records_;
  all.bytes_out += bytes_;
  all.copied_bytes += bytes_;
}

void DirectSenders::count(std::vector<PeerCounters>& all) const {
  std::lock_guard lock(mutex_);
  for (PeerCounters& p : all)
    if (const auto found = senders_.find(p.peer); found != senders_.end())
      p.bytes_out += found->second.bytes;
}

}  // namespace troupe
