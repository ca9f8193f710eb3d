#include <troupe/cluster/membership/membership.hpp>

#include <algorithm>
#include <bit>
#include <tuple>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

// A node is cut off if at least so many of its last own pings had no answer.
constexpr int kJudgedProbes = 4, kMissedProbes = 3;

/// Orders news of one node: the greatest is true.
auto order(const Member& m) { return std::tuple(m.incarnation, m.refutations, m.state); }

}  // namespace

const char* name_of(MemberState state) {
  switch (state) {
    case MemberState::alive: return "alive";
    case MemberState::suspect: return "suspect";
    case MemberState::dead: return "dead";
    case MemberState::left: break;
  }
  return "left";
}

MembershipOptions suspecting_after(std::chrono::nanoseconds after) {
  using namespace std::chrono_literals;
  if (after < 100ms || after > 1h)
    throw Error(Code::invalid_argument,
                fmt::format("a node is suspected for 0.1 to 3600 s before it is held for dead, not "
                            "for {} s",
                            std::chrono::duration<double>(after).count()));
  MembershipOptions o;
  o.suspicion = after;
  o.period = after / 3;
  o.timeout = o.period * 2 / 5;
  o.sync_periods = static_cast<int>(std::max<std::int64_t>(1, 5s / o.period));
  return o;
}

Membership::Membership(Member self, MembershipHost& host, const MembershipOptions& options,
                       std::uint64_t seed)
    : self_(std::move(self)), host_(host), options_(options), random_(seed) {
  if (self_.name.empty()) throw Error(Code::invalid_argument, "a node needs a name");
  if (options_.timeout <= Time::zero() || options_.timeout >= options_.period)
    throw Error(
        Code::invalid_argument,
        fmt::format("the time-out of a ping ({} ms) must be above 0 and below the period ({} ms)",
                    options_.timeout.count() / 1'000'000, options_.period.count() / 1'000'000));
  if (options_.suspicion < options_.period)
    throw Error(
        Code::invalid_argument,
        fmt::format("a suspicion ({} ms) must last for a period ({} ms) at least",
                    options_.suspicion.count() / 1'000'000, options_.period.count() / 1'000'000));
  if (options_.helpers < 0 || options_.spread_factor < 1 || options_.news_a_message < 1 ||
      options_.sync_periods < 1)
    throw Error(Code::invalid_argument,
                "of the options of membership only `helpers` may be 0, and none below");
  self_.state = MemberState::alive;
  own_.member = self_;
  spread(own_);
}

// ---- what is known

const Member* Membership::find(const std::string& name) const {
  if (name == self_.name) return &self_;
  auto it = others_.find(name);
  return it == others_.end() ? nullptr : &it->second.member;
}

std::vector<Member> Membership::members() const {
  std::vector<Member> all{self_};
  for (const auto& [name, entry] : others_) all.push_back(entry.member);
  std::sort(all.begin(), all.end(),
            [](const Member& a, const Member& b) { return a.name < b.name; });
  return all;
}

int Membership::log_of_nodes(std::size_t nodes) const {
  int log = 1;
  while ((std::size_t{1} << log) < nodes + 1) ++log;
  return log;
}

Membership::Time Membership::detection_bound(std::size_t nodes) const {
  // Two rounds, at the start of the one and the end of the next, until it is pinged; one period for
  // an answer.
  return options_.period * (2 * static_cast<std::int64_t>(nodes) + 1) + suspicion_time();
}

void Membership::learn(Time now, const Member& told) {
  if (told.name == self_.name) return learn_of_self(told);
  Member news = told;
  auto it = others_.find(news.name);
  if (it == others_.end()) {
    // no entry for news of a node that is gone, which would never be forgotten
    if (!news.is_up() || others_.size() >= options_.most_members) return;
    it = others_.emplace(news.name, Entry{}).first;
    it->second.member.state = MemberState::left;
    return become(now, it->second, news);
  }
  Entry& entry = it->second;
  const bool is_in_session = entry.member.is_up() && entry.member.incarnation == news.incarnation &&
                             host_.has_session(entry.member);
  const bool is_doubted = is_in_session && news.state == MemberState::dead;
  if (is_doubted) news.state = MemberState::suspect;
  if (order(news) <= order(entry.member)) return;
  counters_.doubted += is_doubted;
  become(now, entry, news);
  if (is_in_session && news.state == MemberState::suspect) ping(now, entry.member, false);
}

void Membership::learn_of_self(const Member& news) {
  if (has_left_) return;
  if (news.incarnation > self_.incarnation) return host_.superseded(news);
  if (news.incarnation == self_.incarnation) {
    if (news.state == MemberState::alive || news.refutations < self_.refutations) return;
    self_.refutations = news.refutations + 1;
    ++counters_.refuted;
  }
  own_.member = self_;
  spread(own_);
}

void Membership::become(Time now, Entry& entry, const Member& news) {
  const bool was_up = entry.member.is_up();
  const bool is_told = entry.member.state != news.state ||
                       entry.member.incarnation != news.incarnation || entry.member.name.empty();
  if (news.state == MemberState::suspect && is_told) ++counters_.suspicions;
  if (news.state == MemberState::dead && is_told) ++counters_.deaths;
  entry.member = news;
  entry.since = now;
  up_ += news.is_up();
  up_ -= was_up;
  std::erase(suspects_, &entry);
  if (news.state == MemberState::suspect) suspects_.push_back(&entry);
  const bool is_accused = news.state == MemberState::suspect || news.state == MemberState::dead;
  if (entry.is_withheld && news.state == MemberState::alive) missed_ = 0;  // in contact again
  if (!is_accused) entry.is_withheld = false;
  else if (is_cut_off()) entry.is_withheld = true;
  if (!entry.is_withheld) entry.asked_at = kNever;
  spread(entry);
  if (is_told) host_.changed(entry.member);
}

