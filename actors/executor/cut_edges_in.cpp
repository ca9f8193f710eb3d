// Cut edges: tokens that arrive, and the credit that their receiver grants.
#include <troupe/actors/executor/cut_edges.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {

// The frames around a token's own are walked inwards, one a call.
void CutEdges::receive(FrameState& instance, Token& token) {
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  if (instance.number == receive.frame) return receive_here(instance, token);
  const std::int64_t n = number_in(instance, token);
  const char* why = why_refused(instance, n, instance.frame->window);
  const bool is_open = !why && n < instance.opened;
  if (is_open && instance.at(n)->children[static_cast<std::size_t>(
                     next_towards(receive.frame, instance.number).child_slot)] == frames_.ended())
    why = "for a loop that has ended";
  const char* why_not_all =
      why || is_open
          ? nullptr
          : why_refused_early(token, instance.number, instance.future, instance.known_place(n));
  if (why || (why_not_all && token.times == 1))
    refuse(*instance.run_state->run, receive, why ? why : why_not_all);
  else if (why_not_all) receive_one_by_one(*instance.run_state, token);
  else if (is_open) pass_on(*instance.at(n), token);
  else instance.future.add(instance.known_place(n), instance.known_places(), std::move(token));
}

// Tokens that go as one are received one after another, as if each had come by itself. Tokens whose
// iterations are not open wait as one.
void CutEdges::receive_here(FrameState& instance, Token& token) {
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  RunState& run_state = *instance.run_state;
  const std::uint64_t execution = instance.execution;
  const std::int64_t first = number_in(instance, token), end = first + token.times;
  const auto why_not = [&](std::int64_t n) {
    const char* why = why_refused(instance, n, receive.window);
    return why ? why : instance.has_received(n, receive) ? "that had come" : nullptr;
  };
  for (std::int64_t n = first; n < end; ++n) {
    // the token before this one has ended the run or the execution
    if (n > first && (run_state.run.get() != token.run.get() || instance.run_state != &run_state ||
                      instance.execution != execution)) {
      token.path.number[token.path.depth - 1] = n;
      token.times = static_cast<std::int32_t>(end - n);
      receive_one_by_one(run_state, token);
      return;
    }
    if (const char* why = why_not(n)) {
      refuse(*run_state.run, receive, why);
      continue;
    }
    instance.has_received(n, receive) = 1;
    if (n == first) note_large(instance, token);
    if (n < instance.opened) {
      client_.arrive(*instance.at(n), receive, token.is_dead,
                     n + 1 == end ? std::move(token.value) : Value(token.value));
      continue;
    }
    std::int64_t after = n + 1;
    for (; after < end && !why_not(after); ++after) instance.has_received(after, receive) = 1;
    const std::size_t place = instance.known_place(n), places = instance.known_places();
    Token& waits = after == end ? instance.future.add(place, places, std::move(token))
                                : instance.future.add(place, places, Token(token));
    if (waits.times > 1) waits.path.number[waits.path.depth - 1] = n;
    waits.times = static_cast<std::int32_t>(after - n);
    n = after - 1;
  }
}

// Each token is received or refused by itself.
void CutEdges::receive_one_by_one(RunState& run_state, const Token& token) {
  for (std::int32_t i = 0; i < token.times; ++i) {
    Token one = token;
    one.times = 1;
    one.path.number[one.path.depth - 1] += i;
    if (run_state.run.get() == token.run.get()) client_.receive_in(run_state, one);
    else
      refuse(*token.run, mine_.receives[static_cast<std::size_t>(token.receive)],
             "when all of its run was done");  // a token before this one has ended the run
  }
}

// Returns why a token for iteration n breaks the protocol; null: it does not, so far.
const char* CutEdges::why_refused(const FrameState& instance, std::int64_t n,
                                  std::int32_t window) const {
  if (n < instance.oldest) return "for an iteration that is done";
  return n - instance.oldest >= window ? "that it was not granted" : nullptr;
}

// No iteration of an execution that has not begun was granted beyond the first iteration window.
const char* CutEdges::why_refused_early(const Token& token, std::int32_t around,
                                        const FutureTokens& early, std::size_t place) const {
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  const auto last_of = [](const Token& t) { return t.path.number[t.path.depth - 1] + t.times - 1; };
  for (std::int32_t f = receive.frame; f != around;
       f = mine_.frames[static_cast<std::size_t>(f)].parent) {
    const FramePlan& frame = mine_.frames[static_cast<std::size_t>(f)];
    if (f == receive.frame ? last_of(token) >= receive.window
                           : token.path.number[frame.depth - 1] >= frame.window)
      return "that it was not granted";
  }
  const std::int32_t last = token.path.depth - 1;
  const auto has_one_of_them = [&](const Token& t) {
    return t.receive == token.receive &&
           std::equal(t.path.number, t.path.number + last, token.path.number) &&
           t.path.number[last] <= last_of(token) && token.path.number[last] <= last_of(t);
  };
  return early.any_of(place, has_one_of_them) ? "that had come" : nullptr;
}

