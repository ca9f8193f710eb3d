// Calls of functions that are not replaced by their bodies: in one partition, or over several.
//
// A function whose nodes are in several partitions has one of them as its *home*: its Arguments,
// Returns and all Calls are there, so its arguments and results come and go over edges of the
// callers' frames and of its own like any other value.
//
//   home                                                 another partition with part of the body
//   Call fires: takes a free place for its depth,
//   makes its own part of the call ── begins(tag) ─────► makes an instance of its part
//        │  ◄═════════ tokens and grants of cut edges, by the call's number ═════════►  │
//   waits for an `ended` of each ◄──────── ended ─────── all of it has fired and all its tokens have come
//   the Call has fired, its place is free
//   ... all outer Calls have fired ─────── over ───────► leaves the run when all who make outer calls have said so
//
// Numbers. A place is (depth of the call, which of `Plan::kCalls`); a call's number is (its place,
// how many ended there before). Tokens and grants of the body's edges carry it in the place of what
// is around the call, so a path is as long as the function's own loops, however deep calls nest,
// and finding an instance is two array indexings. In all else edges within a body are as those of
// loops: the instance has one iteration, so it needs no grants; loops within have theirs.
//
// No token is lost or taken twice. A token that overtakes its `begins` waits with the place. A
// place is used again when its call has ended in the home, which has then heard `ended` of every
// part; a part says that when all tokens into it have come. So no token of an earlier call of a
// place is on its way when a later one begins, and who knows how many ended there tells an early
// token from a late or false one, by its number. Grants may come late: they are dropped by it too.
// Every call ends in every partition. A part is drained by counting, like an iteration: every edge
// carries its token, live or dead, in every call that has begun, also in a run that has failed. A
// dead Call, and one that fires in a failed run, begins nothing anywhere. A partition cannot see by
// its own counts that no call will come: it leaves when everything of its own has fired and all
// others that make outer calls (outside of functions) have said `over`, which they do when theirs
// have all fired: then every call inside those has ended, and all parts of them. Nobody's own
// firing waits for an `over`, so these wait for each other in no circle. It does not hang. Of the
// calls under way take one that is deepest. It has no calls inside, so it is a loop over
// partitions, as it were, which does not block (test/model/frame.pml). When it has ended, a Call of
// the same depth takes its place. So the places bound memory (`kCalls` calls a function and depth,
// `call_depth` deep) and hold nobody up for good: a call waits for deeper ones only, since it fires
// when all its arguments and the effects before it are there. (As with loops' windows, who has
// calls side by side wait for each other through a queue must not need more of them than that.) A
// call of a function in one partition takes no place. Runs that are given up: the instances are
// discarded like any others. Losses: a partition with part of a function on a lost node counts that
// as awaited until the run has left it, for who can call may call again. test/model/call.pml has
// all this in every interleaving.
#include <troupe/actors/executor/partition_tokens.hpp>

#include <algorithm>

#include <troupe/devices/base/planted.hpp>
#include <troupe/ops/graph/function_def.hpp>

