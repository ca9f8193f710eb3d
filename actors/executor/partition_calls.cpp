// Calls of functions that are not replaced by their bodies: in one partition, or over several.
//
// A function whose nodes are in several partitions has one of them as its *home*. Its Arguments,
// its Returns and all Calls are there. So its arguments and results come and go over edges of the
// callers' frames and of its own, like any other value. The home sends `begins` to every other
// partition with a part, and each of them answers `ended`.
//
// Invariants, argued in Note [Calls over partitions] in PROTOCOL.md:
// 1. `CallTable` gives each call a slot and a number. Tokens and grants of the body's edges carry
//    the number in place of what is around the call.
// 2. No token is lost or taken twice: a token that overtakes its `begins` waits in the slot.
// 3. Every call ends in every partition: a part is drained by counting, like an iteration.
// 4. Slots bound memory (`kCalls` calls a function and depth, `call_depth` deep) and block no call
//    for ever.
// 5. The instances of an abandoned run are discarded like any others.
#include <troupe/actors/executor/firing_rule.hpp>

#include <algorithm>

#include <troupe/devices/base/fault_injection.hpp>
#include <troupe/ops/graph/function_def.hpp>

namespace troupe::detail {

void Partition::call(IterationState& from, const PlanNode& node) {
  load_bound_inputs(mine_, from, node);
  const FramePlan& frame = mine_.frames[static_cast<std::size_t>(
      mine_.calls[static_cast<std::size_t>(node.number)].frame)];
  if (from.instance->depth >= plan_->call_depth) {
    failures_.fail(
        *from.instance->run_state->run, &node,
        Status(Code::resource_exhausted, too_deep(*frame.function, plan_->call_depth,
                                                  plan_->program.graph.node(node.source).site)));
    finish_dead(from, node);
    return;
  }
  const std::int32_t function = mine_.calls[static_cast<std::size_t>(node.number)].frame;
  CallSlot* slot = nullptr;
  std::int64_t named = 0;
  if (!frame.begins.empty()) {
    CallTable& calls = from.instance->run_state->calls;
    slot = calls.free_slot(function, from.instance->depth + 1, named);
    if (!slot) {  // another as deep will end
      calls.block({&from, &node});
      observer_.call_blocked();
      return;
    }
  }
  FrameState& callee = frames_.take(from, function, observer_.now());
  callee.caller = &node;
  ++callee.depth;
  callee.call = named;
  callee.enters_pending = 1;  // the call must not end until its arguments are delivered
  IterationState& it = open(callee);
  if (slot) {
    slot->open = &callee;
    for (std::int32_t begins : frame.begins) {
      Value tag = Tensor::scalar(it.tag);
      edges_.post(it, begins, &tag);
    }
  }
  for (std::int32_t i = 0; i < node.inputs; ++i)
    deliver_all(it, frame.arguments[static_cast<std::size_t>(i)],
                std::move(from.values[static_cast<std::size_t>(node.first_input + i)]));
  callee.enters_pending = 0;
  if (is_planted(Planted::call_not_waited_for)) deliver_call_end(callee);
  advance(callee);
}

// Tells the Calls' control successors that all of a call has ended.
void Partition::deliver_call_end(const FrameState& callee) {
  const std::int32_t* ranges = mine_.output_targets.data() + callee.caller->first_output;
  const TargetRange controls{ranges[2 * callee.caller->outputs],
                             ranges[2 * callee.caller->outputs + 1]};
  if (callee.run_state->run->is_poisoned()) deliver_all_dead(*callee.parent, controls);
  else deliver_controls(*callee.parent, controls);
}

// Passes the value of a Return to the users of the call. `value`: null if it is dead.
void Partition::deliver_result(IterationState& iteration, const PlanNode& node, Value* value) {
  const FrameState& instance = *iteration.instance;
  const std::int32_t* range =
      mine_.output_targets.data() + instance.caller->first_output + 2 * node.number;
  if (value) deliver_all(*instance.parent, {range[0], range[1]}, std::move(*value));
  else deliver_all_dead(*instance.parent, {range[0], range[1]});
  fired(iteration);
}

// ---- functions in several partitions

// A token inside a function, or that there will be no more calls.
void Partition::receive_in_call(RunState& run_state, Token& token) {
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  if (receive.says == PartitionPlan::Says::over) {
    if (run_state.calls.note_over(receive.place)) leave_if_over(run_state);
    else edges_.refuse(*run_state.run, receive, "that had come");
    return;
  }
  const std::int64_t call = token.path.number[0], before = CallTable::calls_before(call);
  CallSlot* slot = run_state.calls.slot_of(receive.function, call);
  const bool is_made_here = mine_.frames[static_cast<std::size_t>(receive.function)].home == index_;
  if (slot && before < slot->ended) {
    edges_.refuse(*run_state.run, receive, "for a call that has ended");
  } else if (!slot || before > slot->ended || (is_made_here && !slot->open)) {
    edges_.refuse(*run_state.run, receive, "for a call that was not made");
  } else if (slot->open) {
    edges_.receive(*slot->open, token);
  } else if (receive.says == PartitionPlan::Says::begins) {
    begin_part(*slot, run_state, token);
  } else if (const char* why = edges_.why_refused_early(token, receive.function, slot->early, 0)) {
    if (token.times == 1) edges_.refuse(*run_state.run, receive, why);
    else edges_.receive_one_by_one(run_state, token);
  } else {
    slot->early.add(0, 1, std::move(token));
  }
}

// A call that was made elsewhere.
void Partition::begin_part(CallSlot& slot, RunState& run_state, Token& token) {
  ++run_state.calls.elsewhere.unfired;
  FrameState& part = frames_.take(run_state.calls.elsewhere,
                                  mine_.receives[static_cast<std::size_t>(token.receive)].function,
                                  observer_.now());
  part.call = token.path.number[0];
  part.depth = CallTable::depth_of(part.call);
  part.enters_pending = 1;  // the part must not end until its future tokens are delivered
  slot.open = &part;
  open(part).tag = token.value.tensor().item<std::uint64_t>();
  edges_.receive(part, token);
  for (std::int32_t entry = slot.early.take(0), next; entry != FutureTokens::kNone; entry = next) {
    next = slot.early.after(entry);
    Token waited = std::move(slot.early.token(entry));
    slot.early.drop(entry);
    edges_.receive(part, waited);
  }
  part.enters_pending = 0;
  advance(part);
}

// Ends a call here. Returns the iteration that has one thing less to wait for.
IterationState* Partition::call_ended(RunState& run_state, FrameState& instance) {
  const FramePlan& frame = *instance.frame;
  const bool is_made_here = frame.home == index_;
  if (is_made_here && frame.begins.empty()) return instance.parent;
  CallTable& calls = run_state.calls;
  calls.slot_of(instance.number, instance.call)->end();
  if (!is_made_here) {
    edges_.post_call(run_state, frame.tells, instance.call);
    --calls.elsewhere.unfired;
    leave_if_over(run_state);
    return nullptr;
  }
  const auto is_next = [&](const ReadyNode& blocked) {
    return blocked.iteration->instance->depth + 1 == instance.depth &&
           mine_.calls[static_cast<std::size_t>(blocked.node->number)].frame == instance.number;
  };
  // in a run that has failed no blocked Call takes the slot: all of them are dead
  calls.unblock(run_state.run->is_poisoned(), is_next,
                [&](const ReadyNode& blocked) { enable(*blocked.iteration, *blocked.node); });
  return instance.parent;
}

// Called when everything of the run has fired here, except calls that other partitions may make.
void Partition::mark_drained(RunState& run_state) {
  run_state.calls.is_drained = true;
  for (std::int32_t over : mine_.overs) edges_.post_call(run_state, over, -1);
  leave_if_over(run_state);
}

void Partition::leave_if_over(RunState& run_state) {
  if (!run_state.calls.is_drained || !run_state.calls.are_all_over()) return;
  // All callers have sent `over`. A part that is still open was begun by a faulty cluster node.
  if (run_state.calls.elsewhere.unfired == 1) end(run_state);
  else abandon(run_state.run);
}

}  // namespace troupe::detail
