#include <troupe/cluster/membership/membership.hpp>

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

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
                fmt::format("the suspicion must last 0.1 to 3600 s, not {} s",
                            std::chrono::duration<double>(after).count()));
  MembershipOptions o;
  o.suspicion = after;
  o.period = after / kPeriodsOfSuspicion;
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
  const auto require = [](const char* option, std::int64_t value, std::int64_t least) {
    if (value < least)
      throw Error(Code::invalid_argument,
                  fmt::format("the membership option {} is {}; it must be {} or more", option,
                              value, least));
  };
  require("helpers", options_.helpers, 0);
  require("spread_factor", options_.spread_factor, 1);
  require("news_a_message", options_.news_a_message, 1);
  require("sync_periods", options_.sync_periods, 1);
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
    case MembershipMessage::Kind::ping_for_me: ping_for(now, from, message); break;
    case MembershipMessage::Kind::answer: answered(now, from, message.number); break;
    case MembershipMessage::Kind::news: break;
    case MembershipMessage::Kind::sync:
      sync_with(from, MembershipMessage::Kind::sync_answer);
      break;
    case MembershipMessage::Kind::sync_answer: break;
  }
}

void Membership::relabel(const std::string& labels) {
  if (has_left_ || self_.labels == labels) return;
  self_.labels = labels;
  ++self_.refutations;
  own_.member = self_;
  spread(own_);
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

void Membership::leave(Time) {
  if (std::exchange(has_left_, true)) return;
  self_.state = MemberState::left;
  own_.member = self_;
  for (const auto& [name, entry] : others_)
    if (entry.member.is_up())
      send(entry.member, {.kind = MembershipMessage::Kind::news, .members = {self_}});
}

}  // namespace troupe
