// RunState: the state of one run in one partition; RunStates: the runs in flight there.
// Threads: the turn, but for the atomics. Ownership: `RunStates` owns the states and uses them
// again. Invariants: 1. a state is active, from `start` to `end`, or idle; 2. `start` after
// `reserve` does not throw; 3. `next` and `advance` reach each active run in turn.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <troupe/actors/executor/call_table.hpp>
#include <troupe/actors/executor/frame_state.hpp>
#include <troupe/actors/executor/ready_queue.hpp>

namespace troupe {

/// A fetched tensor on its way from a device.
struct PendingFetch {
  std::int32_t index;
  Tensor host;
  Shape shape;
};

struct RunState {
  Ref<Run> run;
  // These two and `ended` count over all runs that use the state. `handled`: turns and messages in
  // which the run had something to do; the turn writes it. `posted`: kernels that have ended
  // outside of the turn, counted before the message is in the inbox. They publish nothing: see
  // Note [Judged by its last answer] in INSPECTION.md.
  std::atomic<std::uint64_t> handled{0}, posted{0};
  std::uint64_t ended = 0;               // kernels in `posted` that the turn has handled
  std::uint64_t fired = 0;               // in the shares of turns that are over
  std::uint64_t sent = 0, received = 0;  // tokens of cut edges
  FrameState* root = nullptr;            // the instance around all loops
  ReadyQueue ready;
  // kernels that have begun or were handed over, and copies of predicates from a device
  std::int32_t under_way = 0;
  bool is_active = false;
  bool is_abandoned = false;
  /// A buffered token: it waits for a grant or for room; `times` as in `Token`.
  struct Held {
    std::int32_t send;
    IterationState* iteration;  // null: the token was sent
    bool is_dead;
    Value value;
    std::int32_t times = 1;
  };
  std::vector<Held> held;
  CallTable calls;
  std::vector<PendingFetch> pending_fetches;
  std::shared_ptr<Fault> fault;  // receives errors of the run's work on a stream device
};

class RunStates {
 public:
  bool is_idle() const { return active_.empty(); }
  const std::vector<RunState*>& active() const { return active_; }
  /// Null: the run is not active here.
  RunState* find(const Run& run) const {
    for (RunState* r : active_)
      if (r->run.get() == &run) return r;
    return nullptr;
  }

  /// Makes sure that `start` does not throw.
  void reserve(std::size_t nodes) {
    if (idle_.empty()) {
      RunState& fresh = *states_.emplace_back(std::make_unique<RunState>());
      fresh.ready.reserve(nodes);
      idle_.push_back(&fresh);
    }
    active_.reserve(active_.size() + 1);
  }
  RunState& start() {
    RunState& r = *idle_.back();
    idle_.pop_back();
    active_.push_back(&r);
    r.is_active = true;
    r.is_abandoned = false;
    return r;
  }
  void end(RunState& run) {
    run.is_active = false;
    active_.erase(std::find(active_.begin(), active_.end(), &run));
    idle_.push_back(&run);
  }

  /// The run whose share of the turn is next; `advance` passes on to the one after it. A run that
  /// has ended has left its slot to the next one already.
  RunState& next() {
    if (next_ >= active_.size()) next_ = 0;
    return *active_[next_];
  }
  void advance() { ++next_; }

 private:
  std::vector<std::unique_ptr<RunState>> states_;
  std::vector<RunState*> idle_;
  std::vector<RunState*> active_;
  std::size_t next_ = 0;
};

}  // namespace troupe
