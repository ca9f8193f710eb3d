// Messages that a partition's actor receives, from this node or another.
//
// `PartitionMessage` is closed: `Partition::handle` has one overload for each alternative, and the
// compiler rejects a message without one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>

#include <troupe/actors/executor/run.hpp>
#include <troupe/actors/observe/recorder.hpp>

namespace troupe {

class Inspection;
struct PendingKernel;

/// The partition takes part in a run that begins.
struct StartRun {
  Ref<Run> run;
};
/// A kernel has ended outside of the turn, with its outputs in it; or a predicate was copied from a
/// device: then `kernel->node` is null or a Switch, and the predicate is `outputs[0]`.
struct KernelDone {
  PendingKernel* kernel;
};
/// A token over a cut edge. With `times` > 1 it stands for equal tokens of as many consecutive
/// iterations: a loop's predicate is equal in all but the last one.
struct Token {
  Ref<Run> run;
  std::int32_t receive;  // index into the receives of the receiving partition
  bool is_dead;
  Value value;
  Path path;  // names the first iteration
  // more than one: only in a loop, for scalars, dead tokens and control edges
  std::int32_t times = 1;
};
/// Credit, from the receiver of tokens to their sender, up to iteration `last` of one instance:
/// `path.depth` is the depth of its frame, path.number[0 .. depth-2] are the iterations around it.
/// The grant covers each edge of that frame, and of frames within it, to the granting partition.
struct Grant {
  Ref<Run> run;
  std::int32_t send;  // one of these edges, by its index at the sender of tokens
  Path path;
  std::int64_t last;
};
/// A stream has reached the point where an event was recorded.
struct StreamEventDone {};
/// The run has failed, and is not drained: see Note [Draining] in PROTOCOL.md.
struct Abandon {
  Ref<Run> run;
};
/// A cluster node of the plan is lost. The run fails if this partition awaits from it a token, a
/// grant for a buffered token, a call, or `over`.
struct NodeLost {
  Ref<Run> run;
  std::int32_t node;  // into Plan::nodes
  Status why;         // the partition adds the name of the awaited value
};
/// Work of a stream device made a run fail after this partition had left it.
struct DeviceError {
  std::uint64_t run;  // Run::number
  std::int32_t node;  // node of the program; -1: not known
  std::uint64_t at;   // ticks
};
/// A request for the partition's snapshot.
struct Inspect {
  std::shared_ptr<Inspection> inspection;
  std::size_t place;            // index of the answer
  bool asks_of_actors = false;  // the answer has the counters of each actor, too
  bool asks_of_events = false;  // the answer has the recorded events
  bool watches = false;         // another request follows soon
  std::int64_t since_ns = 0;    // time of the earliest event asked for
  enum class Trace : std::uint8_t { as_it_is, on, off } trace = Trace::as_it_is;
  Tracer tracer = {};  // the user of the trace that is switched on or off
  // one clock for all partitions that are asked, so that their events keep their order
  TickClock clock = {};
};
using PartitionMessage = std::variant<StartRun, KernelDone, Token, Grant, StreamEventDone, Abandon,
                                      Inspect, NodeLost, DeviceError>;

/// A message and the partition that it goes to.
struct Posted {
  std::int32_t partition;
  PartitionMessage message;
};

}  // namespace troupe
