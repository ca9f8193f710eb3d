// Runs that end before all of them has fired: those that are given up, and those of a node that is
// lost.
#include <troupe/actors/executor/partition.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace troupe {

// ---- runs that are given up

void Partition::receive(PartitionMessage& message) {
  const auto* ended = std::get_if<Ended>(&message);
  Record* const record = ended ? ended->firing->iteration->instance->record : nullptr;
  try {
    handle(message);
  } catch (...) {
    if (record && record->is_active) give_up(record->run);
    else if (const auto* begun = std::get_if<StartRun>(&message)) give_up(begun->run);
    else if (const auto* token = std::get_if<Token>(&message)) give_up(token->run);
    else if (const auto* granted = std::get_if<Grant>(&message)) give_up(granted->run);
    else if (const auto* lost = std::get_if<Lost>(&message)) give_up(lost->run);
    else if (!record) throw;
  }
}

// In a catch block. Tokens of the run may be missing from now on, so that counting would wait for
// ever: it is abandoned, here at once.
void Partition::give_up(const Ref<Run>& lost) {
  const Ref<Run> run = lost;
  tell_given_up(run, false);
  for (Value& v : scratch_) v.reset();
  if (find(*run)) abandon(run);
}

// The same in the middle of a turn, which may be at work on the run.
void Partition::give_up_later(const Ref<Run>& run) { tell_given_up(run, true); }

void Partition::tell_given_up(const Ref<Run>& run, bool here_too) {
  const Status why = Status::from_current_exception();
  fail_at(*run, -1,
          Status(why.code(),
                 fmt::format("what passes on the run's values failed, so the run was given up: {}",
                             why.message())));
  for (const std::int32_t p : plan_->partitions_on[static_cast<std::size_t>(plan_->here)])
    if (p != index_ || here_too) driver_.post_at_once(p, Abandon{run});
}

void Partition::abandon(Ref<Run> run) {
  if (run->enter(index_)) {  // it had not begun here
    run->leave();
    return;
  }
  Record* record = find(*run);
  if (!record || record->is_abandoned) return;
  record->is_abandoned = true;
  add(record->handled);
  for (auto* ready : {&record->ready, &record->heavy, &record->first, &record->last}) {
    for (const Record::Ready& r : *ready) ++skipped_[static_cast<std::size_t>(r.node->index)];
    ready->clear();
  }
  for (const Record::Ready& r : record->kept_calls)
    ++skipped_[static_cast<std::size_t>(r.node->index)];
  if (record->outside == 0) discard(*record);
}

// ---- nodes that are lost

// The run goes on if nothing is awaited from that node: its tokens are all here, whatever became of
// it since.
void Partition::accept(const Lost& lost) {
  start(lost.run);
  const Record* record = find(*lost.run);
  if (!record || record->is_abandoned) return;
  const std::string awaited = awaited_from(*record, lost.node);
  if (awaited.empty()) return;
  lost.run->fail(
      Status(lost.why.code(), fmt::format("{}; awaited from it: {}", lost.why.message(), awaited)));
}

// A token that has not come, in an iteration that is open or that may open, or a grant for one that
// is held back: the first of them. Empty: nothing.
std::string Partition::awaited_from(const Record& record, std::int32_t node) const {
  const Graph& g = plan_->program.graph;
  const auto is_of = [&](std::int32_t partition) {
    return plan_->partitions[static_cast<std::size_t>(partition)].node == node;
  };
  const auto in = [](const Iteration& iteration) {
    return iteration.instance->parent ? " in " + tag_of(iteration) : std::string();
  };
  const auto edge_into = [&](const FramePlan& frame) -> const PartitionPlan::Receive* {
    for (std::int32_t r : frame.edges_in)
      if (is_of(mine_.receives[static_cast<std::size_t>(r)].partition))
        return &mine_.receives[static_cast<std::size_t>(r)];
    return nullptr;
  };
  for (const auto& instance : instances_) {
    if (instance->record != &record) continue;
    for (std::int64_t n = instance->oldest; n < instance->opened; ++n) {
      Iteration& iteration = *instance->at(n);
      for (const PartitionPlan::Receive& r : mine_.receives)
        if (r.frame == instance->number && r.says != PartitionPlan::Says::over &&
            is_of(r.partition) && !instance->has_come(n, r))
          return g.describe(r.source) + in(iteration);
      for (const FramePlan& f : mine_.frames) {
        const bool is_to_begin = f.parent == instance->number &&
                                 !iteration.children[static_cast<std::size_t>(f.child_slot)];
        if (const PartitionPlan::Receive* edge = is_to_begin ? edge_into(f) : nullptr)
          return fmt::format("{} in loop '{}'{}", g.describe(edge->source), f.name, in(iteration));
      }
    }
    const PartitionPlan::Receive* edge =
        instance->parent && !instance->frame->function ? edge_into(*instance->frame) : nullptr;
    if (!edge || instance->at(instance->opened - 1)->fate == Iteration::Fate::ends) continue;
    if (const auto missing = missing_from(*instance, node))
      return fmt::format("{} in iteration {} of loop '{}', if there is one",
                         g.describe(missing->first->source), missing->second,
                         instance->frame->name);
  }
  if (mine_.has_cut_function) {  // whatever of the run is left may make calls
    for (const FramePlan& f : mine_.frames)
      if (const PartitionPlan::Receive* edge = f.function ? edge_into(f) : nullptr)
        return fmt::format("{} in a call of '{}', if there is one", g.describe(edge->source),
                           f.name);
    for (const PartitionPlan::Receive& r : mine_.receives)
      if (r.says == PartitionPlan::Says::over && is_of(r.partition) &&
          !record.came_over[static_cast<std::size_t>(r.place)])
        return "that it makes no more calls";
  }
  for (const Record::Held& held : record.held) {
    const PartitionPlan::Send& send = mine_.sends[static_cast<std::size_t>(held.send)];
    const PartitionPlan& to = plan_->partitions[static_cast<std::size_t>(send.partition)];
    if (to.node == node)
      return fmt::format("a grant for {}{}", g.describe(send.source), in(*held.iteration));
  }
  return {};
}