void Membership::spread(Entry& entry) {
  if (entry.is_withheld) {
    std::erase(spreading_, &entry);
    entry.rides = 0;
    return;
  }
  if (entry.rides == 0) spreading_.push_back(&entry);
  entry.rides = options_.spread_factor * log_of_nodes(count_up());
  entry.news = next_news_++;
}

const Member* Membership::random_member(bool is_up) {
  std::vector<const Member*> all;
  for (const auto& [name, entry] : others_)
    if (is_up ? entry.member.is_up() : entry.member.state == MemberState::dead)
      all.push_back(&entry.member);
  return all.empty() ? nullptr : all[random_() % all.size()];
}

// ---- messages

void Membership::send(const Member& to, MembershipMessage message) {
  if (message.kind != MembershipMessage::Kind::sync &&
      message.kind != MembershipMessage::Kind::sync_answer) {
    // A node that does not count as alive here gets this news, so that it can refute it.
    const Member* known = find(to.name);
    if (known && known->state != MemberState::alive) message.members.push_back(*known);
    const auto most =
        std::min(spreading_.size(), static_cast<std::size_t>(options_.news_a_message));
    std::partial_sort(spreading_.begin(), spreading_.begin() + static_cast<std::ptrdiff_t>(most),
                      spreading_.end(),
                      [](const Entry* a, const Entry* b) { return a->news > b->news; });
    for (std::size_t i = 0; i < most; ++i) {
      message.members.push_back(spreading_[i]->member);
      --spreading_[i]->rides;
    }
    std::erase_if(spreading_, [](const Entry* e) { return e->rides == 0; });
  }
  ++counters_.messages_out;
  counters_.members_out += message.members.size();
  host_.send(to, std::move(message));
}

void Membership::sync_with(const Member& to, MembershipMessage::Kind kind) {
  MembershipMessage all{.kind = kind};
  all.members = members();
  std::erase_if(all.members, [&](const Member& m) {
    const auto it = others_.find(m.name);
    return it != others_.end() && it->second.is_withheld && m.name != to.name;
  });
  send(to, std::move(all));
}

void Membership::join(Time now, const Member& contact) {
  if (contact.name == self_.name) return learn_of_self(contact);
  learn(now, contact);
  sync_with(contact, MembershipMessage::Kind::sync);
}

void Membership::greet(const Member& contact, bool wants_all) {
  if (has_left_) return;
  const Member* known = find(contact.name);
  if (wants_all || others_.empty() || (known && known->state != MemberState::alive))
    sync_with(contact, MembershipMessage::Kind::sync);
  else send(contact, {.kind = MembershipMessage::Kind::news});
}

void Membership::receive(Time now, const Member& from, const MembershipMessage& message) {
  if (has_left_) return;
  learn(now, from);  // a new life of it; of a life that is dead here it takes its own word
  for (const Member& m : message.members) learn(now, m);
  switch (message.kind) {
    case MembershipMessage::Kind::ping:
      send(from, {.kind = MembershipMessage::Kind::answer, .number = message.number});
      break;
    case MembershipMessage::Kind::ping_for_me: {
      auto target = others_.find(message.target);
      if (target == others_.end()) break;
      const std::uint64_t number = next_number_++;
      probes_[number] = {.target = message.target,
                         .began = now,
                         .ends = now + options_.period,
                         .has_helpers = true,
                         .asked_by = from.name,
                         .number_there = message.number};
      send(target->second.member, {.kind = MembershipMessage::Kind::ping, .number = number});
      break;
    }
    case MembershipMessage::Kind::answer: {
      auto it = probes_.find(message.number);
      if (it == probes_.end()) {  // too late, but its round trip is known
        if (const auto late = late_.find(message.number);
            late != late_.end() && late->second.first == from.name) {
          if (const auto known = others_.find(from.name); known != others_.end())
            known->second.round_trip = now - late->second.second;
          late_.erase(late);
        }
        break;
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
      break;
    }
    case MembershipMessage::Kind::news: break;
    case MembershipMessage::Kind::sync:
      sync_with(from, MembershipMessage::Kind::sync_answer);
      break;
    case MembershipMessage::Kind::sync_answer: break;
  }
}

Membership::Time Membership::round_trip(const std::string& name) const {
  const auto it = others_.find(name);
  return it == others_.end() ? Time() : it->second.round_trip;
}

void Membership::relabel(const std::string& labels) {
  if (has_left_ || self_.labels == labels) return;
  self_.labels = labels;
  ++self_.refutations;
  own_.member = self_;
  spread(own_);
}

void Membership::leave(Time) {
  if (std::exchange(has_left_, true)) return;
  self_.state = MemberState::left;
  own_.member = self_;
  for (const auto& [name, entry] : others_)
    if (entry.member.is_up())
      send(entry.member, {.kind = MembershipMessage::Kind::news, .members = {self_}});
}

// ---- time

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

void Membership::forget(Time now) {
  for (auto it = others_.begin(); it != others_.end();) {
    const Entry& e = it->second;
    if (e.member.is_up() || now - e.since < options_.remembered) {
      ++it;
      continue;
    }
    std::erase(spreading_, &it->second);
    it = others_.erase(it);
  }
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