// The token is dropped in both cases.
void CutEdges::refuse(Run& run, const PartitionPlan::Receive& edge, const char* why) {
  const std::string what =
      fmt::format("a token of {} {}", plan_.program.graph.describe(edge.source), why);
  if (plan_.is_here(static_cast<std::size_t>(edge.partition)))
    failures_.fail(run, nullptr, Status(Code::internal, what));
  else driver_.refused(run, edge.partition, what);
}

// The iteration is open, in an instance around the token's own.
void CutEdges::pass_on(IterationState& iteration, Token& token) {
  const FramePlan& next = next_towards(
      mine_.receives[static_cast<std::size_t>(token.receive)].frame, iteration.instance->number);
  receive(client_.instance_at(iteration, static_cast<std::int32_t>(&next - mine_.frames.data())),
          token);
}

// Returns the frame within `around` that is, or contains, `frame`.
const FramePlan& CutEdges::next_towards(std::int32_t frame, std::int32_t around) const {
  while (mine_.frames[static_cast<std::size_t>(frame)].parent != around)
    frame = mine_.frames[static_cast<std::size_t>(frame)].parent;
  return mine_.frames[static_cast<std::size_t>(frame)];
}

// The tokens of the iteration's slot are taken at once: each may add others.
void CutEdges::deliver_future(IterationState& iteration) {
  FrameState& instance = *iteration.instance;
  FutureTokens& early = instance.future;
  for (std::int32_t entry = early.take(instance.known_place(iteration.number)), next;
       entry != FutureTokens::kNone; entry = next) {
    next = early.after(entry);
    if (mine_.receives[static_cast<std::size_t>(early.token(entry).receive)].frame ==
        instance.number) {
      arrive_future(instance, iteration.number, entry);
      continue;
    }
    Token of_child = std::move(early.token(entry));
    early.drop(entry);
    pass_on(iteration, of_child);
  }
}

// Delivers a token of iteration n, which is open, and of the iterations behind it that are open by
// now. Tokens delivered before it may have opened these. The rest waits for the iteration that
// opens next.
void CutEdges::arrive_future(FrameState& instance, std::int64_t n, std::int32_t entry) {
  FutureTokens& early = instance.future;
  for (;; ++n) {
    Token& token = early.token(entry);
    const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
    const bool is_dead = token.is_dead, is_last = token.times == 1,
               has_to_wait = !is_last && n + 1 == instance.opened;
    Value value = is_last ? std::move(token.value) : token.value;
    if (is_last) {
      early.drop(entry);
    } else {
      ++token.path.number[token.path.depth - 1];
      --token.times;
    }
    // before the iteration's token arrives, by which the next may open
    if (has_to_wait) early.put_back(entry, instance.known_place(n + 1));
    client_.arrive(*instance.at(n), receive, is_dead, std::move(value));
    if (is_last || has_to_wait) return;
  }
}

// ---- credit

// The sender of a large token may hold another one until a grant names the oldest iteration.
void CutEdges::note_large(FrameState& instance, const Token& token) {
  if (instance.has_large || !instance.parent || bytes_of(token.value) < large()) return;
  instance.has_large = true;
  grant(instance, Credit::behind);
}

// The iteration window of the instance has moved. A sender is granted now, or when that is worth a
// message.
void CutEdges::grant(FrameState& instance, Credit credit) {
  for (const FramePlan::Sender& sender : instance.frame->senders) {
    const bool is_due = (instance.oldest & (sender.every - 1)) == 0;
    if (credit != Credit::all && is_due != (credit == Credit::due)) continue;
    const PartitionPlan::Receive& r = mine_.receives[static_cast<std::size_t>(sender.receive)];
    Grant message{instance.run_state->run, r.send, {}, instance.oldest + sender.window - 1};
    message.path.depth = instance.frame->depth;
    const IterationState* it = instance.parent;
    for (std::int32_t d = instance.frame->depth - 1; d > 0; --d, it = it->instance->parent)
      message.path.number[d - 1] = number_in_path(*it);
    has_posted_ |= driver_.post(r.partition, std::move(message));
  }
}

}  // namespace troupe