namespace troupe {

void Partition::call(Iteration& from, const PlanNode& node) {
  take_held(from, node);
  const FramePlan& frame = mine_.frames[static_cast<std::size_t>(
      mine_.calls[static_cast<std::size_t>(node.number)].frame)];
  if (from.instance->depth >= plan_->call_depth) {
    fail(*from.instance->record->run, &node,
         Status(Code::resource_exhausted, too_deep(*frame.function, plan_->call_depth,
                                                   plan_->program.graph.node(node.source).site)));
    finish_dead(from, node);
    return;
  }
  const std::int32_t function = mine_.calls[static_cast<std::size_t>(node.number)].frame;
  CallPlace* place = nullptr;
  std::int64_t named = 0;
  if (!frame.begins.empty()) {
    place = free_place(*from.instance->record, function, from.instance->depth + 1, named);
    if (!place) {  // another as deep will end
      from.instance->record->kept_calls.push_back({&from, &node});
      add(kept_calls_);
      return;
    }
  }
  Instance& callee = take_instance(from, function);
  callee.caller = &node;
  ++callee.depth;
  callee.call = named;
  callee.enters_pending = 1;  // until the arguments are delivered: nothing ends meanwhile
  Iteration& it = open(callee);
  if (place) {
    place->open = &callee;
    for (std::int32_t begins : frame.begins) {
      Value tag = Tensor::scalar(it.tag);
      post(it, begins, &tag);
    }
  }
  for (std::int32_t i = 0; i < node.inputs; ++i)
    deliver_all(it, frame.arguments[static_cast<std::size_t>(i)],
                std::move(from.values[static_cast<std::size_t>(node.first_input + i)]));
  callee.enters_pending = 0;
  if (is_planted(Planted::call_not_waited_for)) tell_of(callee);
  advance(callee);
}

// To those who wait for all of a call.
void Partition::tell_of(const Instance& callee) {
  const std::int32_t* ranges = mine_.output_targets.data() + callee.caller->first_output;
  const TargetRange controls{ranges[2 * callee.caller->outputs],
                             ranges[2 * callee.caller->outputs + 1]};
  if (callee.record->run->is_poisoned()) deliver_all_dead(*callee.parent, controls);
  else deliver_controls(*callee.parent, controls);
}

// A Return: to the users of the call. `value`: null if it is dead.
void Partition::give_back(Iteration& iteration, const PlanNode& node, Value* value) {
  const Instance& instance = *iteration.instance;
  const std::int32_t* range =
      mine_.output_targets.data() + instance.caller->first_output + 2 * node.number;
  if (value) deliver_all(*instance.parent, {range[0], range[1]}, std::move(*value));
  else deliver_all_dead(*instance.parent, {range[0], range[1]});
  fired(iteration);
}

// ---- functions in several partitions

// Where a call that is so deep may begin, and its number; null: nowhere for now.
CallPlace* Partition::free_place(Record& record, std::int32_t function, std::int32_t depth,
                                 std::int64_t& call) {
  const std::int64_t first = std::int64_t{depth - 1} * Plan::kCalls;
  for (std::int64_t k = 0; k < Plan::kCalls; ++k) {
    CallPlace& place = *place_of(record, function, first + k);
    if (place.open) continue;
    call = place.ended << kPlaceBits | (first + k);
    return &place;
  }
  return nullptr;
}

// Of a call by its number; null: there is no such place.
CallPlace* Partition::place_of(Record& record, std::int32_t function, std::int64_t call) {
  const auto place = static_cast<std::size_t>(call & ((std::int64_t{1} << kPlaceBits) - 1));
  const std::size_t depth = place / Plan::kCalls, which = place % Plan::kCalls;
  if (depth >= static_cast<std::size_t>(plan_->call_depth)) return nullptr;
  auto& by_depth = record.calls[static_cast<std::size_t>(function)];
  if (depth >= by_depth.size()) by_depth.resize(depth + 1);
  if (which >= by_depth[depth].size()) by_depth[depth].resize(which + 1);
  return &by_depth[depth][which];
}

// A token inside a function, or that there will be no more calls.
void Partition::accept_in_call(Record& record, Token& token) {
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  if (receive.says == PartitionPlan::Says::over) {
    if (std::exchange(record.came_over[static_cast<std::size_t>(receive.place)], 1))
      refuse(*record.run, receive, "that had come");
    else leave_if_over(record);
    return;
  }
  const std::int64_t call = token.path.number[0], before = call >> kPlaceBits;
  CallPlace* place = place_of(record, receive.function, call);
  const bool is_made_here = mine_.frames[static_cast<std::size_t>(receive.function)].home == index_;
  if (place && before < place->ended) {
    refuse(*record.run, receive, "for a call that has ended");
  } else if (!place || before > place->ended || (is_made_here && !place->open)) {
    refuse(*record.run, receive, "for a call that was not made");
  } else if (place->open) {
    accept_at(*place->open, token);
  } else if (receive.says == PartitionPlan::Says::begins) {
    begin_part(*place, record, token);
  } else if (const char* why = why_refused_early(token, receive.function, place->early, 0)) {
    if (token.times == 1) refuse(*record.run, receive, why);
    else accept_one_by_one(record, token);
  } else {
    place->early.add(0, 1, std::move(token));
  }
}

// A call that was made elsewhere.
void Partition::begin_part(CallPlace& place, Record& record, Token& token) {
  ++record.elsewhere.unfired;
  Instance& part = take_instance(record.elsewhere,
                                 mine_.receives[static_cast<std::size_t>(token.receive)].function);
  part.call = token.path.number[0];
  part.depth = static_cast<std::int32_t>((part.call & ((std::int64_t{1} << kPlaceBits) - 1)) /
                                         Plan::kCalls) +
               1;
  part.enters_pending = 1;  // until what was early is delivered: nothing ends meanwhile
  place.open = &part;
  open(part).tag = token.value.tensor().item<std::uint64_t>();
  accept_at(part, token);
  for (std::int32_t entry = place.early.take(0), next; entry != EarlyTokens::kNone; entry = next) {
    next = place.early.after(entry);
    Token waited = std::move(place.early.token(entry));
    place.early.drop(entry);
    accept_at(part, waited);
  }
  part.enters_pending = 0;
  advance(part);
}

// The iteration that is done with it.
Iteration* Partition::call_ended(Record& record, Instance& instance) {
  const FramePlan& frame = *instance.frame;
  const bool is_made_here = frame.home == index_;
  if (is_made_here && frame.begins.empty()) return instance.parent;
  CallPlace& place = *place_of(record, instance.number, instance.call);
  place.open = nullptr;
  ++place.ended;
  if (!is_made_here) {
    tell(record, frame.tells, instance.call);
    --record.elsewhere.unfired;
    leave_if_over(record);
    return nullptr;
  }
  const bool is_poisoned = record.run->is_poisoned();  // then none of them takes the place
  auto& kept = record.kept_calls;
  for (std::size_t k = 0; k < kept.size();) {
    const bool is_next =
        kept[k].iteration->instance->depth + 1 == instance.depth &&
        mine_.calls[static_cast<std::size_t>(kept[k].node->number)].frame == instance.number;
    if (!is_next && !is_poisoned) {
      ++k;
      continue;
    }
    enable(*kept[k].iteration, *kept[k].node);
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(k));
    if (!is_poisoned) break;
  }
  return instance.parent;
}

