#include <troupe/cluster/node/cluster_view.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/graph/suggest_name.hpp>

namespace troupe {

// ---- changes

ClusterView::Change ClusterView::taken_change() {
  Change made{roster_.take(), {}};
  has_joined_ = has_joined_ || !roster_.is_alone();
  if (made.effects.has_changed) {
    direct_from_.store(0, std::memory_order_relaxed);
    made.news = note_states(made.effects.changed);
    changed_.notify_all();
  }
  for (const std::string& warning : made.effects.warnings)
    made.news.push_back({LogRecord::Level::warning, time_ns_(), name_, {}, {}, {}, warning});
  return made;
}

// From here on no Bye is processed, and no node is suspected.
ClusterView::Change ClusterView::close(Time now) {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  direct_from_.store(0, std::memory_order_relaxed);
  changed_.notify_all();
  roster_.leave(now);
  return taken_change();
}

void ClusterView::drain() {
  std::lock_guard lock(mutex_);
  roster_.drain();
}

std::vector<LogRecord> ClusterView::note_all() {
  std::lock_guard lock(mutex_);
  return note_states({});
}

// Looks at members that have changed only: a thousand nodes join one after the other.
std::vector<LogRecord> ClusterView::note_states(const std::vector<std::string>& changed) {
  std::vector<LogRecord> news;
  const std::int64_t now = time_ns_();
  std::vector<Member> members;
  for (const std::string& name : changed)
    if (const Member* m = roster_.member(name)) members.push_back(*m);
  std::vector<Member> other = observed_.note(members, now);
  if (observed_.size() != roster_.size()) {
    const std::vector<Member> all = roster_.members();  // with this node
    const std::vector<Member> more = observed_.note(all, now);
    other.insert(other.end(), more.begin(), more.end());
    observed_.forget_but(all);
  }
  for (const Member& m : other)
    if (m.name != name_)
      news.push_back(
          {m.state == MemberState::alive || m.state == MemberState::left
               ? LogRecord::Level::info
               : LogRecord::Level::warning,
           now,
           m.name,
           {},
           {},
           {},
           fmt::format("node '{}' is {}{}", m.name,
                       m.state == MemberState::suspect ? "suspected" : troupe::name_of(m.state),
                       m.address.empty() ? "" : ", at " + m.address)});
  for (const std::string& name : changed)
    observed_.note_session(name, name == name_ || roster_.session_with(name) != 0, now);
  return news;
}

// ---- sessions

std::optional<NodeId> ClusterView::session(Peer peer) const {
  std::lock_guard lock(mutex_);
  const NodeId* node = roster_.session(peer);
  return node ? std::optional(*node) : std::nullopt;
}

bool ClusterView::has_session(Peer peer) const {
  std::lock_guard lock(mutex_);
  return roster_.session(peer) != nullptr;
}

bool ClusterView::accepts_direct_anew(Peer peer) {
  std::lock_guard lock(mutex_);
  if (!roster_.session(peer) || is_closed_) return false;
  direct_from_.store(peer, std::memory_order_relaxed);
  return true;
}

std::string ClusterView::name_of(Peer peer) const {
  std::lock_guard lock(mutex_);
  const NodeId* node = roster_.session(peer);
  return node ? node->name : "that has left";
}

Peer ClusterView::find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return roster_.find(name);
}

Peer ClusterView::peer_of(const std::string& node, const Plan* plan) const {
  std::lock_guard lock(mutex_);
  roster_.status().throw_if_error();
  if (const Peer peer = roster_.find(node)) return peer;
  std::string placed;  // the first node of the program there
  for (std::size_t id = 0; plan && id < plan->partition_of.size() && placed.empty(); ++id)
    if (node_of(plan->partitions[static_cast<std::size_t>(plan->partition_of[id])].name) == node)
      placed = plan->program.graph.describe(static_cast<std::int32_t>(id)) + ": ";
  if (plan && placed.empty())
    for (const PartitionPlan& p : plan->partitions)
      if (node_of(p.name) == node) placed = p.name + ": ";  // a mesh's device
  const Member* m = roster_.member(node);
  const std::vector<std::string> names = roster_.names();
  throw Error(
      Code::not_found,
      fmt::format(
          "{}there is no node '{}' in this cluster{}; there are {}{}", placed, node,
          m && !m->is_up()
              ? fmt::format(": it {}", m->state == MemberState::left ? "has left" : "is dead")
              : "",
          fmt::join(names, ", "), m ? "" : did_you_mean(node, {names.begin(), names.end()})));
}

// ---- nodes

std::vector<std::string> ClusterView::names() const {
  std::lock_guard lock(mutex_);
  return roster_.names();
}

std::vector<Member> ClusterView::members() const {
  std::lock_guard lock(mutex_);
  return roster_.members();
}

std::vector<NodeLabels> ClusterView::nodes_with_labels() const {
  std::lock_guard lock(mutex_);
  std::vector<NodeLabels> all;
  for (const std::string& name : roster_.names()) all.push_back({name, {}});
  for (const Member& member : roster_.members())
    for (NodeLabels& node : all)
      if (node.name == member.name) node.labels = member.labels;
  return all;
}

bool ClusterView::has_joined() const {
  std::lock_guard lock(mutex_);
  return has_joined_;
}

Status ClusterView::status() const {
  std::lock_guard lock(mutex_);
  return roster_.status();
}

std::uint64_t ClusterView::outdated_by() const {
  std::lock_guard lock(mutex_);
  return roster_.outdated_by();
}

MembershipCounters ClusterView::counters() const {
  std::lock_guard lock(mutex_);
  return roster_.counters();
}

