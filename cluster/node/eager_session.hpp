// The share of one peer in the eager work here: programs, values, streams and the steps that wait.
// A session resolves names and keeps to the limits; EagerService runs the steps. Part of
// eager_service.cpp alone. Threads: as each struct says.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/cluster/node/eager_limits.hpp>
#include <troupe/cluster/node/eager_service.hpp>
#include <troupe/cluster/node/request_use.hpp>

namespace troupe {

/// A program of the other node. Guarded by the session's lock until it is made.
struct EagerService::Program {
  std::uint64_t batch = 0, bytes = 0;
  bool is_made = false;
  std::shared_ptr<CompiledPlan> compiled;  // null: `refusal` has the reason
  Status refusal;
  std::set<std::uint64_t> waiting;  // streams
};

/// A value, which its step fills once. Guarded likewise until then.
struct EagerService::Slot {
  bool is_filled = false;
  Value value;
  std::uint64_t cause = 0;          // the call that failed, instead of a value
  std::set<std::uint64_t> waiting;  // streams
};

/// A step whose names are resolved. It belongs to the function that runs it.
struct EagerService::Work {
  EagerStep step;
  std::uint64_t batch = 0;
  std::shared_ptr<Program> program;
  std::shared_ptr<Slot> of;
  std::vector<std::shared_ptr<Slot>> in, out;  // null: an element that was never written
};

/// Results of a call, and what their lists have on devices, on its way to the host.
struct EagerService::Copies {
  std::vector<Tensor> results, hosts;
  std::atomic<std::size_t> left{0};  // devices; publishes the copies
  std::mutex mutex;                  // guards status
  Status status;
};

struct EagerService::Stream {
  std::deque<Work> work;
  bool is_running = false, is_ended = false;
  Ref<Run> run;  // under way, or the last
};

class EagerService::Session {
 public:
  using Kind = EagerStep::Kind;

  Session(Peer from, std::uint64_t of) : peer(from), owner(of) {}

  struct Batch {
    std::size_t left = 0;
    std::uint64_t bytes = 0;
  };

  const Peer peer;
  const std::uint64_t owner;
  std::mutex mutex;  // guards everything below
  bool is_over = false;
  RequestUse use;
  std::unordered_map<std::uint64_t, std::shared_ptr<Slot>> values;
  std::map<std::uint64_t, std::shared_ptr<Program>> programs;
  std::map<std::uint64_t, Stream> streams;
  std::size_t open_streams = 0;  // streams before their end
  std::map<std::uint64_t, Batch> batches;

  void take_room(std::uint64_t batch, std::size_t steps, std::uint64_t bytes,
                 const detail::EarlyLimits& limits) {
    if (!use.has_room(bytes, limits))
      throw Error(Code::resource_exhausted,
                  "more eager work of the peer waits here than NodeOptions::early permits");
    if (batch == 0 || !batches.emplace(batch, Batch{steps, bytes}).second)
      refuse("a batch of eager steps whose number is taken");
    use.add(bytes);
  }

  /// Returns the work of a step, with what it names.
  Work resolved(EagerStep&& step, std::uint64_t batch) {
    Work work;
    work.batch = batch;
    switch (step.kind) {
      case Kind::put:
        if (!step.value.has_value()) refuse("an eager value of nothing");
        fill(*made(step.of), std::move(step.value), 0);
        break;
      case Kind::pack:
        if (!step.list.is_list()) refuse("an eager list that is none");
        for (const std::uint64_t id : step.in) work.in.push_back(id != 0 ? known(id) : nullptr);
        work.of = made(step.of);
        break;
      case Kind::unpack:
        work.of = known(step.of);
        for (const std::uint64_t id : step.out) work.out.push_back(id != 0 ? made(id) : nullptr);
        break;
      case Kind::call: {
        const auto program = programs.find(step.of);
        if (program == programs.end()) refuse("a call of an eager program that is not there");
        work.program = program->second;
        for (const std::uint64_t id : step.in) work.in.push_back(known(id));
        for (const std::uint64_t id : step.out) work.out.push_back(made(id));
        break;
      }
      case Kind::read: work.of = known(step.of); break;
      case Kind::release:
        known(step.of);
        values.erase(step.of);
        break;
      case Kind::drop:
        if (programs.erase(step.of) == 0) refuse("an eager program that is dropped and not there");
        break;
      case Kind::end: break;
    }
    work.step = std::move(step);
    return work;
  }

  /// Counts a step of the batch that is done; true for the last.
  bool is_last(std::uint64_t batch) {
    const auto of = batches.find(batch);
    if (--of->second.left > 0) return false;
    use.remove(of->second.bytes);
    batches.erase(of);
    return true;
  }

  [[noreturn]] static void refuse(const std::string& what) { throw Error(Code::data_loss, what); }
  /// Returns the streams that waited for the slot.
  static std::set<std::uint64_t> fill(Slot& slot, Value value, std::uint64_t cause) {
    slot.value = std::move(value);
    slot.cause = cause;
    slot.is_filled = true;
    return std::exchange(slot.waiting, {});
  }

 private:
  std::shared_ptr<Slot> known(std::uint64_t id) const {
    const auto it = values.find(id);
    if (it == values.end()) refuse("an eager value that is not there");
    return it->second;
  }
  std::shared_ptr<Slot> made(std::uint64_t id) {
    if (id == 0) refuse("an eager value without a number");
    if (values.size() >= EagerLimits::kValues)
      throw Error(Code::resource_exhausted, "the peer keeps too many eager values here");
    auto [it, is_new] = values.emplace(id, std::make_shared<Slot>());
    if (!is_new) refuse("an eager value whose number is taken");
    return it->second;
  }
};

}  // namespace troupe
