#include <troupe/cluster/transport/channel/direct_lines.hpp>

#include <sys/socket.h>

namespace troupe {

void DirectLines::opened(Peer peer) {
  std::lock_guard lock(mutex_);
  lines_[peer];
}

void DirectLines::over(Peer peer) {
  std::lock_guard lock(mutex_);
  lines_.erase(peer);
}

void DirectLines::add(Peer peer, SharedRings& rings, int bell) {
  std::lock_guard lock(mutex_);
  Line& line = lines_[peer];
  line.rings = &rings;
  line.bell = bell;
}

void DirectLines::remove(Peer peer, const SharedRings& rings) {
  std::lock_guard lock(mutex_);
  if (const auto found = lines_.find(peer); found != lines_.end() && found->second.rings == &rings)
    found->second.rings = nullptr;
}

bool DirectLines::send(Peer peer, std::span<const std::byte> record, bool may_wait) {
  std::lock_guard lock(mutex_);
  const auto found = lines_.find(peer);
  if (found == lines_.end() || !found->second.rings) return false;
  Line& line = found->second;
  if (!line.rings->direct_out().write(line.messages, record, may_wait)) return false;
  ++records_;
  bytes_ += record.size();
  line.bytes += record.size();
  // As of the wire frames: a socket that is full of bells needs no other, and of one that is broken
  // the router's thread hears itself.
  if (line.rings->wakes_reader()) ::send(line.bell, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

void DirectLines::count(TransportCounters& all) const {
  std::lock_guard lock(mutex_);
  all.messages_out += records_;
  all.bytes_out += bytes_;
  all.copied_bytes += bytes_;
}

void DirectLines::count(std::vector<PeerCounters>& all) const {
  std::lock_guard lock(mutex_);
  for (PeerCounters& p : all)
    if (const auto found = lines_.find(p.peer); found != lines_.end())
      p.bytes_out += found->second.bytes;
}

}  // namespace troupe
