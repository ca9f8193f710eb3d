#include <troupe/cluster/node/peer_quota.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/text.hpp>

namespace troupe {

void PeerQuota::submit(Peer from, std::uint64_t bytes, Job job) {
  {
    std::lock_guard lock(mutex_);
    RequestUse& in_use = in_use_[from];
    if (!in_use.has_room(bytes, limits_))
      throw Error(
          Code::resource_exhausted,
          fmt::format("more than {} of its requests wait for node '{}', or more than {}; "
                      "NodeOptions::early sets the limits",
                      limits_.messages, node_, readable_bytes(static_cast<double>(limits_.bytes))));
    in_use.add(bytes);
    jobs_[from].push_back({bytes, std::move(job)});
  }
  hooks_.run_later([this, from] { run_next(from); });
}

// On the request worker. `resume` continues a peer that is paused here, with all of its jobs.
void PeerQuota::run_next(Peer from) {
  const bool is_read = is_draining(from);
  std::unique_lock lock(mutex_);
  const auto waiting = jobs_.find(from);
  if (waiting == jobs_.end()) return;  // done before, or dropped
  if (!is_read && hooks_.has_session(from)) {
    paused_.insert(from);
    return;
  }
  Waiting next = std::move(waiting->second.front());
  waiting->second.pop_front();
  if (waiting->second.empty()) jobs_.erase(waiting);
  lock.unlock();
  struct Release {
    PeerQuota& quota;
    Peer from;
    std::uint64_t bytes;
    ~Release() { quota.release(from, bytes); }
  };
  std::optional<Answer> answer;
  {
    const Release release_after{*this, from, next.bytes};
    answer = std::exchange(next.work, {})();  // destroys the job's captures with it
  }
  if (!answer) return;
  if (from != 0) reply(from, *answer);
  else hooks_.answer_here(std::move(*answer));
}

void PeerQuota::release(Peer from, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto it = in_use_.find(from);
  it->second.remove(bytes);
  if (it->second.requests == 0) in_use_.erase(it);
}

bool PeerQuota::resume() {
  std::set<Peer> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = paused_;
  }
  bool all = true;
  for (const Peer peer : waiting) {
    if (!is_draining(peer)) {
      all = false;
      continue;
    }
    std::size_t jobs = 0;
    {
      std::lock_guard lock(mutex_);
      paused_.erase(peer);
      if (const auto it = jobs_.find(peer); it != jobs_.end()) jobs = it->second.size();
    }
    for (; jobs > 0; --jobs) hooks_.run_later([this, peer] { run_next(peer); });
  }
  return all;
}

bool PeerQuota::is_draining(Peer peer) {
  std::uint64_t replied = 0;
  {
    std::lock_guard lock(mutex_);
    const auto it = replied_.find(peer);
    if (it == replied_.end() || it->second <= limits_.bytes) return true;
    replied = it->second;
  }
  // Without the lock, because the transport calls the listener with its own held. Unread answers
  // are no more than all that is unread.
  const std::uint64_t unread = hooks_.unread_bytes(peer);
  std::lock_guard lock(mutex_);
  const auto it = replied_.find(peer);
  if (it == replied_.end()) return true;
  it->second -= std::min(it->second, replied - std::min(replied, unread));
  return it->second <= limits_.bytes;
}

void PeerQuota::note_reply(Peer to, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (hooks_.has_session(to)) replied_[to] += bytes;
}

void PeerQuota::lost(Peer peer) {
  std::deque<Waiting> dropped;  // outside the lock
  std::lock_guard lock(mutex_);
  replied_.erase(peer);
  if (paused_.erase(peer) == 0) return;
  const auto waiting = jobs_.find(peer);
  if (waiting == jobs_.end()) return;
  dropped = std::move(waiting->second);
  jobs_.erase(waiting);
  const auto in_use = in_use_.find(peer);
  for (const Waiting& job : dropped) in_use->second.remove(job.bytes);
  if (in_use->second.requests == 0) in_use_.erase(in_use);
}

}  // namespace troupe