// Of an execution that may open more iterations: what that node sends for the first of them for
// which it has not come; none: the last predicate waits here, with all that comes from there for
// the iterations up to that one.
std::optional<std::pair<const PartitionPlan::Receive*, std::int64_t>> Partition::missing_from(
    const Instance& instance, std::int32_t node) const {
  const auto receive = [&](std::int32_t r) -> const PartitionPlan::Receive& {
    return mine_.receives[static_cast<std::size_t>(r)];
  };
  const auto is_its = [&](std::int32_t r) {
    return plan_->partitions[static_cast<std::size_t>(receive(r).partition)].node == node;
  };
  const std::vector<std::int32_t>& edges = instance.frame->edges_in;
  const auto within = std::find_if(edges.begin(), edges.end(), [&](std::int32_t r) {
    return is_its(r) && receive(r).frame != instance.number;
  });
  if (within != edges.end()) return std::pair{&receive(*within), instance.opened};
  const auto is_last = [&](const Token& token) {
    if (!receive(token.receive).decides || receive(token.receive).frame != instance.number)
      return false;
    const Tensor& goes_on = token.value.tensor();
    return token.is_dead || (goes_on.has_value() && goes_on.is_on_host() &&
                             goes_on.shape().elements() == 1 && goes_on.at(0) == 0);
  };
  for (std::int64_t n = instance.opened;; ++n) {
    const bool may_have_come = n < instance.oldest + instance.frame->known;
    for (const std::int32_t r : edges)
      if (is_its(r) && !(may_have_come && instance.has_come(n, receive(r))))
        return std::pair{&receive(r), n};
    if (instance.early.any_of(instance.known_place(n), is_last)) return std::nullopt;
  }
}

// Nothing outside refers to the run's iterations any more.
void Partition::discard(Record& record) {
  for (const auto& instance : instances_)
    if (instance->record == &record && instance.get() != record.root) {
      discard(*instance);
      spare_instances_[static_cast<std::size_t>(instance->number)].push_back(instance.get());
    }
  if (record.root) discard(*record.root);
  record.held.clear();
  record.kept_calls.clear();
  end(record);
}

void Partition::discard(Instance& instance) {
  for (; instance.oldest < instance.opened; ++instance.oldest) {
    Iteration*& slot =
        instance.ring[static_cast<std::size_t>(instance.oldest) % instance.ring.size()];
    if (!slot) continue;
    for (const PlanNode& node : instance.frame->nodes)
      if ((slot->awaited[static_cast<std::size_t>(node.place)] & Iteration::kCount) > 0)
        ++skipped_[static_cast<std::size_t>(node.index)];
    for (Value& v : slot->values) v.reset();
    std::fill(slot->children.begin(), slot->children.end(), nullptr);
    slot->undecided.clear();
    spare_iterations_[static_cast<std::size_t>(instance.number)].push_back(slot);
    slot = nullptr;
  }
  instance.reset();
}

// What it held of a run, so that another may take it; the storage stays.
void Instance::reset() {
  for (Value& v : invariants) v.reset();
  waiting.clear();
  early.clear();  // also what a faulty node sent for iterations that never began
  on_way.clear();
  has_large = is_advancing = false;
  record = nullptr;
}

}  // namespace troupe
