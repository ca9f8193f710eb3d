// The part of Membership that finds nodes which no longer answer: pings, helpers, suspicions, and
// the judgement whether this node itself was cut off or delayed.
#include <troupe/cluster/membership/membership.hpp>

#include <algorithm>
#include <bit>

#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

// A node is cut off if at least so many of its last own pings had no answer.
constexpr int kJudgedProbes = 4, kMissedProbes = 3;

}  // namespace

Membership::Time Membership::detection_bound(std::size_t nodes) const {
  // Two rounds, at the start of the one and the end of the next, until it is pinged; one period for
  // an answer.
  return options_.period * (2 * static_cast<std::int64_t>(nodes) + 1) + suspicion_time();
}

Membership::Time Membership::round_trip(const std::string& name) const {
  const auto it = others_.find(name);
  return it == others_.end() ? Time() : it->second.round_trip;
}

void Membership::ping_for(Time now, const Member& asker, const MembershipMessage& message) {
  const auto target = others_.find(message.target);
  if (target == others_.end()) return;
  const std::uint64_t number = next_number_++;
  probes_[number] = {.target = message.target,
                     .began = now,
                     .ends = now + options_.period,
                     .has_helpers = true,
                     .asked_by = asker.name,
                     .number_there = message.number};
  send(target->second.member, {.kind = MembershipMessage::Kind::ping, .number = number});
}

void Membership::answered(Time now, const Member& from, std::uint64_t number) {
  const auto it = probes_.find(number);
  if (it == probes_.end()) {  // too late, but its round trip is known
    const auto late = late_.find(number);
    if (late == late_.end() || late->second.first != from.name) return;
    if (const auto known = others_.find(from.name); known != others_.end())
      known->second.round_trip = now - late->second.second;
    late_.erase(late);
    return;
  }
  const Probe probe = std::move(it->second);
  probes_.erase(it);
  if (probe.counts && probe.asked_by.empty()) note_probe(true);
  if (const auto target = others_.find(probe.target);
      target != others_.end() && from.name == probe.target)
    target->second.round_trip = now - probe.began;
  if (const Member* asked = probe.asked_by.empty() ? nullptr : find(probe.asked_by))
    send(*asked, {.kind = MembershipMessage::Kind::answer,
                  .number = probe.number_there,
                  .target = probe.target});
}

void Membership::suspect(Time now, const std::string& name) {
  if (has_left_) return;
  auto it = others_.find(name);
  if (it == others_.end() || it->second.member.state != MemberState::alive) return;
  Member news = it->second.member;
  news.state = MemberState::suspect;
  become(now, it->second, news);
}

void Membership::start_probe(Time now) {
  if (round_.empty()) {
    for (const auto& [name, entry] : others_)
      if (entry.member.is_up()) round_.push_back(name);
    std::shuffle(round_.begin(), round_.end(), random_);
  }
  while (!round_.empty()) {
    const std::string name = std::move(round_.back());
    round_.pop_back();
    auto it = others_.find(name);
    if (it == others_.end() || !it->second.member.is_up()) continue;
    return ping(now, it->second.member, true);
  }
}

void Membership::ping(Time now, const Member& target, bool counts) {
  const std::uint64_t number = next_number_++;
  probes_[number] = {.target = target.name,
                     .began = now,
                     .helped_at = now + options_.timeout,
                     .ends = now + options_.period,
                     .counts = counts};
  send(target, {.kind = MembershipMessage::Kind::ping, .number = number});
}

void Membership::note_probe(bool was_answered) {
  missed_ = (missed_ << 1 | !was_answered) & ((1u << kJudgedProbes) - 1);
  if (is_cut_off())
    for (Entry* e : suspects_) withhold(*e);
}

bool Membership::is_cut_off() const { return std::popcount(missed_) >= kMissedProbes; }

void Membership::withhold(Entry& entry) {
  entry.is_withheld = true;
  spread(entry);
}

