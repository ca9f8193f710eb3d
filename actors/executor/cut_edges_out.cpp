// Cut edges: tokens that leave, or wait for credit, and the batch of tokens for other nodes.
#include <troupe/actors/executor/cut_edges.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/fault_injection.hpp>
#include <troupe/devices/list/list_walk.hpp>

namespace troupe {

namespace {

// Returns the list with its elements where they are. Elements that were swapped out are sent from
// the host.
Value at_rest(const Value& value) {
  return with_tensors(value, nullptr, [](const Tensor& t) { return t; });
}

}  // namespace

CutEdges::CutEdges(const Plan& plan, const PartitionPlan& mine, PartitionDriver& driver,
                   const RunStates& runs, const FramePool& frames, DeviceStream& stream,
                   PartitionObserver& observer, RunFailures& failures, Client& client)
    : plan_(plan), mine_(mine), driver_(driver), runs_(runs), frames_(frames), stream_(stream),
      observer_(observer), failures_(failures), client_(client), going_(mine.sends.size()) {
  are_going_.reserve(mine.sends.size());
}

// ---- credit and room

void CutEdges::send(IterationState& from, std::int32_t send, Value* value) {
  if (extend(from, send, value)) return;
  const bool is_granted_now = is_granted(from, mine_.sends[static_cast<std::size_t>(send)]);
  if (is_granted_now &&
      (!value || !holds_bytes(*value) || has_room(from, send, bytes_of(*value)))) {
    post(from, send, value);
    return;
  }
  ++from.unfired;  // stays open until it is sent
  observer_.token_held(is_granted_now);
  constexpr std::size_t kLookedAt = 4;  // edges that hold tokens of a loop back at a time, mostly
  auto& held = from.instance->run_state->held;
  for (std::size_t back = 1; back <= std::min(held.size(), kLookedAt); ++back) {
    RunState::Held& h = held[held.size() - back];
    if (h.send != send || !h.iteration || h.iteration->instance != from.instance ||
        h.iteration->number + h.times != from.number)
      continue;
    if (!from.instance->is_in_loop() || !is_same_token(h.is_dead, h.value, value)) break;
    ++h.times;
    return;
  }
  held.push_back({send, &from, value == nullptr, value ? std::move(*value) : Value()});
}

bool CutEdges::is_granted(const IterationState& from, const PartitionPlan::Send& to) const {
  const IterationState* it = &from;
  for (std::int32_t d = from.instance->frame->depth; d > 0; --d) {
    if (it->number > it->instance->granted[static_cast<std::size_t>(to.place[d - 1])]) return false;
    it = it->instance->parent;
  }
  return true;
}

// Returns true if so many bytes more may be in flight, and counts them.
bool CutEdges::has_room(const IterationState& from, std::int32_t send, std::uint64_t bytes) {
  FrameState& instance = *from.instance;
  if (bytes < large() || instance.frame->depth == 0) return true;
  std::uint64_t sum = bytes;
  for (const FrameState::OnWay& t : instance.on_way)
    if (t.send == send) sum += t.bytes;
  const std::int32_t place =
      mine_.sends[static_cast<std::size_t>(send)].place[instance.frame->depth - 1];
  const bool is_oldest = from.number <= instance.granted[static_cast<std::size_t>(place)] -
                                            mine_.sends[static_cast<std::size_t>(send)].window + 1;
  if (sum > plan_.edge_bytes && sum > bytes && !is_oldest) return false;
  instance.on_way.push_back({send, from.number, bytes});
  observer_.bytes_on_way(sum);
  return true;
}

// Grants overtake each other and may come late: the highest counts, and one for an instance that
// has ended is dropped.
void CutEdges::receive(const Grant& grant) {
  RunState* run_state = runs_.find(*grant.run);
  if (!run_state || run_state->is_abandoned) return;
  add(run_state->handled);
  const PartitionPlan::Send& send = mine_.sends[static_cast<std::size_t>(grant.send)];
  FrameState* const instance = instance_of(*run_state, send, grant.path);
  if (!instance) return;
  if (grant.last <= instance->granted[static_cast<std::size_t>(send.place[grant.path.depth - 1])])
    return;
  const std::int32_t window =
      send.frame == instance->number ? send.window : instance->frame->window;
  // a receiver without this edge's token of an iteration has not ended that iteration
  if (grant.last >= instance->opened + window) {
    if (!plan_.is_here(static_cast<std::size_t>(send.partition)))
      driver_.refused(*grant.run, send.partition,
                      fmt::format("a grant of iteration {} of '{}', where none was sent since {}",
                                  grant.last, instance->frame->name, instance->opened - 1));
    return;
  }
  const auto goes_there = [&](std::int32_t edge) {
    return mine_.sends[static_cast<std::size_t>(edge)].partition == send.partition;
  };
  for (std::size_t place = 0; place < instance->granted.size(); ++place)
    if (goes_there(instance->frame->edges_out[place])) instance->granted[place] = grant.last;
  const std::int64_t oldest = grant.last - window + 1;
  std::erase_if(instance->on_way, [&](const FrameState::OnWay& t) {
    return goes_there(t.send) && t.number < oldest;
  });
  // The granting partition may be idle until these tokens come, so they are sent at once. If the
  // edge's iteration window exceeds the frame's, it has others.
  const bool receiver_has_tokens = window > instance->frame->window;
  if (retry_held(*run_state, send.partition) && !receiver_has_tokens) flush();
}

// Returns the instance of the frame at the path's end; null: it is not open.
template <class End>  // PartitionPlan::Send or PartitionPlan::Receive
FrameState* CutEdges::instance_of(RunState& run_state, const End& edge, const Path& path) {
  const auto frame_at = [&](std::int32_t depth) {
    std::int32_t frame = edge.frame;
    while (mine_.frames[static_cast<std::size_t>(frame)].depth > depth)
      frame = mine_.frames[static_cast<std::size_t>(frame)].parent;
    return static_cast<std::size_t>(frame);
  };
  FrameState* instance = run_state.root;
  std::int32_t d = 1;
  if (edge.function >= 0) {
    const CallSlot* slot = run_state.calls.slot_of(edge.function, path.number[0]);
    instance = slot && slot->open && slot->open->call == path.number[0] ? slot->open : nullptr;
    if (!instance) return nullptr;
    d = 2;
  }
  for (; d <= path.depth; ++d) {
    const std::int64_t n = d == 1 || instance->frame->function ? 0 : path.number[d - 2];
    if (n < instance->oldest || n >= instance->opened) return nullptr;
    instance =
        instance->at(n)->children[static_cast<std::size_t>(mine_.frames[frame_at(d)].child_slot)];
    if (!instance || instance == frames_.ended()) return nullptr;
  }
  return instance;
}

// Sends buffered tokens for a partition that has granted more. Returns true if some were sent.
bool CutEdges::retry_held(RunState& run_state, std::int32_t partition) {
  auto& held = run_state.held;
  // Returns how many of the token's iterations may be sent, from the first on.
  const auto may_go = [&](const RunState::Held& token) {
    const PartitionPlan::Send& send = mine_.sends[static_cast<std::size_t>(token.send)];
    if (send.partition != partition) return 0;
    FrameState& instance = *token.iteration->instance;
    std::int32_t n = 0;
    while (n < token.times && is_granted(*instance.at(token.iteration->number + n), send)) ++n;
    return n == 1 && holds_bytes(token.value) &&
                   !has_room(*token.iteration, token.send, bytes_of(token.value))
               ? 0
               : n;
  };
  bool any_went = false;
  // tokens that stay move to the front, in order; entries between are empty
  std::size_t kept = 0, next = 0;
  const auto drop_empty = [&] {
    if (next <= held.size())
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(kept),
                 held.begin() + static_cast<std::ptrdiff_t>(next));
  };
  try {
    while (next < held.size()) {
      const std::int32_t n = may_go(held[next]);
      RunState::Held going{held[next].send, held[next].iteration, held[next].is_dead, {}, n};
      if (n == held[next].times) {
        going.value = std::move(held[next].value);
        held[next++].iteration = nullptr;
      } else {
        if (n > 0) {
          going.value = held[next].value;
          held[next].iteration = going.iteration->instance->at(going.iteration->number + n);
          held[next].times -= n;
        }
        if (kept != next) {
          held[kept] = std::move(held[next]);
          held[next].iteration = nullptr;
        }
        ++kept, ++next;
      }
      if (n == 0) continue;
      any_went = true;
      let_go(going);
      // the run has ended, here or because of a faulty node: no token is buffered any more
      if (held.size() < next) return true;
    }
  } catch (...) {
    drop_empty();
    throw;
  }
  drop_empty();
  return any_went;
}

