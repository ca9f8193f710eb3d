#include <troupe/cluster/node/eager_calls.hpp>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <troupe/cluster/node/eager_limits.hpp>
#include <troupe/cluster/protocol/program_codec.hpp>
#include <troupe/ops/graph/composite.hpp>

namespace troupe {
namespace {

// A batch is sent from so many steps or bytes on, or earlier.
constexpr std::size_t kBatchSteps = 64;
constexpr std::uint64_t kBatchBytes = 64 << 10;
// Releases are sent when they free so many bytes, or with other steps.
constexpr std::uint64_t kReleasedBytes = 1 << 20;
constexpr std::size_t kMostFlying = 256;  // batches
constexpr std::size_t kKept = 4096;       // failures, and sessions that are over

using StepKind = EagerStep::Kind;

// At least as many bytes as the step counts.
std::uint64_t most_bytes(const EagerStep& step) {
  std::uint64_t bytes = memory_of({&step, 1}) + 160 + 9 * (step.in.size() + step.out.size());
  if (!step.value.has_value()) return bytes;
  bytes += step.value.bytes();
  if (step.value.dtype() == DType::string)
    for (const StringRef& s :
         std::span(step.value.data<StringRef>(), static_cast<std::size_t>(step.value.elements())))
      bytes += s.size;
  return bytes;
}

// True for a step that waits for its turn in a stream.
bool is_of_stream(const EagerStep& step) {
  return step.kind == StepKind::pack || step.kind == StepKind::unpack ||
         step.kind == StepKind::call || step.kind == StepKind::read;
}

std::string named(const std::string& what, const Site& site) {
  return *site.file ? fmt::format("{}{} at {}", what, within(site), site.text()) : what;
}

template <class Map>
void keep_latest(Map& map) {
  if (map.size() > kKept) map.erase(map.begin());
}

}  // namespace

Peer EagerCalls::session_with(const std::string& node) {
  const Peer peer = node_.view.peer_of(node);
  std::lock_guard lock(mutex_);
  if (!over_.contains(peer)) links_[peer].node = node;
  return peer;
}

EagerCalls::Link* EagerCalls::find(Peer to) {
  const auto it = links_.find(to);
  return it == links_.end() ? nullptr : &it->second;
}

// ---- sending

bool EagerCalls::has_room(const Link& link, std::uint64_t bytes) const {
  return link.flying.size() < kMostFlying && link.use.has_room(bytes, node_.limits);
}

void EagerCalls::wait_for_room(Lock& lock, Peer to, std::uint64_t bytes) {
  const auto may_go_on = [&] {
    const Link* link = find(to);
    return !link || has_room(*link, bytes);
  };
  while (!may_go_on()) {
    lock.unlock();
    node_.waiter.until(mutex_, changed_, may_go_on);
    lock.lock();
  }
}

void EagerCalls::send_pending(Peer to, Link& link) {
  EagerSteps m;
  m.batch = fresh();
  const auto first = link.pending.begin();
  const auto end =
      first + static_cast<std::ptrdiff_t>(std::min(link.pending.size(), EagerSteps::kMost));
  m.steps.assign(std::make_move_iterator(first), std::make_move_iterator(end));
  link.pending.erase(first, end);
  Batch batch;
  for (const EagerStep& s : m.steps) {
    if (s.number != 0) batch.numbers.push_back(s.number);
    if (s.kind == StepKind::drop) --link.programs;
  }
  Message message = written(m);
  batch.bytes = bytes_of(message) + memory_of(m.steps);
  if (link.pending.empty()) link.pending_bytes = 0, link.released = 0;
  link.use.add(batch.bytes);
  link.flying.emplace(m.batch, std::move(batch));
  node_.transport.send(to, EagerSteps::kLane, std::move(message));
}

void EagerCalls::flush(Lock& lock, Peer to) {
  for (;;) {
    Link* const link = find(to);
    if (!link || link->pending.empty()) return;
    if (has_room(*link, link->pending_bytes)) send_pending(to, *link);
    else wait_for_room(lock, to, link->pending_bytes);
  }
}

void EagerCalls::send_program(Peer to, Id program, const Placed& placed) {
  EagerProgram m;
  m.batch = fresh();
  m.number = program;
  m.call_depth = node_.engine.options().call_depth;
  m.container = node_.container;
  MessageWriter w;
  write(w, placed);
  m.program = w.take();
  Message message = written(m);
  const std::uint64_t bytes = bytes_of(message);
  Lock lock(mutex_);
  Link* link = find(to);
  // a drop counts when its step is sent
  if (link && link->programs >= EagerLimits::kPrograms) flush(lock, to);
  wait_for_room(lock, to, bytes);
  link = find(to);
  if (!link) return;  // the step that uses it throws
  if (link->programs >= EagerLimits::kPrograms)
    throw Error(Code::resource_exhausted,
                fmt::format("node '{}' keeps {} programs of this node's eager scopes, and no more; "
                            "drop scopes and traced functions that are not used any more",
                            link->node, link->programs));
  ++link->programs;
  link->use.add(bytes);
  link->flying.emplace(m.batch, Batch{bytes, {}});
  node_.transport.send(to, EagerProgram::kLane, std::move(message));
}

// Values that the step makes are known from here on.
void EagerCalls::append(Link& link, EagerStep&& step, const Asked& by) {
  const auto made = [&](Id value) {
    if (value != 0) ++link.values;
  };
  if (step.kind == StepKind::put || step.kind == StepKind::pack) made(step.of);
  for (const Id value : step.out) made(value);
  if (is_of_stream(step)) link.streams.insert(step.stream);
  if (step.number != 0) link.asked.emplace(step.number, by);
  link.pending_bytes += most_bytes(step);
  link.pending.push_back(std::move(step));
}

void EagerCalls::add(Peer to, EagerStep step, const Asked& by) {
  Lock lock(mutex_);
  Link* link = find(to);
  if (!link) refuse_lost(by.what, by.site, to);
  const bool makes = step.kind == StepKind::put || step.kind == StepKind::pack;
  if (link->values + step.out.size() + (makes ? 1 : 0) > EagerLimits::kValues)
    throw Error(Code::resource_exhausted,
                fmt::format("node '{}' keeps {} values of this node's eager scopes, and no more; "
                            "drop expressions that are not used any more",
                            link->node, link->values));
  if (is_of_stream(step) && !link->streams.contains(step.stream) &&
      link->streams.size() >= EagerLimits::kStreams)
    throw Error(Code::resource_exhausted,
                fmt::format("node '{}' works for {} eager scopes of this node, and no more; "
                            "end scopes that are not used any more",
                            link->node, link->streams.size()));
  const bool is_urgent = by.acts || step.kind == StepKind::end;
  if (makes) values_.emplace(step.of, Held{to, by.what, by.site});
  for (const Id value : step.out)
    if (value != 0) values_.emplace(value, Held{to, by.what, by.site});
  append(*link, std::move(step), by);
  if (is_urgent || link->flying.empty() || link->pending.size() >= kBatchSteps ||
      link->pending_bytes >= kBatchBytes)
    flush(lock, to);
}

EagerResult EagerCalls::ask(Peer to, EagerStep step, const Asked& by) {
  const Id number = step.number;
  const auto awaits = [&](bool is_awaited) {
    std::lock_guard lock(mutex_);
    Link* const link = find(to);
    if (link && is_awaited) link->awaited.insert(number);
    else if (link) link->awaited.erase(number);
  };
  awaits(true);
  try {
    add(to, std::move(step), by);
  } catch (...) {
    awaits(false);
    throw;
  }
  Lock lock(mutex_);
  flush(lock, to);
  const auto is_done = [&] {
    const Link* link = find(to);
    return !link || link->results.contains(number);
  };
  if (!is_done()) {
    lock.unlock();
    node_.waiter.until(mutex_, changed_, is_done);
    lock.lock();
  }
  Link* const link = find(to);
  if (!link) refuse_lost(by.what, by.site, to);
  EagerResult result = std::move(link->results.extract(number).mapped());
  link->awaited.erase(number);
  throw_failure(result, by.stream);
  return result;
}

Peer EagerCalls::holder_of(Id value) {
  std::lock_guard lock(mutex_);
  const auto it = values_.find(value);
  if (it == values_.end())
    throw Error(Code::internal, "a value of another node is used, which is unknown to this node");
  const Held& held = it->second;
  if (!find(held.session)) refuse_lost("the value of " + held.what, held.site, held.session);
  return held.session;
}

void EagerCalls::release(Id value, std::uint64_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  const auto it = values_.find(value);
  if (it == values_.end()) return;
  const Peer session = it->second.session;
  values_.erase(it);
  Link* const link = find(session);
  if (!link) return;
  --link->values;
  link->released += bytes;
  append(*link, {StepKind::release, 0, 0, value}, {});
  const bool is_due = link->pending.size() >= kBatchSteps || link->released >= kReleasedBytes;
  if (is_due && has_room(*link, link->pending_bytes)) send_pending(session, *link);
}

void EagerCalls::finish(Peer to, StepKind kind, Id of) noexcept {
  std::lock_guard lock(mutex_);
  Link* const link = find(to);
  if (!link) return;
  EagerStep step{kind};
  if (kind == StepKind::end) {
    failed_.erase(of);
    if (link->streams.erase(of) == 0) return;  // it is not known there
    step.stream = of;
  } else {
    step.of = of;
  }
  append(*link, std::move(step), {});
  if (has_room(*link, link->pending_bytes)) send_pending(to, *link);
}

std::size_t EagerCalls::values() const {
  std::lock_guard lock(mutex_);
  return values_.size();
}

// ---- results

void EagerCalls::take(Link& link, EagerResult&& r) {
  const auto asked = link.asked.find(r.number);
  if (asked == link.asked.end()) throw Error(Code::data_loss, "a result that was not requested");
  const Asked& by = asked->second;
  if (r.cause == r.number && !r.status.ok()) {
    failures_.insert_or_assign(
        r.number,
        Status(r.status.code(), fmt::format("{}, on node '{}': {}", named(by.what, by.site),
                                            link.node, r.status.message())));
    keep_latest(failures_);
  }
  if (by.acts && r.cause != 0)
    if (const auto failure = failures_.find(r.cause); failure != failures_.end())
      failed_.try_emplace(by.stream, failure->second);
  if (link.awaited.contains(r.number)) link.results.insert_or_assign(r.number, std::move(r));
}

void EagerCalls::handle(Peer from, EagerResults&& m) {
  std::lock_guard lock(mutex_);
  Link* const link = find(from);
  if (!link) throw Error(Code::data_loss, "results of eager work that was not requested");
  for (EagerResult& r : m.results) take(*link, std::move(r));
  if (m.batch != 0) {
    const auto batch = link->flying.find(m.batch);
    if (batch == link->flying.end())
      throw Error(Code::data_loss, "a batch of eager steps that was not sent");
    link->use.remove(batch->second.bytes);
    for (const Id number : batch->second.numbers) link->asked.erase(number);
    link->flying.erase(batch);
  }
  if (!link->pending.empty() && has_room(*link, link->pending_bytes)) send_pending(from, *link);
  changed_.notify_all();
}

void EagerCalls::lost(Peer peer, const std::string& node, const Status& why) {
  std::lock_guard lock(mutex_);
  over_.insert_or_assign(peer, fmt::format("node '{}' was lost ({})", node, why.message()));
  keep_latest(over_);
  links_.erase(peer);
  changed_.notify_all();
}

void EagerCalls::refuse_lost(const std::string& what, const Site& site, Peer session) const {
  const auto why = over_.find(session);
  throw Error(Code::unavailable,
              fmt::format("{} is lost: {}; compute it again", named(what, site),
                          why == over_.end() ? "its node was lost" : why->second));
}

// Throws the failure of a call of the stream that acts, once, or the one that the result comes of.
void EagerCalls::throw_failure(const EagerResult& result, Id stream) {
  const auto acted = failed_.find(stream);
  if (acted != failed_.end()) {
    const Status status = std::move(acted->second);
    failed_.erase(acted);
    status.throw_if_error();
  }
  if (result.cause == 0) return;
  const auto failure = failures_.find(result.cause);
  if (failure != failures_.end()) failure->second.throw_if_error();
  throw Error(Code::aborted, "an earlier eager op on another node has failed");
}

}  // namespace troupe
