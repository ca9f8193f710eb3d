// PerSnapshot: an operator whose rows at each time depend on the events that live at that time.
//
//   std::make_unique<PerSnapshot<CountRule>>(name, schema, inputs, CountRule(...), keys);
//
// State: by group, the snapshots in order of time. A snapshot is an interval between two ends of
// lifetimes; it has a content, which adds events and takes them back, and the rows that were sent.
// A message changes the snapshots that it spans, after its ends have cut them. The rows that a
// batch has changed are compared with those sent once, after the batch: a row shrinks if its start
// and its values stay, else it is removed and another one comes. A boundary at which no lifetime
// ends or begins any more joins its snapshots, unless the left one begins by the guarantee.
//
// A Rule has a default-made type `Content`, and
//   void load(const Batch&, std::size_t input, std::size_t i, Row& group)  // sets the group
//   void add(Content&, std::size_t input, int by) const                    // the loaded message
//   bool is_empty(const Content&) const                                    // no event lives
//   void read(const Row& group, const Content&, std::vector<Row>&) const   // appends rows
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
    std::int64_t begins = 0, ends = 0;  // lifetimes that begin at its begin, end at its end
  };
  using Snapshots = std::map<Time, Snapshot>;  // by begin; they do not overlap
  struct Group {
    Snapshots snapshots;
    Time dirty_from = kForever, dirty_to = kNever;
  };
  using Groups = std::unordered_map<Row, Group, RowHash, RowEqual>;

  void process(std::size_t input, Batch batch) override;
  Time advance(Time g) override;
  std::size_t event_bytes() const override {
    return sizeof(typename Snapshots::value_type) + sizeof(Sent) + row_bytes(schema());
  }
  void change(Group& group, std::size_t input, Time begin, Time end, int by);
  void count_ends(Group& group, Time begin, Time end, Time old_end);
  void join_at(Group& group, Time at);
  Snapshot* ending_at(Group& group, Time at);
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
    count_ends(group, batch.begin[i], batch.end[i], batch.old_end[i]);
  }
  for (auto* entry : dirty_) {
    send_changes(entry->first, entry->second);
    if (entry->second.snapshots.empty()) groups_.erase(groups_.find(entry->first));
  }
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
  std::swap(right.ends, it->second.ends);
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

/// Returns the snapshot that ends at `at`; null: none.
template <class Rule>
typename PerSnapshot<Rule>::Snapshot* PerSnapshot<Rule>::ending_at(Group& group, Time at) {
  const auto it = group.snapshots.lower_bound(at);
  if (it == group.snapshots.begin()) return nullptr;
  Snapshot& left = std::prev(it)->second;
  return left.end == at ? &left : nullptr;
}

/// Counts the ends of a lifetime that has come, or has shrunk from `old_end`.
template <class Rule>
void PerSnapshot<Rule>::count_ends(Group& group, Time begin, Time end, Time old_end) {
  const bool is_insert = old_end == Batch::kInsert;
  if (is_insert || end == begin)
    if (const auto it = group.snapshots.find(begin); it != group.snapshots.end())
      it->second.begins += is_insert ? 1 : -1;
  if (end > begin)
    if (Snapshot* left = ending_at(group, end)) ++left->ends;  // else it is forgotten
  if (is_insert) return;
  if (Snapshot* left = ending_at(group, old_end)) --left->ends;
  join_at(group, end);
  join_at(group, old_end);
}

/// Makes one snapshot of two between which no lifetime ends: the same events live in both.
template <class Rule>
void PerSnapshot<Rule>::join_at(Group& group, Time at) {
  const auto right = group.snapshots.find(at);
  Snapshot* left = ending_at(group, at);
  if (right == group.snapshots.end() || !left) return;
  const Time begin = std::prev(right)->first;
  if (left->ends + right->second.begins > 0 || (guarantee() != kNever && begin <= guarantee()))
    return;
  for (const Sent& sent : right->second.sent) output().shrink(sent.key, at, at, sent.end, sent.row);
  left->end = right->second.end;
  left->ends = right->second.ends;
  group.dirty_from = std::min(group.dirty_from, begin);
  group.dirty_to = std::max(group.dirty_to, left->end);
  group.snapshots.erase(right);
  --snapshots_;
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
    const auto same = std::find_if(wanted_.begin(), wanted_.end(),
                                   [&](const Row& row) { return RowEqual()(row, sent.row); });
    const bool stays = same != wanted_.end() && sent.end >= s.end;  // no row lengthens
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