// ---- dialling

void ClusterView::refused(const std::string& address, const Status& why) {
  std::lock_guard lock(mutex_);
  refusals_.insert_or_assign(address, why);
  changed_.notify_all();
}

void ClusterView::forget_refusal(const std::string& address) {
  std::lock_guard lock(mutex_);
  refusals_.erase(address);
}

std::optional<Status> ClusterView::refusal(const std::string& address) const {
  std::lock_guard lock(mutex_);
  const auto it = refusals_.find(address);
  return it == refusals_.end() ? std::nullopt : std::optional(it->second);
}

bool ClusterView::wait_closed(std::chrono::nanoseconds patience) {
  return waiter_.until(
      mutex_, changed_, [this] { return is_closed_; }, patience);
}

// Returns the listed addresses, each with the reason of its refusal.
std::string ClusterView::listed(const std::vector<std::string>& addresses,
                                const Refusals& refusals) {
  std::vector<std::string> all;
  for (const std::string& address : addresses)
    if (const auto why = refusals.find(address); why != refusals.end())
      all.push_back(fmt::format("{}: {}", address, why->second.message()));
  return fmt::format("{}", fmt::join(all, "; "));
}

void ClusterView::wait_for(const std::vector<std::string>& names,
                           std::chrono::nanoseconds timeout) {
  // Stops at the first that is missing: each step of a simulation of a thousand nodes asks.
  const auto is_there = [&](const std::string& n) { return n == name_ || roster_.find(n) != 0; };
  const auto are_there = [&] { return std::all_of(names.begin(), names.end(), is_there); };
  waiter_.step_until(mutex_, are_there);
  if (waiter_.is_deterministic()) return;
  // The longest that the reason for missing nodes is waited for beyond the time-out.
  constexpr auto kReasonDelay = std::chrono::seconds(1);
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return are_there() || !roster_.status().ok(); };
  if (changed_.wait_for(lock, timeout, is_over)) {
    if (!are_there()) roster_.status().throw_if_error();
    return;
  }
  // A node that was dialled just now, or the resolver of names, may be about to answer.
  changed_.wait_for(lock, kReasonDelay, [&] {
    return are_there() || !roster_.is_alone() || join_.empty() || !refusals_.empty();
  });
  std::vector<std::string> addresses;
  for (const auto& [address, why] : refusals_) addresses.push_back(address);
  const std::string why = refusals_.empty() && roster_.is_alone() && !join_.empty()
                              ? "no node has answered yet"
                              : listed(addresses, refusals_);
  std::vector<std::string> missing;
  std::copy_if(names.begin(), names.end(), std::back_inserter(missing),
               [&](const std::string& n) { return !is_there(n); });
  if (missing.empty()) return;
  const std::string in_vain =
      fmt::format("node '{}' timed out waiting for {}", name_, fmt::join(missing, ", "));
  throw Error(Code::deadline_exceeded, why.empty() ? in_vain : in_vain + "; " + why);
}

// Nodes are started in any order: an address that does not answer yet is dialled again. Its name
// may not resolve yet either, because a pod's name may come after the pod.
bool ClusterView::wait_joined(std::chrono::nanoseconds timeout,
                              const std::function<bool()>& gives_up,
                              const std::function<void(const std::string&)>& dial,
                              const std::function<void(const std::string&)>& warn) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(100);
  // not to ask a resolver ten times a second
  constexpr auto kNamePause = std::chrono::seconds(1);
  // the first answer of each is waited for in any case: the transport has one within 5 s
  constexpr auto kFirstAnswer = std::chrono::seconds(6);
  const auto deadline = Clock::now() + timeout;
  std::map<std::string, Clock::time_point> again_at;  // addresses to dial again
  Refusals last;                                      // also while it is dialled again
  bool was_told = false;
  std::unique_lock lock(mutex_);
  const std::vector<std::string> join = join_;
  const auto is_name = [&](const std::string& a) {
    return last.contains(a) && last.at(a).code() == Code::not_found;
  };
  while (roster_.is_alone() && !join.empty()) {
    roster_.status().throw_if_error();
    const auto now = Clock::now();
    std::vector<std::string> again;
    for (const std::string& address : join) {
      const auto refusal = refusals_.find(address);
      if (refusal == refusals_.end()) continue;
      last.insert_or_assign(address, refusal->second);
      const auto at =
          again_at
              .try_emplace(address, now + (is_name(address) ? std::chrono::milliseconds(kNamePause)
                                                            : kPause))
              .first;
      if (now < at->second || now >= deadline) continue;
      again_at.erase(at);
      refusals_.erase(refusal);
      again.push_back(address);
    }
    const bool has_each = std::all_of(join.begin(), join.end(),
                                      [&](const std::string& a) { return refusals_.contains(a); });
    if (now >= deadline + kFirstAnswer || (now >= deadline && has_each))
      throw Error(Code::unavailable,
                  fmt::format("no node could be joined: {}",
                              last.empty() ? "no node has answered yet" : listed(join, last)));
    std::string names;  // in vain
    if (!was_told && std::all_of(join.begin(), join.end(), is_name))
      names = listed(join, last), was_told = true;
    lock.unlock();
    if (gives_up && gives_up()) return false;
    if (!names.empty() && now < deadline) warn("no node could be joined yet: " + names);
    for (const std::string& address : again) dial(address);
    lock.lock();
    if (roster_.is_alone()) changed_.wait_for(lock, kPause);
  }
  roster_.status().throw_if_error();
  return true;
}

}  // namespace troupe