void CutEdges::let_go(RunState::Held& token) {
  FrameState& instance = *token.iteration->instance;  // stays until the last of these has fired
  const std::int64_t first = token.iteration->number;
  post(*token.iteration, token.send, token.is_dead ? nullptr : &token.value, token.times);
  for (std::int32_t i = 0; i < token.times; ++i) client_.held_token_sent(*instance.at(first + i));
}

// ---- sending

// A predicate is mostly the same as in the iteration before, so it mostly extends a run length.
void CutEdges::broadcast_predicate(IterationState& iteration, const Value* predicate,
                                   bool is_true) {
  for (const std::int32_t send : iteration.instance->frame->told) {
    TokenRunLength& going = going_[static_cast<std::size_t>(send)];
    if (is_true && going.says_true && is_next(going, iteration)) {
      extend(going);
      continue;
    }
    Value copy = predicate ? *predicate : Value();
    this->send(iteration, send, predicate ? &copy : nullptr);
  }
}

// A token that continues the batched one of its edge is added to it.
void CutEdges::post(IterationState& from, std::int32_t send, Value* value, std::int32_t times) {
  const PartitionPlan::Send& to = mine_.sends[static_cast<std::size_t>(send)];
  // A run over several nodes that has failed is abandoned on all of them. Tokens that follow from
  // the failure could arrive before the news of it, and would look like its cause.
  if (from.instance->run_state->run->is_poisoned() &&
      !plan_.is_here(static_cast<std::size_t>(to.partition)))
    return;
  count_sent(*from.instance->run_state, send, times, value ? bytes_sent(*value) : 0);
  if (going_[static_cast<std::size_t>(send)].token) count_gone(send);
  if (Token* before = driver_.waiting(to.partition, to.receive);
      before && goes_on(*before, from, value)) {
    before->times += times;
    if (observer_.traces()) observer_.record_sent(*before, to, before->times - times, times);
    else start_run_length(*before, from, send, times);
    if (before->times >= kTimesAMessage) flush();
    return;
  }
  Token token{
      from.instance->run_state->run, to.receive, value == nullptr, {}, path_to(from), times};
  observer_.record_sent(token, to, 0, observer_.traces() ? times : 1);
  if (is_planted(Planted::path_turned))
    std::reverse(token.path.number, token.path.number + token.path.depth);
  std::vector<Tensor> hosts;  // copies that are complete when the event after them is reached
  Value source;
  if (value && !stream_.is_synchronous()) {
    const std::uint64_t began = ticks();
    if (copy_to_peer(*value, to.partition)) {
      observer_.record_copy(*token.run, to.source, began);
      token.value = std::move(*value);
      has_posted_ |= driver_.post(to.partition, std::move(token));
      return;
    }
    source = at_rest(*value);
    each_tensor(source, [&](const Tensor& t) {
      if (!t.is_on_host()) hosts.push_back(stream_.start_copy_to_host(t));
    });
    observer_.record_copy(*token.run, to.source, began);
  }
  if (hosts.empty() && !source.is_list()) {
    if (value) token.value = std::move(*value);
    has_posted_ |= driver_.post(to.partition, std::move(token));
    return;
  }
  // The event keeps the source alive. By then the copies to the host have ended.
  stream_.stream().record()->then([this, to, token = std::move(token), hosts = std::move(hosts),
                                   source = std::move(source)](const Status&) mutable {
    auto next = hosts.begin();
    token.value = with_tensors(source, nullptr, [&](const Tensor& t) {
      return (t.is_on_host() ? t : *next++).reshaped(t.shape());
    });
    driver_.post_at_once(to.partition, std::move(token));
  });
}