// What is no value of an iteration. `call`: -1 for what is outside of all.
void Partition::tell(Record& record, std::int32_t send, std::int64_t call) {
  const PartitionPlan::Send& to = mine_.sends[static_cast<std::size_t>(send)];
  // as in `post`
  if (record.run->is_poisoned() && !plan_->is_here(static_cast<std::size_t>(to.partition))) return;
  count_sent(record, send, 1, 0);
  Token token{record.run, to.receive, false, {}, {}};
  if (call >= 0) token.path.depth = 1, token.path.number[0] = call;
  record_sent(token, to);
  has_posted_ |= driver_.post(to.partition, std::move(token));
}

// Everything of the run has fired here, but for what others may still call.
void Partition::through(Record& record) {
  record.is_through = true;
  for (std::int32_t over : mine_.overs) tell(record, over, -1);
  leave_if_over(record);
}

void Partition::leave_if_over(Record& record) {
  const bool is_over = std::all_of(record.came_over.begin(), record.came_over.end(),
                                   [](char came) { return came != 0; });
  if (!record.is_through || !is_over) return;
  if (record.elsewhere.unfired == 1) end(record);
  else abandon(record.run);  // a faulty node began calls that nobody made: what is left is of those
}

void Partition::forget_calls(Record& record) {
  for (auto& by_depth : record.calls)
    for (auto& places : by_depth)
      for (CallPlace& place : places) {
        place.open = nullptr;
        place.ended = 0;
        place.early.clear();
      }
}

}  // namespace troupe
