// What enters and leaves a partition: tokens of cut edges and their grants, fetches.
#include <troupe/actors/executor/partition_tokens.hpp>

#include <algorithm>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include <troupe/devices/base/planted.hpp>
#include <troupe/devices/list/list_walk.hpp>
#include <troupe/ops/graph/transfer.hpp>

namespace troupe {
namespace {

std::int64_t number_in_path(const Iteration& iteration) {
  return iteration.instance->frame->function ? iteration.instance->call : iteration.number;
}

Path path_to(const Iteration& iteration) {
  Path path;
  path.depth = iteration.instance->frame->depth;
  const Iteration* it = &iteration;
  for (std::int32_t d = path.depth; d > 0; --d, it = it->instance->parent)
    path.number[d - 1] = number_in_path(*it);
  return path;
}

// A list whose elements lie where they lie now: what was swapped out is on the host, and goes from
// there.
Value at_rest(const Value& value) {
  return with_tensors(value, nullptr, [](const Tensor& t) { return t; });
}

// What a token adds to its edge's count: that of a scalar lies in it, and it holds no memory.
std::uint64_t bytes_sent(const Value& value) {
  return value.is_inline() ? size_of(value.dtype()) : bytes_of(value);
}

bool holds_bytes(const Value& value) { return value.has_value() && !value.is_inline(); }

bool is_in_loop(const Iteration& iteration) {
  return iteration.instance->frame->depth > 0 && !iteration.instance->frame->function;
}

}  // namespace

std::uint64_t bytes_of(const Value& value) {
  if (value.kind() == Value::Kind::tensor) return value.tensor().bytes();
  return value.is_list() ? value.list().bytes() : 0;
}

// ---- tokens from other partitions

Record* Partition::find(const Run& run) {
  for (Record* r : active_)
    if (r->run.get() == &run) return r;
  return nullptr;
}

// A partition cannot drain before all its tokens have come, so a token's run is either active here
// or has not started here yet; unless it was given up, or the token is one too many.
void Partition::accept(Token& token) {
  start(token.run);
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  add(received_[static_cast<std::size_t>(token.receive)].tokens,
      static_cast<std::uint64_t>(token.times));
  if (parked_ != 0) record_wait(token);
  record_received(token);
  if (Record* record = find(*token.run)) {
    add(record->handled);
    record->received += static_cast<std::uint64_t>(token.times);
    if (record->is_abandoned) return;
    accept_from_outside(*record, token);
  } else if (!token.run->is_poisoned()) {
    refuse(*token.run, receive, "when all of its run was done");
  }
}

// Of several those that make sense.
void Partition::accept_one_by_one(Record& record, const Token& token) {
  for (std::int32_t i = 0; i < token.times; ++i) {
    Token one = token;
    one.times = 1;
    one.path.number[one.path.depth - 1] += i;
    if (record.run.get() == token.run.get()) accept_from_outside(record, one);
    else
      refuse(*token.run, mine_.receives[static_cast<std::size_t>(token.receive)],
             "when all of its run was done");  // what followed from one has ended it
  }
}

void Partition::accept_from_outside(Record& record, Token& token) {
  if (mine_.receives[static_cast<std::size_t>(token.receive)].function < 0)
    accept_at(*record.root, token);
  else accept_in_call(record, token);
}

// Takes a token from an instance of a frame around its own, or of its own, to where it belongs.
void Partition::accept_at(Instance& instance, Token& token) {
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  if (instance.number == receive.frame) return accept_here(instance, token);
  const std::int64_t n = number_in(instance, token);
  const char* why = why_refused(instance, n, instance.frame->window);
  const bool is_open = !why && n < instance.opened;
  if (is_open && instance.at(n)->children[static_cast<std::size_t>(
                     next_towards(receive.frame, instance.number).child_slot)] == &over_)
    why = "for a loop that has ended";
  const char* why_not_all =
      why || is_open
          ? nullptr
          : why_refused_early(token, instance.number, instance.early, instance.known_place(n));
  if (why || (why_not_all && token.times == 1))
    refuse(*instance.record->run, receive, why ? why : why_not_all);
  else if (why_not_all) accept_one_by_one(*instance.record, token);
  else if (is_open) pass_on(*instance.at(n), token);
  else instance.early.add(instance.known_place(n), instance.known_places(), std::move(token));
}

// Of several tokens one after the other, as if each had come by itself, until the rest can wait
// together.
void Partition::accept_here(Instance& instance, Token& token) {
  const PartitionPlan::Receive& receive = mine_.receives[static_cast<std::size_t>(token.receive)];
  Record& record = *instance.record;
  const std::uint64_t execution = instance.execution;
  const std::int64_t first = number_in(instance, token), end = first + token.times;
  const auto why_not = [&](std::int64_t n) {
    const char* why = why_refused(instance, n, receive.window);
    return why ? why : instance.has_come(n, receive) ? "that had come" : nullptr;
  };
  for (std::int64_t n = first; n < end; ++n) {
    // what followed from the one before has ended it
    if (n > first && (record.run.get() != token.run.get() || instance.record != &record ||
                      instance.execution != execution)) {
      token.path.number[token.path.depth - 1] = n;
      token.times = static_cast<std::int32_t>(end - n);
      accept_one_by_one(record, token);
      return;
    }
    if (const char* why = why_not(n)) {
      refuse(*record.run, receive, why);
      continue;
    }
    instance.has_come(n, receive) = 1;
    if (n == first) note(instance, token);
    if (n < instance.opened) {
      arrive(*instance.at(n), receive, token.is_dead,
             n + 1 == end ? std::move(token.value) : Value(token.value));
      continue;
    }
    std::int64_t after = n + 1;
    for (; after < end && !why_not(after); ++after) instance.has_come(after, receive) = 1;
    const std::size_t place = instance.known_place(n), places = instance.known_places();
    Token& waits = after == end ? instance.early.add(place, places, std::move(token))
                                : instance.early.add(place, places, Token(token));
    if (waits.times > 1) waits.path.number[waits.path.depth - 1] = n;
    waits.times = static_cast<std::int32_t>(after - n);
    n = after - 1;
  }
}

// What no partition sends that keeps to the protocol, of a token for iteration n: null if it is all
// right so far.
const char* Partition::why_refused(const Instance& instance, std::int64_t n,
                                   std::int32_t window) const {
  if (n < instance.oldest) return "for an iteration that is done";
  return n - instance.oldest >= window ? "that it was not granted" : nullptr;
}

// The executions within `around` are yet to come: none of their iterations was granted beyond the
// first window. `early`: what waits for them already, at `place`.
const char* Partition::why_refused_early(const Token& token, std::int32_t around,
                                         const EarlyTokens& early, std::size_t place) const {
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

// Its iteration of an instance around its own is open.
void Partition::pass_on(Iteration& iteration, Token& token) {
  const FramePlan& next = next_towards(
      mine_.receives[static_cast<std::size_t>(token.receive)].frame, iteration.instance->number);
  accept_at(instance_at(iteration, static_cast<std::int32_t>(&next - mine_.frames.data())), token);
}

// It is for that iteration, which is open.
void Partition::arrive(Iteration& iteration, const PartitionPlan::Receive& receive, bool is_dead,
                       Value&& value) {
  if (is_dead) {
    deliver_all_dead(iteration, receive.targets);
    if (receive.decides) decide(iteration, false);
  } else if (receive.targets.first == receive.targets.last) {
    if (receive.decides) predicate(iteration, std::move(value));
  } else {
    Value decision;  // stays on the host, wherever others want it
    if (receive.decides) decision = value;
    bring_or_fail(*iteration.instance->record->run, value, receive.source);
    deliver_all(iteration, receive.targets, std::move(value));
    if (receive.decides) predicate(iteration, std::move(decision));
  }
  fired(iteration);
}

// What has come for an iteration that opens.
void Partition::take_early(Iteration& iteration) {
  Instance& instance = *iteration.instance;
  EarlyTokens& early = instance.early;
  for (std::int32_t entry = early.take(instance.known_place(iteration.number)), next;
       entry != EarlyTokens::kNone; entry = next) {
    next = early.after(entry);
    if (mine_.receives[static_cast<std::size_t>(early.token(entry).receive)].frame ==
        instance.number) {
      arrive_early(instance, iteration.number, entry);
      continue;
    }
    Token of_child = std::move(early.token(entry));
    early.drop(entry);
    pass_on(iteration, of_child);
  }
}

// A token of iteration n, which is open, and of as many behind it. What was taken before it may
// have said that the loop goes on: it arrives at all that are open by now, and waits for the one
// that opens next.
void Partition::arrive_early(Instance& instance, std::int64_t n, std::int32_t entry) {
  EarlyTokens& early = instance.early;
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
    arrive(*instance.at(n), receive, is_dead, std::move(value));
    if (is_last || has_to_wait) return;
  }
}

// Of the frames on the way to `frame` the one within `around`.
const FramePlan& Partition::next_towards(std::int32_t frame, std::int32_t around) const {
  while (mine_.frames[static_cast<std::size_t>(frame)].parent != around)
    frame = mine_.frames[static_cast<std::size_t>(frame)].parent;
  return mine_.frames[static_cast<std::size_t>(frame)];
}

// Dropped, whoever sent it. Another node may be faulty; this one may not.
void Partition::refuse(Run& run, const PartitionPlan::Receive& edge, const char* why) {
  const std::string what =
      fmt::format("a token of {} {}", plan_->program.graph.describe(edge.source), why);
  if (plan_->is_here(static_cast<std::size_t>(edge.partition)))
    fail(run, nullptr, Status(Code::internal, what));
  else driver_.refused(run, edge.partition, what);
}

// What comes from another partition: a list with all that it holds.
void Partition::bring_token(Value& value) {
  if (!value.is_list()) bring_value(value);
  else if (!mine_.device->is_synchronous())
    value = with_tensors(value, mine_.device->swapper(), [&](Tensor t) {
      bring_to_device(t, *mine_.device, *stream_);
      return t;
    });
}

// ---- out

void Partition::fetch(Record& record, std::int32_t index, Value&& value) {
  if (value.kind() != Value::Kind::tensor || value.tensor().is_on_host()) {
    record.run->set_fetch(index, std::move(value));
    return;
  }
  record.landings.push_back({index, land(value.tensor()), value.tensor().shape()});
}

// Starts the copy of a device's tensor to the host; it is there when the stream has passed.
Tensor Partition::land(const Tensor& on_device) {
  // a host scalar has no address to copy to
  Shape shape = on_device.shape().is_scalar() ? Shape{1} : on_device.shape();
  Tensor host = Tensor::empty(on_device.dtype(), shape);
  mine_.device->copy_to_host(*stream_, on_device, View(host));
  return host;
}

bool Partition::is_granted(const Iteration& from, const PartitionPlan::Send& to) const {
  const Iteration* it = &from;
  for (std::int32_t d = from.instance->frame->depth; d > 0; --d) {
    if (it->number > it->instance->granted[static_cast<std::size_t>(to.place[d - 1])]) return false;
    it = it->instance->parent;
  }
  return true;
}

void Partition::send(Iteration& from, std::int32_t send, Value* value) {
  if (extend(from, send, value)) return;
  const bool is_granted_now = is_granted(from, mine_.sends[static_cast<std::size_t>(send)]);
  if (is_granted_now &&
      (!value || !holds_bytes(*value) || has_room(from, send, bytes_of(*value)))) {
    post(from, send, value);
    return;
  }
  ++from.unfired;  // stays open until it is sent
  add(held_tokens_);
  if (is_granted_now) add(held_by_bytes_);
  constexpr std::size_t kLookedAt = 4;  // edges that hold tokens of a loop back at a time, mostly
  auto& held = from.instance->record->held;
  for (std::size_t back = 1; back <= std::min(held.size(), kLookedAt); ++back) {
    Record::Held& h = held[held.size() - back];
    if (h.send != send || !h.iteration || h.iteration->instance != from.instance ||
        h.iteration->number + h.times != from.number)
      continue;
    if (!is_in_loop(from) || !is_same(h.is_dead, h.value, value)) break;
    ++h.times;
    return;
  }
  held.push_back({send, &from, value == nullptr, value ? std::move(*value) : Value()});
}

// May so many bytes more be on their way? Then they are, from now on.
bool Partition::has_room(const Iteration& from, std::int32_t send, std::uint64_t bytes) {
  Instance& instance = *from.instance;
  if (bytes < large() || instance.frame->depth == 0) return true;
  std::uint64_t sum = bytes;
  for (const Instance::OnWay& t : instance.on_way)
    if (t.send == send) sum += t.bytes;
  const std::int32_t place =
      mine_.sends[static_cast<std::size_t>(send)].place[instance.frame->depth - 1];
  const bool is_oldest = from.number <= instance.granted[static_cast<std::size_t>(place)] -
                                            mine_.sends[static_cast<std::size_t>(send)].window + 1;
  if (sum > plan_->edge_bytes && sum > bytes && !is_oldest) return false;
  instance.on_way.push_back({send, from.number, bytes});
  if (sum > most_on_way()) most_on_way_.store(sum, std::memory_order_relaxed);
  return true;
}

// A token has come for this instance. Its sender may hold another back until it knows the oldest
// iteration.
void Partition::note(Instance& instance, const Token& token) {
  if (instance.has_large || !instance.parent || bytes_of(token.value) < large()) return;
  instance.has_large = true;
  grant(instance, Told::behind);
}

// The window of an instance has moved: who sends to it may go on, and hears of it now or when that
// is worth a message.
void Partition::grant(Instance& instance, Told whom) {
  for (const FramePlan::Sender& sender : instance.frame->senders) {
    const bool is_due = (instance.oldest & (sender.every - 1)) == 0;
    if (whom != Told::all && is_due != (whom == Told::due)) continue;
    const PartitionPlan::Receive& r = mine_.receives[static_cast<std::size_t>(sender.receive)];
    Grant message{instance.record->run, r.send, {}, instance.oldest + sender.window - 1};
    message.path.depth = instance.frame->depth;
    const Iteration* it = instance.parent;
    for (std::int32_t d = instance.frame->depth - 1; d > 0; --d, it = it->instance->parent)
      message.path.number[d - 1] = number_in_path(*it);
    has_posted_ |= driver_.post(r.partition, std::move(message));
  }
}

// That of the frame at the path's end, within that of the edge's; null: it is not open.
template <class End>  // PartitionPlan::Send or PartitionPlan::Receive
Instance* Partition::instance_of(Record& record, const End& edge, const Path& path) {
  const auto frame_at = [&](std::int32_t depth) {
    std::int32_t frame = edge.frame;
    while (mine_.frames[static_cast<std::size_t>(frame)].depth > depth)
      frame = mine_.frames[static_cast<std::size_t>(frame)].parent;
    return static_cast<std::size_t>(frame);
  };
  Instance* instance = record.root;
  std::int32_t d = 1;
  if (edge.function >= 0) {
    const CallPlace* place = place_of(record, edge.function, path.number[0]);
    instance = place && place->open && place->open->call == path.number[0] ? place->open : nullptr;
    if (!instance) return nullptr;
    d = 2;
  }
  for (; d <= path.depth; ++d) {
    const std::int64_t n = d == 1 || instance->frame->function ? 0 : path.number[d - 2];
    if (n < instance->oldest || n >= instance->opened) return nullptr;
    instance =
        instance->at(n)->children[static_cast<std::size_t>(mine_.frames[frame_at(d)].child_slot)];
    if (!instance || instance == &over_) return nullptr;
  }
  return instance;
}

// Grants overtake each other and may come late: the highest counts, and one for what is over is
// dropped.
void Partition::accept(const Grant& grant) {
  Record* record = find(*grant.run);
  if (!record || record->is_abandoned) return;
  add(record->handled);
  const PartitionPlan::Send& send = mine_.sends[static_cast<std::size_t>(grant.send)];
  Instance* const instance = instance_of(*record, send, grant.path);
  if (!instance) return;
  if (grant.last <= instance->granted[static_cast<std::size_t>(send.place[grant.path.depth - 1])])
    return;
  const std::int32_t window =
      send.frame == instance->number ? send.window : instance->frame->window;
  // who has not had this edge's token of an iteration is not done with it
  if (grant.last >= instance->opened + window) {
    if (!plan_->is_here(static_cast<std::size_t>(send.partition)))
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
  std::erase_if(instance->on_way,
                [&](const Instance::OnWay& t) { return goes_there(t.send) && t.number < oldest; });
  // Whoever granted it may have nothing to do without them; what this turn fires now is ahead of
  // the next grant. Not where it is so far behind.
  const bool is_far_behind = window > instance->frame->window;
  if (retry_held(*record, send.partition) && !is_far_behind) flush();
}

// Those for a partition that has granted more; true if some went.
bool Partition::retry_held(Record& record, std::int32_t partition) {
  auto& held = record.held;
  // Of as many of its iterations, the first ones.
  const auto may_go = [&](const Record::Held& token) {
    const PartitionPlan::Send& send = mine_.sends[static_cast<std::size_t>(token.send)];
    if (send.partition != partition) return 0;
    Instance& instance = *token.iteration->instance;
    std::int32_t n = 0;
    while (n < token.times && is_granted(*instance.at(token.iteration->number + n), send)) ++n;
    return n == 1 && holds_bytes(token.value) &&
                   !has_room(*token.iteration, token.send, bytes_of(token.value))
               ? 0
               : n;
  };
  bool any_went = false;
  // those that stay go to the front, in their order; what lies between is empty
  std::size_t kept = 0, next = 0;
  const auto drop_empty = [&] {
    if (next <= held.size())
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(kept),
                 held.begin() + static_cast<std::ptrdiff_t>(next));
  };
  try {
    while (next < held.size()) {
      const std::int32_t n = may_go(held[next]);
      Record::Held going{held[next].send, held[next].iteration, held[next].is_dead, {}, n};
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
      // what followed was the end of the run, here or by a faulty node: nothing is held any more
      if (held.size() < next) return true;
    }
  } catch (...) {
    drop_empty();
    throw;
  }
  drop_empty();
  return any_went;
}

void Partition::let_go(Record::Held& token) {
  Instance& instance = *token.iteration->instance;  // stays until the last of these has fired
  const std::int64_t first = token.iteration->number;
  post(*token.iteration, token.send, token.is_dead ? nullptr : &token.value, token.times);
  for (std::int32_t i = 0; i < token.times; ++i) fired(*instance.at(first + i));
}

// Is it the same as those of the iterations before?
bool Partition::goes_on(const Token& token, const Iteration& from, const Value* value) {
  const Instance& instance = *from.instance;
  const std::int32_t depth = instance.frame->depth;
  if (!is_in_loop(from) || token.run.get() != instance.record->run.get() ||
      from.number != token.path.number[depth - 1] + token.times)
    return false;
  if (!is_same(token.is_dead, token.value, value)) return false;
  const Iteration* around = instance.parent;
  for (std::int32_t d = depth - 1; d > 0; --d, around = around->instance->parent)
    if (number_in_path(*around) != token.path.number[d - 1]) return false;
  return token.path.depth == depth;
}

// `bytes`: of each.
void Partition::count_sent(Record& record, std::int32_t send, std::int32_t times,
                           std::uint64_t bytes) {
  const auto n = static_cast<std::uint64_t>(times);
  add(sent_[static_cast<std::size_t>(send)].tokens, n);
  add(sent_[static_cast<std::size_t>(send)].bytes, n * bytes);
  record.sent += n;
}

// Of as many iterations as were added to it last; the next one may go on as well, with less of a
// look.
void Partition::goes_on_after(Token& token, const Iteration& from, std::int32_t send,
                              std::int32_t times) {
  const Instance& instance = *from.instance;
  const std::int32_t place =
      mine_.sends[static_cast<std::size_t>(send)].place[instance.frame->depth - 1];
  const std::int64_t next = from.number + times;
  const std::int64_t end = std::min(instance.granted[static_cast<std::size_t>(place)] + 1,
                                    next - token.times + kTimesAMessage);
  if (next >= end) return;
  Going& going = going_[static_cast<std::size_t>(send)];
  if (going.token) count_gone(send);
  else are_going_.push_back(send);
  going = {instance.execution, next, end, !token.is_dead && is_true(token.value), next, &token,
           instance.record};
}

// As far as one message says, or as was granted.
void Partition::went_on_to_the_end(Going& going) {
  going.execution = Going::kNone;
  if (going.token->times + (going.next - going.counted) >= kTimesAMessage) flush();
}

// Of those iterations that were not counted yet.
void Partition::count_gone(std::int32_t send) {
  Going& going = going_[static_cast<std::size_t>(send)];
  const auto times =
      static_cast<std::int32_t>(going.next - std::exchange(going.counted, going.next));
  going.token->times += times;
  count_sent(*going.record, send, times, bytes_sent(going.token->value));
}

void Partition::have_gone() {
  for (const std::int32_t send : are_going_) {
    count_gone(send);
    going_[static_cast<std::size_t>(send)] = {};
  }
  are_going_.clear();
}

// `times`: and of as many iterations behind it in all.
void Partition::post(Iteration& from, std::int32_t send, Value* value, std::int32_t times) {
  const PartitionPlan::Send& to = mine_.sends[static_cast<std::size_t>(send)];
  // A run over nodes that has failed is given up on all of them. What follows from that would be
  // taken there for what has caused it, if it came before the news.
  if (from.instance->record->run->is_poisoned() &&
      !plan_->is_here(static_cast<std::size_t>(to.partition)))
    return;
  count_sent(*from.instance->record, send, times, value ? bytes_sent(*value) : 0);
  if (going_[static_cast<std::size_t>(send)].token) count_gone(send);
  if (Token* before = driver_.waiting(to.partition, to.receive);
      before && goes_on(*before, from, value)) {
    before->times += times;
    if (recorder_.traces()) record_sent(*before, to, before->times - times, times);
    else goes_on_after(*before, from, send, times);
    if (before->times >= kTimesAMessage) flush();
    return;
  }
  Token token{from.instance->record->run, to.receive, value == nullptr, {}, path_to(from), times};
  record_sent(token, to, 0, recorder_.traces() ? times : 1);
  if (is_planted(Planted::path_turned))
    std::reverse(token.path.number, token.path.number + token.path.depth);
  std::vector<Tensor> hosts;  // before the event that says they are there
  Value source;
  if (value && !mine_.device->is_synchronous()) {
    const std::uint64_t began = ticks();
    source = at_rest(*value);
    each_tensor(source, [&](const Tensor& t) {
      if (!t.is_on_host()) hosts.push_back(land(t));
    });
    record_copy(*token.run, to.source, began);
  }
  if (hosts.empty() && !source.is_list()) {
    if (value) token.value = std::move(*value);
    has_posted_ |= driver_.post(to.partition, std::move(token));
    return;
  }
  // The source stays alive until then; copies to the host, of what was swapped out too, have ended.
  stream_->record()->then([this, to, token = std::move(token), hosts = std::move(hosts),
                           source = std::move(source)](const Status&) mutable {
    auto next = hosts.begin();
    token.value = with_tensors(source, nullptr, [&](const Tensor& t) {
      return (t.is_on_host() ? t : *next++).reshaped(t.shape());
    });
    driver_.post_at_once(to.partition, std::move(token));
  });
}

}  // namespace troupe
