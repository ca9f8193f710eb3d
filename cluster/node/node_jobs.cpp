// What peers ask of this node: done one after the other, on the clerk, for who reads what it is
// answered.
//
//   request ──► jobs_ of its peer ──► done, answered ──► replied_ ──► the transport, until the peer has it
//                  ▲     bounded by its sender, or it is disconnected (asked_)        │
//                  └──────────────── wait, while more than the bound is there ◄───────┘
//
// So who asks and does not read has of this node's memory what its requests may keep, as much in
// answers, and one more of any size. (What the transport has not taken up yet is not seen:
// microseconds.) A node that keeps to the protocol always reads, and only waits.
#include <troupe/cluster/node/node_core.hpp>
#include <troupe/devices/base/text.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace troupe {

void NodeCore::do_for(Peer from, std::uint64_t bytes, std::function<std::optional<Answer>()> work) {
  {
    std::lock_guard lock(mutex_);
    Asked& asked = asked_[from];
    if (!asked.has_room(bytes, most_asked_))
      throw Error(Code::resource_exhausted,
                  fmt::format("more than {} of its requests wait for node '{}', or more than {} of "
                              "them; NodeOptions::early says how much may",
                              most_asked_.messages, self_.name,
                              readable_bytes(static_cast<double>(most_asked_.bytes))));
    ++asked.requests, asked.bytes += bytes;
    jobs_[from].push_back({bytes, std::move(work)});
  }
  do_later([this, from] { do_next(from); });
}

// On the clerk. What waits goes on with `resume_jobs`, all of it behind the first.
void NodeCore::do_next(Peer from) {
  const bool is_read = reads(from);
  std::unique_lock lock(mutex_);
  const auto waiting = jobs_.find(from);
  if (waiting == jobs_.end()) return;  // done before, or dropped
  if (!is_read && roster_.session(from)) {
    unread_.insert(from);
    return;
  }
  Job job = std::move(waiting->second.front());
  waiting->second.pop_front();
  if (waiting->second.empty()) jobs_.erase(waiting);
  lock.unlock();
  struct Done {
    NodeCore& core;
    Peer from;
    std::uint64_t bytes;
    ~Done() {
      std::lock_guard guard(core.mutex_);
      const auto it = core.asked_.find(from);
      it->second.bytes -= bytes;
      if (--it->second.requests == 0) core.asked_.erase(it);
    }
  };
  std::optional<Answer> answer;
  {
    const Done done{*this, from, job.bytes};
    answer = std::exchange(job.work, {})();  // what it kept goes with it
  }
  if (!answer) return;
  if (from != 0) reply(from, *answer);
  else handle(from, std::move(*answer));
}

bool NodeCore::resume_jobs() {
  std::set<Peer> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = unread_;
  }
  bool all = true;
  for (const Peer peer : waiting) {
    if (!reads(peer)) {
      all = false;
      continue;
    }
    std::size_t jobs = 0;
    {
      std::lock_guard lock(mutex_);
      unread_.erase(peer);
      if (const auto it = jobs_.find(peer); it != jobs_.end()) jobs = it->second.size();
    }
    for (; jobs > 0; --jobs) do_later([this, peer] { do_next(peer); });
  }
  return all;
}

bool NodeCore::reads(Peer peer) {
  std::uint64_t replied = 0;
  {
    std::lock_guard lock(mutex_);
    const auto it = replied_.find(peer);
    if (it == replied_.end() || it->second <= most_asked_.bytes) return true;
    replied = it->second;
  }
  // Without the lock: the transport calls with its own held. What waits of answers is no more than
  // what waits of all.
  std::uint64_t waits = 0;
  for (const PeerCounters& c : transport_->peers())
    if (c.peer == peer) waits = c.unsent_bytes + c.unacknowledged_bytes;
  std::lock_guard lock(mutex_);
  const auto it = replied_.find(peer);
  if (it == replied_.end()) return true;
  it->second -= std::min(it->second, replied - std::min(replied, waits));
  return it->second <= most_asked_.bytes;
}

void NodeCore::note_reply(Peer to, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (roster_.session(to)) replied_[to] += bytes;
}

std::deque<NodeCore::Job> NodeCore::forget_replies(Peer peer) {
  std::deque<Job> dropped;
  replied_.erase(peer);
  if (unread_.erase(peer) == 0) return dropped;
  const auto waiting = jobs_.find(peer);
  if (waiting == jobs_.end()) return dropped;
  dropped = std::move(waiting->second);
  jobs_.erase(waiting);
  const auto asked = asked_.find(peer);
  for (const Job& job : dropped) --asked->second.requests, asked->second.bytes -= job.bytes;
  if (asked->second.requests == 0) asked_.erase(asked);
  return dropped;
}

void NodeCore::retry_plans() {
  std::vector<Waiting> waiting;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    waiting = std::move(waiting_plans_);
    waiting_plans_.clear();
  }
  for (Waiting& w : waiting)
    do_later([this, w] {
      if (const std::optional<Answer> answer = make_plan(w.from, w.message)) reply(w.from, *answer);
    });
}

}  // namespace troupe
