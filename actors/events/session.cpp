#include <troupe/actors/events/session.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {

Session::Session(std::string name, const Schema& schema, Time gap,
                 const std::vector<std::string>& group_by, KeySource keys)
    : Operator(std::move(name), schema, 1), gap_(gap), group_columns_(columns_of(schema, group_by)),
      keys_(keys) {
  if (gap < 1)
    throw Error(Code::invalid_argument,
                fmt::format("{} has a gap of {}; give 1 or more", this->name(), gap));
}

void Session::process(std::size_t, Batch batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const bool is_removal = !batch.is_insert(i) && batch.end[i] == batch.begin[i];
    if (!batch.is_insert(i) && !is_removal) continue;
    read_columns(batch, group_columns_, i, key_);
    auto& group = *groups_.try_emplace(key_).first;
    dirty_.insert(&group);
    if (is_removal) remove(group, batch.begin[i], batch.key[i]);
    else insert(group, {batch.begin[i], batch.key[i], batch.row(i)});
  }
  for (auto* group : dirty_) {
    send_changes(group->second);
    if (group->second.empty()) groups_.erase(groups_.find(group->first));
  }
  dirty_.clear();
  count_state(events_);
}

void Session::add_span(Groups::value_type& group, std::vector<Entry> entries) {
  const Time begin = entries.front().begin, end = later(entries.back().begin, gap_);
  begins_.insert(begin);
  ends_.emplace(end, begin, &group);
  events_ += entries.size();
  group.second.emplace(begin, Span{end, std::move(entries)});
}

std::vector<Session::Entry> Session::take_span(Groups::value_type& group, Spans::iterator it) {
  begins_.erase(begins_.find(it->first));
  ends_.erase({it->second.end, it->first, &group});
  std::vector<Entry> entries = std::move(it->second.entries);
  events_ -= entries.size();
  group.second.erase(it);
  return entries;
}

/// The event joins the sessions that it touches into one.
void Session::insert(Groups::value_type& group, Entry entry) {
  Spans& spans = group.second;
  std::vector<Entry> joined;
  const auto join = [&](Spans::iterator it) {
    std::vector<Entry> taken = take_span(group, it);
    std::move(taken.begin(), taken.end(), std::back_inserter(joined));
  };
  const Time begin = entry.begin, end = later(begin, gap_);
  auto it = spans.upper_bound(begin);
  if (it != spans.begin() && std::prev(it)->second.end > begin) join(std::prev(it));
  const auto place = std::upper_bound(joined.begin(), joined.end(), begin,
                                      [](Time t, const Entry& e) { return t < e.begin; });
  joined.insert(place, std::move(entry));
  it = spans.upper_bound(begin);
  if (it != spans.end() && it->first < end) join(it);
  add_span(group, std::move(joined));
}

/// The session without the event may be several.
void Session::remove(Groups::value_type& group, Time begin, Key key) {
  Spans& spans = group.second;
  const auto it = spans.upper_bound(begin);
  if (it == spans.begin()) return;
  std::vector<Entry> entries = take_span(group, std::prev(it));
  const auto gone =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  if (gone != entries.end()) {
    unsend(*gone);
    entries.erase(gone);
  }
  std::vector<Entry> part;
  for (Entry& entry : entries) {
    if (!part.empty() && entry.begin >= later(part.back().begin, gap_))
      add_span(group, std::exchange(part, {}));
    part.push_back(std::move(entry));
  }
  if (!part.empty()) add_span(group, std::move(part));
}

void Session::send_changes(Spans& spans) {
  for (auto& [begin, span] : spans) {
    if (!span.is_dirty) continue;
    for (Entry& entry : span.entries) send(begin, span.end, entry);
    span.is_dirty = false;
  }
}

void Session::send(Time begin, Time end, Entry& entry) {
  if (entry.is_sent && entry.sent_begin == begin && end <= entry.sent_end) {
    if (end < entry.sent_end)
      output().shrink(entry.sent_key, begin, end, entry.sent_end, entry.row);
    entry.sent_end = end;
    return;
  }
  unsend(entry);
  entry.is_sent = true;
  entry.sent_key = keys_.next();
  entry.sent_begin = begin;
  entry.sent_end = end;
  output().insert(entry.sent_key, begin, end, entry.row);
}

void Session::unsend(const Entry& entry) {
  if (entry.is_sent)
    output().shrink(entry.sent_key, entry.sent_begin, entry.sent_begin, entry.sent_end, entry.row);
}

Time Session::advance(Time g) {
  while (!ends_.empty() && is_settled(std::get<0>(*ends_.begin()), g)) {
    auto [end, begin, group] = *ends_.begin();
    take_span(*group, group->second.find(begin));
    if (group->second.empty()) groups_.erase(groups_.find(group->first));
  }
  count_state(events_);
  return begins_.empty() ? g : std::min(g, before(*begins_.begin()));
}

}  // namespace troupe::events
