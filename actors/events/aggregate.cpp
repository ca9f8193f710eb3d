#include <troupe/actors/events/aggregate.hpp>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

using AggregateKind = AggregateSpec::Kind;

Schema aggregate_schema(const std::string& name, const Schema& schema,
                        const std::vector<std::string>& group_by,
                        const std::vector<AggregateSpec>& specs) {
  std::vector<Field> fields;
  for (const std::string& field : group_by) fields.push_back(schema[schema.index(field)]);
  if (specs.empty())
    throw Error(Code::invalid_argument,
                fmt::format("{} computes nothing; name an aggregate", name));
  for (const AggregateSpec& spec : specs) {
    const Type type =
        spec.kind == AggregateKind::count ? Type::integer : schema[schema.index(spec.field)].type;
    const bool is_numeric = spec.kind == AggregateKind::sum || spec.kind == AggregateKind::mean;
    if (is_numeric && type == Type::text)
      throw Error(Code::invalid_argument,
                  fmt::format("{} adds up '{}', which is text; name a number", name, spec.field));
    fields.push_back({spec.name, spec.kind == AggregateKind::mean ? Type::real : type});
  }
  return Schema(std::move(fields));
}

}  // namespace

Aggregate::Aggregate(std::string name, const Schema& schema,
                     const std::vector<std::string>& group_by, std::vector<AggregateSpec> specs,
                     KeySource keys)
    : Operator(name, aggregate_schema(name, schema, group_by, specs), 1),
      group_columns_(columns_of(schema, group_by)), specs_(std::move(specs)), keys_(keys) {
  for (const AggregateSpec& spec : specs_) {
    only_counts_ &= spec.kind == AggregateKind::count;
    value_columns_.push_back(spec.kind == AggregateKind::count ? 0 : schema.index(spec.field));
  }
  if (schema.size() == 0) value_columns_.clear();
}

void Aggregate::process(std::size_t, Batch batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    read_columns(batch, group_columns_, i, key_);
    auto& entry = *groups_.try_emplace(key_).first;
    Group& group = entry.second;
    if (group.dirty_from == kForever) {
      dirty_.push_back(&entry);
      forget(group, guarantee());
    }
    if (!only_counts_) read_columns(batch, value_columns_, i, values_);
    if (batch.is_insert(i)) change(group, batch.begin[i], batch.end[i], 1);
    else change(group, batch.end[i], batch.old_end[i], -1);
  }
  for (auto* entry : dirty_) send_changes(entry->first, entry->second);
  dirty_.clear();
  count_state(snapshots_);
}

/// Makes `at` an end of the snapshot that spans it.
void Aggregate::cut(Group& group, Time at) {
  auto it = group.snapshots.upper_bound(at);
  if (it == group.snapshots.begin()) return;
  const auto next = it--;
  if (it->first == at || it->second.end <= at) return;
  Snapshot right;
  right.end = it->second.end;
  right.totals = it->second.totals;
  it->second.end = at;
  group.dirty_from = std::min(group.dirty_from, it->first);
  group.dirty_to = std::max(group.dirty_to, right.end);
  group.snapshots.emplace_hint(next, at, std::move(right));
  ++snapshots_;
}

/// Adds an event to all snapshots of [begin, end), or takes it from them.
void Aggregate::change(Group& group, Time begin, Time end, int by) {
  cut(group, begin);
  cut(group, end);
  group.dirty_from = std::min(group.dirty_from, begin);
  group.dirty_to = std::max(group.dirty_to, end);
  auto it = group.snapshots.lower_bound(begin);
  for (Time at = begin; at < end; ++it) {
    if (it == group.snapshots.end() || it->first > at) {  // a gap
      Snapshot snapshot;
      snapshot.end = it == group.snapshots.end() ? end : std::min(end, it->first);
      snapshot.totals = only_counts_ ? Totals() : Totals(specs_.size());
      it = group.snapshots.emplace_hint(it, at, std::move(snapshot));
      ++snapshots_;
    }
    it->second.totals.add(specs_, values_, by);
    at = it->second.end;
  }
}

void Aggregate::send_changes(const Row& group_key, Group& group) {
  auto it = group.snapshots.lower_bound(group.dirty_from);
  while (it != group.snapshots.end() && it->first < group.dirty_to) {
    send_change(group_key, it->first, it->second);
    if (it->second.totals.events() > 0) {
      ++it;
      continue;
    }
    it = group.snapshots.erase(it);
    --snapshots_;
  }
  group.dirty_from = kForever;
  group.dirty_to = kNever;
}

void Aggregate::send_change(const Row& group_key, Time begin, Snapshot& s) {
  const bool is_wanted = s.totals.events() > 0;
  row_ = group_key;
  if (is_wanted) s.totals.read(specs_, row_);
  if (s.is_sent) {
    const bool stays = is_wanted && s.sent == row_;
    if (stays && s.end == s.sent_end) return;
    const Time end = stays ? s.end : begin;
    output().shrink(s.key, begin, end, s.sent_end, s.sent);
    s.sent_end = end;
    s.is_sent = stays;
  }
  if (!is_wanted || s.is_sent) return;
  s.is_sent = true;
  s.key = keys_.next();
  s.sent_end = s.end;
  s.sent = row_;
  output().insert(s.key, begin, s.end, row_);
}

void Aggregate::forget(Group& group, Time g) {
  if (g == kNever) return;
  while (!group.snapshots.empty() && is_settled(group.snapshots.begin()->second.end, g)) {
    group.snapshots.erase(group.snapshots.begin());
    --snapshots_;
  }
}

Time Aggregate::advance(Time g) {
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
