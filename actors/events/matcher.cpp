#include <troupe/actors/events/matcher.hpp>

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace troupe::events {
namespace {

using MatcherKind = Pattern::Kind;

}  // namespace

Matcher::Matcher(std::string name, std::shared_ptr<const MatchPlan> plan, std::size_t inputs,
                 KeySource keys)
    : Operator(std::move(name), plan->schema, inputs), plan_(std::move(plan)), replay_(*plan_),
      bound_(*plan_), keys_(keys) {}

/// An event that a lower level dropped negates no more, and the match is as long as its event.
Time Matcher::reach() const {
  const auto is_negation = [](MatcherKind kind) {
    return kind == MatcherKind::unless || kind == MatcherKind::cancel_when;
  };
  const MatchPlan::Node* node = &plan_->top();
  if (!is_negation(node->kind)) return node->span;
  while (is_negation(node->kind)) node = &plan_->nodes[node->parts[0].node];
  return node->gives_end ? kForever : plan_->top().span;
}

void Matcher::process(std::size_t input, Batch batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) now_ = std::max(now_, batch.sync(i));
  for (const MatchPlan::Leaf& leaf : plan_->leaves)
    if (leaf.input == input) take(leaf, batch);
  settle();
}

/// Takes the messages that the conditions on this event permit.
void Matcher::take(const MatchPlan::Leaf& leaf, const Batch& batch) {
  std::vector<std::vector<std::uint8_t>> marks;
  for (const BoundFormula& filter : leaf.filters) marks.push_back(filter.marks(batch));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    bool is_wanted = true;
    for (const auto& permitted : marks) is_wanted &= permitted[i] != 0;
    if (!is_wanted) continue;
    read_columns(batch, leaf.key_columns, i, key_);
    if (batch.is_insert(i)) {
      auto& entry = *partitions_.try_emplace(key_).first;
      if (entry.second.nodes.empty()) entry.second.nodes.resize(plan_->nodes.size());
      insert(entry, leaf, batch, i);
    } else if (const auto it = partitions_.find(key_); it != partitions_.end()) {
      retract(*it, leaf, batch, i);
    }
  }
}

void Matcher::insert(Partitions::value_type& entry, const MatchPlan::Leaf& leaf, const Batch& batch,
                     std::size_t i) {
  const Time begin = batch.begin[i];
  auto event = std::make_unique<Instance>(
      Instance{begin, batch.end[i], begin, begin, leaf.node, batch.key[i], batch.row(i)});
  event->ender = event.get();
  touch(entry, begin);
  Instances& all = entry.second.nodes[leaf.node];
  auto place = all.end();
  if (!all.empty() && !comes_before(*all.back(), *event))
    place = std::upper_bound(all.begin(), all.end(), event,
                             [](const auto& a, const auto& b) { return comes_before(*a, *b); });
  all.insert(place, std::move(event));
  ++state_;
}

void Matcher::retract(Partitions::value_type& entry, const MatchPlan::Leaf& leaf,
                      const Batch& batch, std::size_t i) {
  Partition& partition = entry.second;
  const Time begin = batch.begin[i], end = batch.end[i];
  const Key key = batch.key[i];
  Instances& all = partition.nodes[leaf.node];
  auto it = begins_from(all, begin);
  while (it != all.end() && (*it)->begin == begin && (*it)->key != key) ++it;
  const bool is_known = it != all.end() && (*it)->begin == begin;
  if (end > begin) {
    if (is_known) (*it)->end = end;
    if (plan_->nodes[leaf.node].gives_end) shrink_end(partition, key, begin, end);
    return;
  }
  if (!is_known) return;
  touch(entry, begin);
  partition.gone.push_back(std::move(*it));
  all.erase(it);
  --state_;
}

