#include <troupe/actors/executor/partition_observer.hpp>

#include <troupe/actors/executor/kernel_runner.hpp>

namespace troupe {

PartitionObserver::PartitionObserver(const Plan& plan, const PartitionPlan& mine,
                                     std::int32_t index, PartitionDriver& driver)
    : plan_(plan), mine_(mine), index_(index), driver_(driver), has_loops_(mine.frames.size() > 1),
      tracer_(plan, mine), loop_counters_(mine.frames.size()),
      dead_(static_cast<std::size_t>(mine.nodes)), skipped_(dead_.size()), sent_(mine.sends.size()),
      received_(mine.receives.size()), work_(dead_.size()) {}

void PartitionObserver::end_turn(std::uint64_t began, std::uint64_t run, int fired) {
  const std::uint64_t length = ticks() - began;
  turn_ticks_ += length;
  parked_ = began + length;
  recorder_.add_turn(began, length, run, fired);
  if (recorder_.traces()) {
    recorder_.turn_took(length, static_cast<std::uint64_t>(fired));
    recorder_.expire(driver_.clock().at(parked_));
  }
}

// ---- the flight recorder

void PartitionObserver::record_kernel(const IterationState& iteration, const PlanNode& node,
                                      std::int64_t start, std::int64_t took) {
  recorder_.add({RecordedEvent::Kind::kernel, true, node.source, static_cast<std::uint64_t>(start),
                 static_cast<std::uint64_t>(took), iteration.instance->run_state->run->number(),
                 iteration.number, 0});
}

void PartitionObserver::record_loop(const PendingKernel& kernel, std::int64_t took) {
  recorder_.add({RecordedEvent::Kind::kernel, true, kernel.node->source,
                 static_cast<std::uint64_t>(kernel.ran), static_cast<std::uint64_t>(took),
                 kernel.iteration->instance->run_state->run->number(),
                 kernel.execution->iterations(), 0});
}

void PartitionObserver::record_ended(const PendingKernel& kernel, std::int64_t took) {
  constexpr std::int64_t kShortest = 1'000;  // ns that are worth an event
  if (took < kShortest) return;
  recorder_.add({waits_outside(kernel) ? RecordedEvent::Kind::wait : RecordedEvent::Kind::kernel,
                 true, kernel.node->source, static_cast<std::uint64_t>(kernel.began.count()),
                 static_cast<std::uint64_t>(took),
                 kernel.iteration->instance->run_state->run->number(), kernel.iteration->number,
                 0});
}

namespace {

// Returns the iteration of a token. A token in a call has the call's number first in its path.
template <class End>  // PartitionPlan::Send or PartitionPlan::Receive
std::int64_t iteration_in(const Path& path, const End& edge) {
  return path.depth > (edge.function < 0 ? 0 : 1) ? path.number[path.depth - 1] : 0;
}

}  // namespace

// Records that the partition was idle until this token came.
void PartitionObserver::record_wait(const Token& token) {
  const PartitionPlan::Receive& edge = mine_.receives[static_cast<std::size_t>(token.receive)];
  recorder_.add({RecordedEvent::Kind::wait, false, edge.source, parked_, heard_ - parked_,
                 token.run->number(), iteration_in(token.path, edge), 0});
  parked_ = 0;
}

// The copy takes as long as giving it to the stream takes.
// A graph of several launches is a kernel of no node, whose tag is their number.
void PartitionObserver::record_timed(const TimedWork& work) {
  const bool is_graph = work.launches > 1;
  recorder_.add({work.is_copy ? RecordedEvent::Kind::copy : RecordedEvent::Kind::kernel, true,
                 is_graph ? -1 : work.label.node, static_cast<std::uint64_t>(work.begin_ns),
                 static_cast<std::uint64_t>(work.length_ns), work.label.run,
                 is_graph ? work.launches : work.label.tag, 0});
}

void PartitionObserver::record_copy(const Run& run, std::int32_t source, std::uint64_t began) {
  recorder_.add(
      {RecordedEvent::Kind::copy, false, source, began, ticks() - began, run.number(), 0, 0});
  looked_ = 0;
}

void PartitionObserver::record_failure(const Run& run, std::int32_t source) {
  if (!run.is_poisoned())
    recorder_.add({RecordedEvent::Kind::failure, false, source, ticks(), 0, run.number(), 0, 0});
}

void PartitionObserver::record_device_error(const DeviceError& error) {
  recorder_.add({RecordedEvent::Kind::failure, false, error.node, error.at, 0, error.run, 0, 0});
}

void PartitionObserver::record_sent(const Token& token, const PartitionPlan::Send& to,
                                    std::int32_t first, std::int32_t count) {
  if (looked_ == 0 || recorder_.traces()) looked_ = ticks();
  for (std::int32_t i = first; i < first + count; ++i) {
    const std::uint64_t flow = flow_of(token, to.partition, to.receive, i);
    recorder_.add({RecordedEvent::Kind::send, false, to.source, looked_, 0, token.run->number(),
                   iteration_in(token.path, to) + i, flow});
  }
}

// Tokens that go as one are recorded as the first of them, unless the recorder traces. The sender
// does likewise if it sends them as they are posted.
void PartitionObserver::record_received(const Token& token) {
  const PartitionPlan::Receive& edge = mine_.receives[static_cast<std::size_t>(token.receive)];
  const std::int32_t recorded = recorder_.traces() ? token.times : 1;
  for (std::int32_t i = 0; i < recorded; ++i) {
    const std::uint64_t flow = flow_of(token, index_, token.receive, i);
    recorder_.add({RecordedEvent::Kind::receive, false, edge.source, heard_, 0, token.run->number(),
                   iteration_in(token.path, edge) + i, flow});
  }
}

// Returns a number that both ends of the edge compute from what both know.
std::uint64_t PartitionObserver::flow_of(const Token& token, std::int32_t partition,
                                         std::int32_t receive, std::int32_t ahead) const {
  const Run& run = *token.run;
  std::uint64_t flow =
      run.key.owner ^ (run.key.number ? run.key.number : run.info().id) * 0x9e3779b97f4a7c15u;
  const auto mix = [&](std::uint64_t n) { flow = (flow ^ n) * 0x100000001b3u, flow ^= flow >> 29; };
  mix(static_cast<std::uint64_t>(plan_.partitions[static_cast<std::size_t>(partition)].number)
          << 32 |
      static_cast<std::uint32_t>(receive));
  for (std::int32_t d = 0; d < token.path.depth; ++d)
    mix(static_cast<std::uint64_t>(token.path.number[d] + (d == token.path.depth - 1 ? ahead : 0)));
  return flow | 1;
}

}  // namespace troupe