// Moves a tensor to the receiver's device, if a copy by way of the host can be spared.
bool CutEdges::copy_to_peer(Value& value, std::int32_t partition) {
  Device* const peer = plan_.partitions[static_cast<std::size_t>(partition)].device;
  if (!peer || peer->is_synchronous() || value.kind() != Value::Kind::tensor ||
      value.tensor().is_on_host())
    return false;
  Tensor there = stream_.start_copy_to_peer(value.tensor(), *peer);
  if (!there.has_value()) return false;
  value = std::move(there);
  return true;
}

// A token of the call protocol carries no value.
void CutEdges::post_call(RunState& run_state, std::int32_t send, std::int64_t call) {
  const PartitionPlan::Send& to = mine_.sends[static_cast<std::size_t>(send)];
  // as in `post`
  if (run_state.run->is_poisoned() && !plan_.is_here(static_cast<std::size_t>(to.partition)))
    return;
  count_sent(run_state, send, 1, 0);
  Token token{run_state.run, to.receive, false, {}, {}};
  if (call >= 0) token.path.depth = 1, token.path.number[0] = call;
  observer_.record_sent(token, to);
  has_posted_ |= driver_.post(to.partition, std::move(token));
}

// ---- run lengths

// Returns true if the batched token stands for the iterations before, and for an equal token.
bool CutEdges::goes_on(const Token& token, const IterationState& from, const Value* value) {
  const FrameState& instance = *from.instance;
  const std::int32_t depth = instance.frame->depth;
  if (!from.instance->is_in_loop() || token.run.get() != instance.run_state->run.get() ||
      from.number != token.path.number[depth - 1] + token.times)
    return false;
  if (!is_same_token(token.is_dead, token.value, value)) return false;
  const IterationState* around = instance.parent;
  for (std::int32_t d = depth - 1; d > 0; --d, around = around->instance->parent)
    if (number_in_path(*around) != token.path.number[d - 1]) return false;
  return token.path.depth == depth;
}

