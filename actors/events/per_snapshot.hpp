// PerSnapshot: an operator whose rows at each time depend on the events that live at that time.
//
//   std::make_unique<PerSnapshot<CountRule>>(name, schema, inputs, CountRule(...), keys);
//
// State: by group, the snapshots in order of time. A snapshot is an interval between two ends of
// lifetimes; it has a content, which adds events and takes them back, and the rows that were sent.
// A message changes the snapshots that it spans, after its ends have cut them. The rows that a
// batch has changed are compared with those sent once, after the batch: a row shrinks if its start
// and its values stay, else it is removed and another one comes.
//
// A Rule has a default-made type `Content`, and
//   void load(const Batch&, std::size_t input, std::size_t i, Row& group)  // sets the group
//   void add(Content&, std::size_t input, int by) const                    // the loaded message
//   bool is_empty(const Content&) const                                    // no event lives
//   void read(const Row& group, const Content&, std::vector<Row>&) const   // appends rows
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/actors/events/operator.hpp>
#include <troupe/actors/events/row_hash.hpp>

namespace troupe::events {

template <class Rule>
class PerSnapshot final : public Operator {
 public:
  PerSnapshot(std::string name, Schema schema, std::size_t inputs, Rule rule, KeySource keys)
      : Operator(std::move(name), std::move(schema), inputs), rule_(std::move(rule)), keys_(keys) {}

 private:
  using Content = typename Rule::Content;
  struct Sent {
    Key key;
    Time end;
    Row row;
  };
  struct Snapshot {
    Time end;
    Content content;
    std::vector<Sent> sent = {};
  };
  using Snapshots = std::map<Time, Snapshot>;  // by begin; they do not overlap
  struct Group {
    Snapshots snapshots;
    Time dirty_from = kForever, dirty_to = kNever;
  };
  using Groups = std::unordered_map<Row, Group, RowHash>;

  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  void change(Group& group, std::size_t input, Time begin, Time end, int by);
  void cut(Group& group, Time at);
  void send_changes(const Row& group_key, Group& group);
  void send_change(const Row& group_key, Time begin, Snapshot& snapshot);
  void forget(Group& group, Time g);

  Rule rule_;
  KeySource keys_;
  Groups groups_;
  std::vector<typename Groups::value_type*> dirty_;
  std::size_t snapshots_ = 0, swept_ = 0;
  Row key_;                  // group of the message in hand
  std::vector<Row> wanted_;  // rows of the snapshot in hand
};

template <class Rule>
void PerSnapshot<Rule>::process(std::size_t input, Batch batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    rule_.load(batch, input, i, key_);
    auto& entry = *groups_.try_emplace(key_).first;
    Group& group = entry.second;
    if (group.dirty_from == kForever) {
      dirty_.push_back(&entry);
      forget(group, guarantee());
    }
    if (batch.is_insert(i)) change(group, input, batch.begin[i], batch.end[i], 1);
    else change(group, input, batch.end[i], batch.old_end[i], -1);
  }
  for (auto* entry : dirty_) send_changes(entry->first, entry->second);
  dirty_.clear();
  count_state(snapshots_);
}

/// Makes `at` an end of the snapshot that spans it.
template <class Rule>
void PerSnapshot<Rule>::cut(Group& group, Time at) {
  auto it = group.snapshots.upper_bound(at);
  if (it == group.snapshots.begin()) return;
  const auto next = it--;
  if (it->first == at || it->second.end <= at) return;
  Snapshot right{it->second.end, it->second.content};
  it->second.end = at;
  group.dirty_from = std::min(group.dirty_from, it->first);
  group.dirty_to = std::max(group.dirty_to, right.end);
  group.snapshots.emplace_hint(next, at, std::move(right));
  ++snapshots_;
}

/// Adds an event to all snapshots of [begin, end), or takes it from them.
template <class Rule>
void PerSnapshot<Rule>::change(Group& group, std::size_t input, Time begin, Time end, int by) {
  cut(group, begin);
  cut(group, end);
  group.dirty_from = std::min(group.dirty_from, begin);
  group.dirty_to = std::max(group.dirty_to, end);
  auto it = group.snapshots.lower_bound(begin);
  for (Time at = begin; at < end; ++it) {
    if (it == group.snapshots.end() || it->first > at) {  // a gap
      const Time to = it == group.snapshots.end() ? end : std::min(end, it->first);
      it = group.snapshots.emplace_hint(it, at, Snapshot{to, Content()});
      ++snapshots_;
    }
    rule_.add(it->second.content, input, by);
    at = it->second.end;
  }
}

template <class Rule>
void PerSnapshot<Rule>::send_changes(const Row& group_key, Group& group) {
  auto it = group.snapshots.lower_bound(group.dirty_from);
  while (it != group.snapshots.end() && it->first < group.dirty_to) {
    send_change(group_key, it->first, it->second);
    if (!rule_.is_empty(it->second.content)) {
      ++it;
      continue;
    }
    it = group.snapshots.erase(it);
    --snapshots_;
  }
  group.dirty_from = kForever;
  group.dirty_to = kNever;
}

template <class Rule>
void PerSnapshot<Rule>::send_change(const Row& group_key, Time begin, Snapshot& s) {
  wanted_.clear();
  if (!rule_.is_empty(s.content)) rule_.read(group_key, s.content, wanted_);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < s.sent.size(); ++i) {
    Sent& sent = s.sent[i];
    const auto same = std::find(wanted_.begin(), wanted_.end(), sent.row);
    const bool stays = same != wanted_.end();
    if (stays) wanted_.erase(same);
    const Time end = stays ? s.end : begin;
    if (end < sent.end) output().shrink(sent.key, begin, end, sent.end, sent.row);
    sent.end = end;
    if (stays && kept != i) s.sent[kept] = std::move(sent);
    kept += stays;
  }
  s.sent.resize(kept);
  for (Row& row : wanted_) {
    const Key key = keys_.next();
    output().insert(key, begin, s.end, row);
    s.sent.push_back({key, s.end, std::move(row)});
  }
}

template <class Rule>
void PerSnapshot<Rule>::forget(Group& group, Time g) {
  if (g == kNever) return;
  while (!group.snapshots.empty() && is_settled(group.snapshots.begin()->second.end, g)) {
    group.snapshots.erase(group.snapshots.begin());
    --snapshots_;
  }
}

template <class Rule>
Time PerSnapshot<Rule>::advance(Time g) {
  if (g != kForever && snapshots_ < 2 * swept_ + 64) return g;
  for (auto it = groups_.begin(); it != groups_.end();) {
    forget(it->second, g);
    it = it->second.snapshots.empty() ? groups_.erase(it) : std::next(it);
  }
  swept_ = snapshots_;
  count_state(snapshots_);
  return g;
}

}  // namespace troupe::events