/// Shrinks the match that ends with the event.
void Matcher::shrink_end(Partition& partition, Key event, Time begin, Time end) {
  auto it = std::lower_bound(partition.sent.begin(), partition.sent.end(), begin,
                             [](const Sent& sent, Time t) { return sent.begin < t; });
  for (; it != partition.sent.end(); ++it) {
    if (it->ender != event) continue;
    end = std::max(end, it->least_end);
    if (end < it->end) output().shrink(it->key, it->begin, end, it->end, it->row);
    it->end = std::min(it->end, end);
    return;
  }
}

void Matcher::touch(Partitions::value_type& entry, Time from) {
  if (entry.second.changed_from == kForever) changed_.push_back(&entry);
  entry.second.changed_from = std::min(entry.second.changed_from, from);
}

void Matcher::set_due(Partitions::value_type& entry, Time due) {
  if (entry.second.due == due) return;
  if (entry.second.due != kForever) timers_.erase({entry.second.due, &entry});
  entry.second.due = due;
  if (due != kForever) timers_.emplace(due, &entry);
}

/// Replays all that has changed, or is due by local time.
void Matcher::settle() {
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const auto [due, entry] = *timers_.begin();
    touch(*entry, due);
    set_due(*entry, kForever);
  }
  for (auto* entry : changed_) {
    replay(*entry);
    if (size_of(entry->second) > 0) continue;
    set_due(*entry, kForever);
    partitions_.erase(partitions_.find(entry->first));
  }
  changed_.clear();
  count_state(state_);
}

void Matcher::replay(Partitions::value_type& entry) {
  Partition& partition = entry.second;
  const std::size_t size = size_of(partition);
  forget(partition, settled_, false);
  const Time from = partition.changed_from;
  set_due(entry, replay_.run(partition.nodes, from, now_));
  const auto tail = std::lower_bound(partition.sent.begin(), partition.sent.end(), from,
                                     [](const Sent& sent, Time t) { return sent.begin < t; });
  std::vector<Sent> before(std::make_move_iterator(tail),
                           std::make_move_iterator(partition.sent.end()));
  partition.sent.erase(tail, partition.sent.end());
  send_differences(partition, std::move(before), from);
  partition.gone.clear();
  partition.changed_from = kForever;
  if (plan_->top().kind != MatcherKind::event) partition.nodes.back().clear();
  state_ = state_ + size_of(partition) - size;
}

/// Compares the matches from `from` on with those sent `before`.
void Matcher::send_differences(Partition& partition, std::vector<Sent> before, Time from) {
  const auto is_less = [](const Sent& a, const Sent& b) {
    return std::tie(a.begin, a.events) < std::tie(b.begin, b.events);
  };
  std::sort(before.begin(), before.end(), is_less);
  const std::size_t kept = partition.sent.size();
  Instances& made = partition.nodes.back();
  for (auto it = begins_from(made, from); it != made.end(); ++it) {
    Sent match = match_of(**it);
    const auto old = std::lower_bound(before.begin(), before.end(), match, is_less);
    if (old != before.end() && !is_less(match, *old) && old->key != 0) {
      if (match.end < old->end)
        output().shrink(old->key, old->begin, match.end, old->end, old->row);
      match.key = std::exchange(old->key, 0);
      match.row = std::move(old->row);
    } else {
      match.row = row_of(**it);
    }
    partition.sent.push_back(std::move(match));
  }
  for (const Sent& old : before)
    if (old.key != 0) output().shrink(old.key, old.begin, old.begin, old.end, old.row);
  for (std::size_t s = kept; s < partition.sent.size(); ++s) {
    Sent& match = partition.sent[s];
    if (match.key != 0) continue;
    match.key = keys_.next();
    output().insert(match.key, match.begin, match.end, match.row);
  }
}

/// Returns the match without its key and row.
Matcher::Sent Matcher::match_of(const Instance& instance) {
  Sent match{instance.begin, instance.ends(), {}, 0, {}};
  if (instance.ender) {
    match.ender = instance.ender->key;
    match.least_end = instance.least_end;
  }
  bound_.bind(instance);
  match.events.resize(plan_->leaves.size());
  for (std::size_t l = 0; l < match.events.size(); ++l)
    if (bound_[l]) match.events[l] = bound_[l]->key;
  bound_.unbind(instance);
  return match;
}