// The token of the next iteration may extend this one with a shorter test.
void CutEdges::start_run_length(Token& token, const IterationState& from, std::int32_t send,
                                std::int32_t times) {
  const FrameState& instance = *from.instance;
  const std::int32_t place =
      mine_.sends[static_cast<std::size_t>(send)].place[instance.frame->depth - 1];
  const std::int64_t next = from.number + times;
  const std::int64_t end = std::min(instance.granted[static_cast<std::size_t>(place)] + 1,
                                    next - token.times + kTimesAMessage);
  if (next >= end) return;
  TokenRunLength& going = going_[static_cast<std::size_t>(send)];
  if (going.token) count_gone(send);
  else are_going_.push_back(send);
  going = {instance.execution, next, end, !token.is_dead && is_true(token.value), next, &token,
           instance.run_state};
}

// The run length has reached the grant, or the length of a message.
void CutEdges::close_run_length(TokenRunLength& going) {
  going.execution = TokenRunLength::kNone;
  if (going.token->times + (going.next - going.counted) >= kTimesAMessage) flush();
}

// Counts the iterations that were added since the last count.
void CutEdges::count_gone(std::int32_t send) {
  TokenRunLength& going = going_[static_cast<std::size_t>(send)];
  const auto times =
      static_cast<std::int32_t>(going.next - std::exchange(going.counted, going.next));
  going.token->times += times;
  count_sent(*going.run_state, send, times, bytes_sent(going.token->value));
}

void CutEdges::on_batch_sent() {
  for (const std::int32_t send : are_going_) {
    count_gone(send);
    going_[static_cast<std::size_t>(send)] = {};
  }
  are_going_.clear();
}

// `bytes`: of each token.
void CutEdges::count_sent(RunState& run_state, std::int32_t send, std::int32_t times,
                          std::uint64_t bytes) {
  const auto n = static_cast<std::uint64_t>(times);
  observer_.tokens_sent(send, n, n * bytes);
  run_state.sent += n;
}

}  // namespace troupe
