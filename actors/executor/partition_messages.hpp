// What a partition's actor receives, from this node or another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>

#include <troupe/actors/executor/run.hpp>
#include <troupe/actors/observe/recorder.hpp>

namespace troupe {

class Inspection;
struct Firing;

/// The partition takes part in a run that begins.
struct StartRun {
  Ref<Run> run;
};
/// A firing has ended; its outputs are in it.
struct Ended {
  Firing* firing;
};
/// A token over a cut edge; or several, of as many iterations that follow each other, which are the
/// same but for that: what a loop's predicate says in all but the last one.
struct Token {
  Ref<Run> run;
  std::int32_t receive;  // of the partition it goes to
  bool is_dead;
  Value value;
  Path path;  // of the first
  // more than one: only in a loop, of scalars, dead tokens and control edges
  std::int32_t times = 1;
};
/// The receiver of cut edges has got on: iterations up to `last` of the instance of the frame at
/// `path.depth` that lies in the iterations path.number[0 .. depth-2] may be sent to it, by all
/// edges of that frame and of frames within.
struct Grant {
  Ref<Run> run;
  std::int32_t send;  // of the partition it goes to: one of those edges
  Path path;
  std::int64_t last;
};
/// A stream has got to where an event was recorded.
struct Passed {};
/// The run has failed, and is not drained: see 'Other nodes' in partition.hpp.
struct Abandon {
  Ref<Run> run;
};
/// One of the plan's nodes is lost: the run fails if this partition awaits anything of it.
struct Lost {
  Ref<Run> run;
  std::int32_t node;  // into Plan::nodes
  Status why;         // what is awaited is added
};
/// Work of a stream device made a run fail after this partition had left it.
struct FailedLater {
  std::uint64_t run;  // Run::number
  std::int32_t node;  // of the program; -1: not known
  std::uint64_t at;   // ticks
};
/// Somebody wants to know what this partition waits for.
struct Inspect {
  std::shared_ptr<Inspection> inspection;
  std::size_t place;            // of the answer
  bool asks_of_actors = false;  // what each of them has done, too
  bool asks_of_events = false;  // what is recorded
  bool watches = false;         // and will ask again soon
  std::int64_t since_ns = 0;    // of that: from when on
  enum class Trace : std::uint8_t { as_it_is, on, off } trace = Trace::as_it_is;
  Tracer tracer = {};  // on and off: for whom
  // the same for all who are asked: what came after something else stays after it
  TickClock clock = {};
};
using PartitionMessage =
    std::variant<StartRun, Ended, Token, Grant, Passed, Abandon, Inspect, Lost, FailedLater>;

/// On its way to a partition.
struct Posted {
  std::int32_t partition;
  PartitionMessage message;
};

}  // namespace troupe
