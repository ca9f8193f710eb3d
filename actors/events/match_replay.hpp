// Makes the instances of a pattern for one correlation key.
//
//   MatchReplay replay(plan);
//   const Time due = replay.run(instances, from, to);
//
// An **instance** is an event, or a match of a part of the pattern. An instance that begins at t
// depends on events that begin by t alone. After a change at `from` all matches that begin later
// are dropped and made anew, in order of time, part after part: so late events, removed events,
// selections and consumption need no rules of their own. In order there is nothing to drop.
//
// Invariants
// 1. Instances of a node are in the order of `comes_before`, which does not depend on arrival.
// 2. An instance has one parent node, so the mark of its consumption is in the instance.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <troupe/actors/events/match_plan.hpp>

namespace troupe::events {

struct Instance {
  Time begin, end;
  Time first;                       // begin of its first part
  Time root;                        // least begin of its contributors
  std::size_t node;                 // in the plan
  Key key = 0;                      // an event's
  Row row = {};                     // an event's
  const Instance* ender = nullptr;  // the event whose end is its end; of an event itself
  Time least_end = kNever;          // with `ender`
  Time consumed_at = kForever;
  std::vector<Instance*> parts = {};  // in order of time

  Time ends() const { return ender ? std::max(ender->end, least_end) : end; }
};

using Instances = std::vector<std::unique_ptr<Instance>>;

bool comes_before(const Instance& a, const Instance& b);
/// Returns the first one that begins at or after `t`.
Instances::iterator begins_from(Instances& all, Time t);

/// The events of an instance, by leaf; null: none.
class Bindings {
 public:
  explicit Bindings(const MatchPlan& plan) : plan_(plan), bound_(plan.leaves.size()) {}
  void bind(const Instance& instance) { set(instance, true); }
  void unbind(const Instance& instance) { set(instance, false); }
  const Instance* operator[](std::size_t leaf) const { return bound_[leaf]; }
  bool has(const std::vector<std::size_t>& leaves) const;
  /// Returns the value of a joint field.
  const Value& at(std::size_t field) const;

 private:
  void set(const Instance& instance, bool is_bound);
  const MatchPlan& plan_;
  std::vector<const Instance*> bound_;
};

class MatchReplay {
 public:
  explicit MatchReplay(const MatchPlan& plan);

  /// Makes the instances of all nodes but events anew that begin in [from, to]; by node. Returns
  /// the time after `to` at which the next one may begin without another event; kForever: none.
  Time run(std::vector<Instances>& all, Time from, Time to);

 private:
  using Node = MatchPlan::Node;
  void combine(std::size_t index);
  void complete(std::size_t index, Time t);
  void extend(std::size_t index, Time t, Time before);
  void take(std::size_t index, std::size_t part, Instance& instance, Time t);
  void select(const Node& node);
  void emit(std::size_t index, const std::vector<Instance*>& parts);
  void negate(std::size_t index);
  bool is_negated(const Node& node, const Instance& present, Time after, Time before);
  bool holds(const Node& node, std::size_t part) const;
  Instances& of_part(const Node& node, std::size_t part) { return (*all_)[node.parts[part].node]; }
  /// Returns the begin of the n-th contributor, from 1 on.
  Time contributor(const Instance& instance, std::size_t n);

  const MatchPlan& plan_;
  Bindings bound_;
  const BoundFormula::Lookup lookup_;
  // the run in hand
  std::vector<Instances>* all_ = nullptr;
  Time from_ = 0, to_ = 0, due_ = 0;
  // the completion in hand
  std::vector<Instance*> chosen_;  // from the last part to the first
  std::uint64_t used_ = 0;         // bits of the parts of chosen_
  std::vector<std::vector<Instance*>> candidates_;
  std::vector<Time> times_;
};

}  // namespace troupe::events
