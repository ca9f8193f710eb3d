// Runs that end before all of them has fired: abandoned runs, and runs of a node that is lost.
#include <troupe/actors/executor/partition.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace troupe::detail {

// ---- abandoned runs

// Called in a catch block. Tokens of the run may be missing from now on, so that counting would
// never end: the run is abandoned, here at once.
void Partition::give_up(const Ref<Run>& lost) {
  const Ref<Run> run = lost;
  abandon_elsewhere(run, false);
  kernels_.clear_scratch();
  if (runs_.find(*run)) abandon(run);
}

void Partition::abandon_elsewhere(const Ref<Run>& run, bool here_too) {
  const Status why = Status::from_current_exception();
  failures_.fail_at(
      *run, -1,
      Status(why.code(),
             fmt::format("sending values of the run failed, so the run was cancelled: {}",
                         why.message())));
  for (const std::int32_t p : plan_->partitions_on[static_cast<std::size_t>(plan_->here)])
    if (p != index_ || here_too) driver_.post_at_once(p, Abandon{run});
}

void Partition::abandon(Ref<Run> run) {
  if (run->enter(index_)) {  // it had not begun here
    run->leave();
    return;
  }
  RunState* run_state = runs_.find(*run);
  if (!run_state || run_state->is_abandoned) return;
  run_state->is_abandoned = true;
  add(run_state->handled);
  run_state->ready.each([&](const ReadyNode& r) { observer_.skipped(*r.node); });
  run_state->ready.clear();
  for (const ReadyNode& r : run_state->calls.blocked()) observer_.skipped(*r.node);
  if (run_state->under_way == 0) discard(*run_state);
}

// No kernel or message refers to the run's iterations any more.
void Partition::discard(RunState& run_state) {
  for (const auto& instance : frames_.instances())
    if (instance->run_state == &run_state && instance.get() != run_state.root) {
      discard(*instance);
      frames_.give_back(*instance);
    }
  if (run_state.root) discard(*run_state.root);
  run_state.held.clear();
  run_state.calls.clear_blocked();
  end(run_state);
}

void Partition::discard(FrameState& instance) {
  for (; instance.oldest < instance.opened; ++instance.oldest) {
    IterationState*& slot = instance.at(instance.oldest);
    if (!slot) continue;
    for (const PlanNode& node : instance.frame->nodes)
      if ((slot->awaited[static_cast<std::size_t>(node.place)] & IterationState::kCount) > 0)
        observer_.skipped(node);
    for (Value& v : slot->values) v.reset();
    std::fill(slot->children.begin(), slot->children.end(), nullptr);
    slot->pending_next.clear();
    frames_.give_back(*slot, instance.number);
    slot = nullptr;
  }
  instance.reset();
}

// ---- lost nodes

namespace {

// Returns the first missing token from the node, in an execution that may open more iterations.
// Empty: the last predicate is in `future`, and all tokens for the iterations up to it have
// arrived.
std::optional<std::pair<const PartitionPlan::Receive*, std::int64_t>> missing_from(
    const Plan& plan, const PartitionPlan& mine, const FrameState& instance, std::int32_t node) {
  const auto receive = [&](std::int32_t r) -> const PartitionPlan::Receive& {
    return mine.receives[static_cast<std::size_t>(r)];
  };
  const auto is_its = [&](std::int32_t r) {
    return plan.partitions[static_cast<std::size_t>(receive(r).partition)].node == node;
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
      if (is_its(r) && !(may_have_come && instance.has_received(n, receive(r))))
        return std::pair{&receive(r), n};
    if (instance.future.any_of(instance.known_place(n), is_last)) return std::nullopt;
  }
}

// Returns the first thing that the run awaits from the node: a token of an iteration that is open
// or may open, or a grant for a buffered token. Empty: it awaits nothing.
std::string awaited_from(const Plan& plan, const PartitionPlan& mine, const FramePool& frames,
                         const RunState& run_state, std::int32_t node) {
  const Graph& g = plan.program.graph;
  const auto is_of = [&](std::int32_t partition) {
    return plan.partitions[static_cast<std::size_t>(partition)].node == node;
  };
  const auto in = [](const IterationState& iteration) {
    return iteration.instance->parent ? " in " + tag_of(iteration) : std::string();
  };
  const auto edge_into = [&](const FramePlan& frame) -> const PartitionPlan::Receive* {
    for (std::int32_t r : frame.edges_in)
      if (is_of(mine.receives[static_cast<std::size_t>(r)].partition))
        return &mine.receives[static_cast<std::size_t>(r)];
    return nullptr;
  };
  for (const auto& instance : frames.instances()) {
    if (instance->run_state != &run_state) continue;
    for (std::int64_t n = instance->oldest; n < instance->opened; ++n) {
      const IterationState& iteration = *instance->at(n);
      for (const PartitionPlan::Receive& r : mine.receives)
        if (r.frame == instance->number && r.says != PartitionPlan::Says::over &&
            is_of(r.partition) && !instance->has_received(n, r))
          return g.describe(r.source) + in(iteration);
      for (const FramePlan& f : mine.frames) {
        const bool is_to_begin = f.parent == instance->number &&
                                 !iteration.children[static_cast<std::size_t>(f.child_slot)];
        if (const PartitionPlan::Receive* edge = is_to_begin ? edge_into(f) : nullptr)
          return fmt::format("{} in loop '{}'{}", g.describe(edge->source), f.name, in(iteration));
      }
    }
    const PartitionPlan::Receive* edge =
        instance->parent && !instance->frame->function ? edge_into(*instance->frame) : nullptr;
    if (!edge ||
        instance->at(instance->opened - 1)->continuation == IterationState::Continuation::ends)
      continue;
    if (const auto missing = missing_from(plan, mine, *instance, node))
      return fmt::format("{} in iteration {} of loop '{}', if there is one",
                         g.describe(missing->first->source), missing->second,
                         instance->frame->name);
  }
  if (mine.has_cut_function) {  // the rest of the run may make calls
    for (const FramePlan& f : mine.frames)
      if (const PartitionPlan::Receive* edge = f.function ? edge_into(f) : nullptr)
        return fmt::format("{} in a call of '{}', if there is one", g.describe(edge->source),
                           f.name);
    for (const PartitionPlan::Receive& r : mine.receives)
      if (r.says == PartitionPlan::Says::over && is_of(r.partition) &&
          !run_state.calls.is_over(r.place))
        return "that it makes no more calls";
  }
  for (const RunState::Held& held : run_state.held) {
    const PartitionPlan::Send& send = mine.sends[static_cast<std::size_t>(held.send)];
    const PartitionPlan& to = plan.partitions[static_cast<std::size_t>(send.partition)];
    if (to.node == node)
      return fmt::format("a grant for {}{}", g.describe(send.source), in(*held.iteration));
  }
  return {};
}

}  // namespace

// The run goes on if it awaits nothing from that node: all tokens have come.
void Partition::handle(NodeLost& lost) {
  start(lost.run);
  const RunState* run_state = runs_.find(*lost.run);
  if (!run_state || run_state->is_abandoned) return;
  const std::string awaited = awaited_from(*plan_, mine_, frames_, *run_state, lost.node);
  if (awaited.empty()) return;
  lost.run->fail(
      Status(lost.why.code(), fmt::format("{}; awaited from it: {}", lost.why.message(), awaited)));
}

}  // namespace troupe::detail