// Asks each member that this node accused while it was cut off. One that refutes is accused no
// more; one that does not within the time of a suspicion is reported to the others.
void Membership::ask_accused(Time now) {
  // Connections that broke with the cut take a while to come back.
  const Time allowed = 2 * suspicion_time();
  for (auto& [name, entry] : others_) {
    if (!entry.is_withheld) continue;
    if (is_cut_off()) {
      entry.asked_at = kNever;
    } else if (entry.asked_at == kNever || now - entry.asked_at < allowed) {
      if (entry.asked_at == kNever) entry.asked_at = now;
      ping(now, entry.member, false);
    } else {
      entry.is_withheld = false;
      spread(entry);
    }
  }
}

// The time of a suspicion does not grow with the nodes: a suspect need not learn of it by gossip.
void Membership::ask_suspects(Time now) {
  for (const Entry* e : suspects_)
    if (!e->is_withheld) ping(now, e->member, false);
}

void Membership::help(Probe& probe, std::uint64_t number) {
  probe.has_helpers = true;
  std::vector<const Member*> all;
  for (const auto& [name, entry] : others_)
    if (entry.member.state == MemberState::alive && name != probe.target)
      all.push_back(&entry.member);
  std::shuffle(all.begin(), all.end(), random_);
  for (std::size_t i = 0; i < std::min(static_cast<std::size_t>(options_.helpers), all.size()); ++i)
    send(*all[i],
         {.kind = MembershipMessage::Kind::ping_for_me, .number = number, .target = probe.target});
}

// Answers that were due while this node was delayed may have come meanwhile, and lie unread.
void Membership::forgive(Time late) {
  ++counters_.held_up;
  for (auto& [number, probe] : probes_) {
    probe.helped_at += late;
    probe.ends += late;
  }
  for (Entry* e : suspects_) e->since += late;
  for (auto& [name, entry] : others_)
    if (entry.asked_at != kNever) entry.asked_at += late;
  next_period_ += late;
}

Membership::Time Membership::tick(Time now) {
  if (has_left_) return Time::max();
  if (!std::exchange(has_started_, true)) {
    // Nodes that start together do not all ping at once.
    next_period_ = now + Time(static_cast<std::int64_t>(
                             random_() % static_cast<std::uint64_t>(options_.period.count())));
    wanted_ = now;
  }
  if (now - wanted_ > options_.period) forgive(now - wanted_);

  for (auto it = probes_.begin(); it != probes_.end();) {
    Probe& probe = it->second;
    if (now >= probe.ends) {
      if (probe.asked_by.empty()) {
        late_[it->first] = {probe.target, probe.began};
        if (late_.size() > kMostLate) late_.erase(late_.begin());
        suspect(now, probe.target);
        if (probe.counts) note_probe(false);
      }
      it = probes_.erase(it);
      continue;
    }
    if (!probe.has_helpers && now >= probe.helped_at) help(probe, it->first);
    ++it;
  }
  const Time allowed = suspicion_time();
  for (Entry* e : std::vector<Entry*>(suspects_)) {
    if (now - e->since < allowed) continue;
    Member news = e->member;
    news.state = MemberState::dead;
    become(now, *e, news);
  }
  if (now >= next_period_) {
    ++periods_;
    start_probe(now);
    ask_accused(now);
    ask_suspects(now);
    if (periods_ % options_.sync_periods == 0) {
      forget(now);
      for (bool is_up : {true, false})
        if (const Member* m = random_member(is_up)) sync_with(*m, MembershipMessage::Kind::sync);
    }
    next_period_ += options_.period;
  }

  wanted_ = next_period_;
  for (const auto& [number, probe] : probes_)
    wanted_ = std::min(wanted_, probe.has_helpers ? probe.ends : probe.helped_at);
  for (const Entry* e : suspects_) wanted_ = std::min(wanted_, e->since + allowed);
  return wanted_;
}

}  // namespace troupe
