#include <troupe/actors/events/match_replay.hpp>

#include <algorithm>
#include <utility>

namespace troupe::events {
namespace {

using ReplayKind = Pattern::Kind;

/// -1: a is before b; 1: behind; 0: equal.
int replay_order(const Instance& a, const Instance& b) {
  if (a.begin != b.begin) return a.begin < b.begin ? -1 : 1;
  if (a.node != b.node) return a.node < b.node ? -1 : 1;
  const ValueOrder is_before;
  for (std::size_t c = 0; c < a.row.size(); ++c) {
    if (is_before(a.row[c], b.row[c])) return -1;
    if (is_before(b.row[c], a.row[c])) return 1;
  }
  for (std::size_t p = 0; p < a.parts.size() && p < b.parts.size(); ++p)
    if (const int order = replay_order(*a.parts[p], *b.parts[p])) return order;
  return a.key == b.key ? 0 : a.key < b.key ? -1 : 1;
}

void replay_events(const Instance& instance, std::vector<Time>& begins) {
  if (instance.parts.empty()) begins.push_back(instance.begin);
  for (const Instance* part : instance.parts) replay_events(*part, begins);
}

}  // namespace

bool comes_before(const Instance& a, const Instance& b) { return replay_order(a, b) < 0; }

Instances::iterator begins_from(Instances& all, Time t) {
  return std::lower_bound(all.begin(), all.end(), t,
                          [](const auto& instance, Time at) { return instance->begin < at; });
}

void Bindings::set(const Instance& instance, bool is_bound) {
  const MatchPlan::Node& node = plan_.nodes[instance.node];
  if (node.kind == ReplayKind::event) bound_[node.leaf] = is_bound ? &instance : nullptr;
  for (const Instance* part : instance.parts) set(*part, is_bound);
}

bool Bindings::has(const std::vector<std::size_t>& leaves) const {
  return std::all_of(leaves.begin(), leaves.end(), [&](std::size_t l) { return bound_[l]; });
}

const Value& Bindings::at(std::size_t field) const {
  const MatchPlan::JointField& of = plan_.fields[field];
  return bound_[of.leaf] ? bound_[of.leaf]->row[of.column] : plan_.leaves[of.leaf].blank[of.column];
}

MatchReplay::MatchReplay(const MatchPlan& plan)
    : plan_(plan), bound_(plan),
      lookup_([this](std::size_t field) -> const Value& { return bound_.at(field); }) {}

Time MatchReplay::run(std::vector<Instances>& all, Time from, Time to) {
  all_ = &all;
  from_ = from;
  to_ = to;
  due_ = kForever;
  for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
    const Node& node = plan_.nodes[n];
    if (node.kind == ReplayKind::event) continue;
    Instances& made = all[n];
    made.erase(begins_from(made, from), made.end());
    const std::size_t kept = made.size();
    if (node.kind == ReplayKind::sequence || node.kind == ReplayKind::at_least) combine(n);
    else negate(n);
    std::sort(made.begin() + static_cast<std::ptrdiff_t>(kept), made.end(),
              [](const auto& a, const auto& b) { return comes_before(*a, *b); });
  }
  return due_;
}

/// Sequence and at_least: one completion after another.
void MatchReplay::combine(std::size_t index) {
  const Node& node = plan_.nodes[index];
  const bool is_sequence = node.kind == ReplayKind::sequence;
  for (std::size_t p = 0; p < node.parts.size(); ++p)
    if (node.parts[p].is_consumed)
      for (const auto& instance : of_part(node, p))
        if (instance->consumed_at >= from_) instance->consumed_at = kForever;
  times_.clear();
  for (std::size_t p = is_sequence ? node.parts.size() - 1 : 0; p < node.parts.size(); ++p) {
    Instances& of = of_part(node, p);
    for (auto it = begins_from(of, from_); it != of.end() && (*it)->begin <= to_; ++it)
      times_.push_back((*it)->begin);
  }
  std::sort(times_.begin(), times_.end());
  times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
  for (const Time t : times_) complete(index, t);
}

/// Makes the matches that end at `t`.
void MatchReplay::complete(std::size_t index, Time t) {
  const Node& node = plan_.nodes[index];
  candidates_.clear();
  const bool is_sequence = node.kind == ReplayKind::sequence;
  for (std::size_t p = is_sequence ? node.parts.size() - 1 : 0; p < node.parts.size(); ++p) {
    Instances& of = of_part(node, p);
    for (auto it = begins_from(of, t); it != of.end() && (*it)->begin == t; ++it)
      take(index, p, **it, t);
  }
  if (!node.has_modes) return;
  select(node);
  for (const auto& parts : candidates_) emit(index, parts);
  for (const auto& parts : candidates_)
    for (const MatchPlan::Part& part : node.parts)
      for (Instance* instance : parts)
        if (part.is_consumed && instance->node == part.node) instance->consumed_at = t;
}

