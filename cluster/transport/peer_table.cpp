#include <troupe/cluster/transport/peer_table.hpp>

#include <algorithm>

namespace troupe::detail {

PeerEntry* PeerTable::named(const std::string& name) {
  return named(name, [](const PeerEntry& e) { return e.state != PeerEntry::State::closing; });
}

PeerEntry& PeerTable::add(std::unique_ptr<PeerEntry> entry) {
  PeerEntry& added = touched(*entry);
  by_name_.emplace(added.info.name, added.peer);
  entries_.emplace(added.peer, std::move(entry));
  return added;
}

void PeerTable::erase(PeerEntry& entry) {
  const auto [first, end] = by_name_.equal_range(entry.info.name);
  by_name_.erase(
      std::find_if(first, end, [&](const auto& named) { return named.second == entry.peer; }));
  entries_.erase(entry.peer);
}

bool PeerTable::is_over(const Timer& timer) const {
  const PeerEntry* entry = look(timer.second);
  return !entry || entry->timer != timer.first;  // gone, or another timer is queued for it
}

void PeerTable::settle() {
  for (const Peer peer : touched_) {
    const auto found = entries_.find(peer);
    if (found == entries_.end()) continue;
    PeerEntry& entry = *found->second;
    entry.is_touched = false;
    const Time due = due_of_(entry);
    if (due >= entry.timer) continue;
    entry.timer = due;
    timers_.emplace(due, peer);
  }
  touched_.clear();
  while (!timers_.empty() && is_over(timers_.top())) timers_.pop();
}

Time PeerTable::due() {
  settle();
  return timers_.empty() ? Time::max() : timers_.top().first;
}

PeerEntry* PeerTable::pop_due(Time now) {
  while (!timers_.empty() && timers_.top().first <= now) {
    const Timer timer = timers_.top();
    timers_.pop();
    if (is_over(timer)) continue;
    PeerEntry* const entry = find(timer.second);
    entry->timer = Time::max();
    return entry;
  }
  return nullptr;
}

}  // namespace troupe::detail