Row Matcher::row_of(const Instance& instance) {
  const MatchPlan& plan = *plan_;
  bound_.bind(instance);
  std::vector<std::size_t> leaves;
  std::int64_t occurrence = INT64_MIN;
  for (std::size_t l = 0; l < plan.leaves.size(); ++l) {
    if (!bound_[l]) continue;
    leaves.push_back(l);
    if (const int column = plan.leaves[l].occurrence_column; column >= 0)
      occurrence = std::max(
          occurrence, std::get<std::int64_t>(bound_[l]->row[static_cast<std::size_t>(column)]));
  }
  root_ = instance.root;
  occurrence_ = occurrence;
  if (plan.names_contributors) {
    std::stable_sort(leaves.begin(), leaves.end(), [&](std::size_t a, std::size_t b) {
      return bound_[a]->begin < bound_[b]->begin;
    });
    std::string names;
    for (const std::size_t l : leaves)
      names += fmt::format("{}{}@{}", names.empty() ? "" : " ", plan.leaves[l].variable,
                           bound_[l]->begin);
    names_ = std::move(names);
  }
  const BoundFormula::Lookup lookup = [&](std::size_t field) -> const Value& {
    if (field == plan.root_field()) return root_;
    if (field == plan.contributors_field()) return names_;
    if (field == plan.occurrence_field()) return occurrence_;
    return bound_.at(field);
  };
  Row row;
  row.reserve(plan.output.size());
  for (const BoundFormula& formula : plan.output) row.push_back(formula.evaluate(lookup));
  bound_.unbind(instance);
  return row;
}

Time Matcher::advance(Time g) {
  now_ = std::max(now_, g);
  settle();
  settled_ = g;
  if (g != kForever && state_ < 2 * swept_ + 64) return g;
  for (auto it = partitions_.begin(); it != partitions_.end();) {
    const std::size_t size = size_of(it->second);
    forget(it->second, g, true);
    state_ = state_ + size_of(it->second) - size;
    const bool is_empty = size_of(it->second) == 0;
    if (is_empty) set_due(*it, kForever);
    it = is_empty ? partitions_.erase(it) : std::next(it);
  }
  swept_ = state_;
  count_state(state_);
  return g;
}

/// Drops what no match after `g` needs. `is_sweep`: also events behind those that live on.
void Matcher::forget(Partition& partition, Time g, bool is_sweep) {
  if (g == kNever) return;
  for (std::size_t n = 0; n < partition.nodes.size(); ++n) {
    const MatchPlan::Node& node = plan_->nodes[n];
    Instances& all = partition.nodes[n];
    const Time horizon = earlier(g, node.keeps);
    const auto is_done = [&](const std::unique_ptr<Instance>& instance) {
      return instance->begin <= horizon && (!node.gives_end || is_settled(instance->end, g));
    };
    if (is_sweep && node.gives_end) {
      std::erase_if(all, is_done);
      continue;
    }
    auto it = all.begin();
    while (it != all.end() && is_done(*it)) ++it;
    all.erase(all.begin(), it);
  }
  const auto is_final = [&](const Sent& sent) {
    return sent.begin <= g && (sent.ender == 0 || is_settled(sent.end, g));
  };
  if (is_sweep) {
    std::erase_if(partition.sent, is_final);
    return;
  }
  auto it = partition.sent.begin();
  while (it != partition.sent.end() && is_final(*it)) ++it;
  partition.sent.erase(partition.sent.begin(), it);
}

std::size_t Matcher::event_bytes() const {
  std::size_t most = row_bytes(schema());
  for (const MatchPlan::Leaf& leaf : plan_->leaves) most = std::max(most, row_bytes(leaf.schema));
  return sizeof(Instance) + most;
}

std::size_t Matcher::size_of(const Partition& partition) {
  std::size_t size = partition.sent.size();
  for (const Instances& all : partition.nodes) size += all.size();
  return size;
}

}  // namespace troupe::events