/// Adds the instance to the chosen ones, if it may be, and goes on to earlier parts.
void MatchReplay::take(std::size_t index, std::size_t part, Instance& instance, Time t) {
  const Node& node = plan_.nodes[index];
  if (node.parts[part].is_consumed && instance.consumed_at < t) return;
  chosen_.push_back(&instance);
  used_ |= std::uint64_t{1} << part;
  const bool has_conditions = !node.conditions.empty();
  if (has_conditions) bound_.bind(instance);
  if (!has_conditions || holds(node, part)) extend(index, t, instance.begin);
  if (has_conditions) bound_.unbind(instance);
  used_ &= ~(std::uint64_t{1} << part);
  chosen_.pop_back();
}

/// Looks for a part that is `before` those chosen, and not longer before `t` than the window.
void MatchReplay::extend(std::size_t index, Time t, Time before) {
  const Node& node = plan_.nodes[index];
  if (chosen_.size() == node.count) {
    const std::vector<Instance*> parts(chosen_.rbegin(), chosen_.rend());
    if (node.has_modes) candidates_.push_back(parts);
    else emit(index, parts);
    return;
  }
  const bool is_sequence = node.kind == ReplayKind::sequence;
  const std::size_t last = node.parts.size() - 1;
  for (std::size_t p = is_sequence ? last - chosen_.size() : 0; p <= last; ++p) {
    if (used_ >> p & 1) continue;
    Instances& of = of_part(node, p);
    for (auto it = begins_from(of, before);
         it != of.begin() && (*std::prev(it))->begin > earlier(t, node.within); --it)
      take(index, p, **std::prev(it), t);
    if (is_sequence) break;
  }
}

/// Keeps the candidates that the parts' selections permit.
void MatchReplay::select(const Node& node) {
  for (const MatchPlan::Part& part : node.parts) {
    if (part.selection == Selection::each) continue;
    const auto of = [&](const std::vector<Instance*>& parts) -> const Instance* {
      for (const Instance* instance : parts)
        if (instance->node == part.node) return instance;
      return nullptr;
    };
    const Instance* best = nullptr;
    for (const auto& parts : candidates_)
      if (const Instance* one = of(parts);
          one && (!best || (part.selection == Selection::first ? comes_before(*one, *best)
                                                               : comes_before(*best, *one))))
        best = one;
    std::erase_if(candidates_, [&](const auto& parts) { return of(parts) && of(parts) != best; });
  }
}

void MatchReplay::emit(std::size_t index, const std::vector<Instance*>& parts) {
  auto made = std::make_unique<Instance>();
  made->begin = parts.back()->begin;
  made->first = parts.front()->begin;
  made->end = later(made->first, plan_.nodes[index].within);
  made->root = made->begin;
  for (const Instance* part : parts) made->root = std::min(made->root, part->root);
  made->node = index;
  made->parts = parts;
  (*all_)[index].push_back(std::move(made));
}

bool MatchReplay::holds(const Node& node, std::size_t part) const {
  for (const MatchPlan::Condition& condition : node.conditions) {
    if (!(condition.parts >> part & 1) || !bound_.has(condition.leaves)) continue;
    if (std::get<std::int64_t>(condition.formula.evaluate(lookup_)) == 0) return false;
  }
  return true;
}

Time MatchReplay::contributor(const Instance& instance, std::size_t n) {
  std::vector<Time> begins;
  replay_events(instance, begins);
  std::sort(begins.begin(), begins.end());
  return begins.at(n - 1);
}

/// unless, without, cancel_when: instances of the first part without one of the second in a scope.
void MatchReplay::negate(std::size_t index) {
  const Node& node = plan_.nodes[index];
  const bool is_unless = node.kind == ReplayKind::unless;
  Instances& present = of_part(node, 0);
  for (auto it = begins_from(present, is_unless ? earlier(from_, node.within) : from_);
       it != present.end() && (*it)->begin <= to_; ++it) {
    Instance& one = **it;
    Time after = node.kind == ReplayKind::without ? one.first : one.root;
    Time before = one.begin, begin = one.begin;
    if (is_unless) {
      after = node.count > 0 ? contributor(one, node.count) : one.begin;
      before = later(after, node.within);
      begin = std::max(before, one.begin);
      if (begin == kForever) continue;
      if (begin > to_) due_ = std::min(due_, begin);
    }
    if (begin < from_ || begin > to_ || is_negated(node, one, after, before)) continue;
    auto made = std::make_unique<Instance>(
        Instance{begin, one.end, one.first, one.root, index, 0, {}, one.ender, one.least_end});
    if (is_unless) {
      made->end = std::max(one.end, later(begin, 1));
      made->least_end = later(begin, 1);
    }
    made->parts = {&one};
    (*all_)[index].push_back(std::move(made));
  }
}

bool MatchReplay::is_negated(const Node& node, const Instance& present, Time after, Time before) {
  Instances& absent = of_part(node, 1);
  auto it = begins_from(absent, later(after, 1));
  const auto in_scope = [&] { return it != absent.end() && (*it)->begin < before; };
  if (node.conditions.empty()) return in_scope();
  bound_.bind(present);
  bool is_found = false;
  for (; !is_found && in_scope(); ++it) {
    bound_.bind(**it);
    is_found = holds(node, 1);
    bound_.unbind(**it);
  }
  bound_.unbind(present);
  return is_found;
}

}  // namespace troupe::events
