// Snapshots: the runs of an engine and the events that they wait for. A partition answers between
// two firings. If it does not answer because a kernel in its turn takes long, the snapshot names
// that kernel.
//
//   EngineSnapshot now = engine.snapshot();
//   std::puts(now.text().c_str());
//   for (const std::string& verdict : diagnose(now)) std::puts(verdict.c_str());
//
// A snapshot is not atomic: partitions answer one after another. A run that hangs does not change
// meanwhile, so its snapshot is exact.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <troupe/actors/observe/decision.hpp>
#include <troupe/actors/observe/queue_users.hpp>
#include <troupe/actors/observe/run_counts.hpp>
#include <troupe/devices/device/activity.hpp>

namespace troupe {

namespace detail {

/// An event that has not happened yet.
struct Wait {
  enum class Kind : std::uint8_t {
    kernel,  // the end of a firing that has begun
    device,  // a predicate that is copied from a device
    token,   // a token from another partition
    grant,   // a grant of another partition for a token of this one
  };
  Kind kind = Kind::kernel;
  // the node that has not ended, or whose token has not come or gone: op, name, the user's line
  std::string what;
  // the state that the node uses: `queue 'q'`; empty: none, or the node is in another node's part
  // of the plan
  std::string state;
  std::string tag;        // `iteration 3 of loop 'w'`, inner loops last; empty: outside of loops
  std::string from;       // the other partition's device
  std::int32_t node = 0;  // node of the program
  // a kernel: time since it began; 0: it has not begun, and waits for a worker
  std::chrono::nanoseconds for_so_long{};
  std::chrono::nanoseconds longest{};  // a user's actor: its longest time for an answer so far
  bool holds_worker = false;           // a user's actor: it runs on a worker, not on its own thread
  bool puts = false;                   // at a queue: it waits for room, not for an element
  // at a queue: nothing in the run that is still to happen fills that queue (or, if it puts,
  // empties it), or closes it
  bool is_alone = false;
};

/// True for a firing of a queue operation.
bool is_at_queue(const Wait& wait);

/// A loop that is executing.
struct OpenLoop {
  std::string loop;
  std::string tag;                   // the iteration from which the loop was entered
  std::string predicate;             // the deciding node, if it is in this partition
  std::int32_t predicate_node = -1;  // node of the program
  int depth = 0;                     // loops and calls around it, itself included
  std::int64_t first = 0, last = 0;  // iterations that are open
  std::int32_t window = 1;           // iterations that may be open
  /// The formula of the predicate, with its operands as observed shortly after the last request.
  Decision decision;
  std::uint64_t execution = 0;  // number among the executions that the partition has begun
  bool is_endless = false;      // the predicate depends on nothing that the loop changes
  // period, in iterations, of all values that decide; 0: no period was seen
  std::int64_t repeats = 0;
  bool may_repeat = false;  // too few iterations were seen to find a period
};

}  // namespace detail

enum class ActorStatus : std::uint8_t { idle, ready, running, waiting, dead, failed };

/// Counters of a plan's actor since the plan was made. They derive from iterations and samples, so
/// the hot path counts nothing. `busy_ns` and `bytes_out` are measured for timed firings, and
/// estimated from these for the others (work_account.hpp).
struct ActorCounters {
  std::int32_t node = 0;    // node of the program
  std::uint64_t fires = 0;  // with a kernel, or passing a value on
  std::uint64_t dead = 0;   // dead tokens passed on instead
  std::uint64_t busy_ns = 0, bytes_out = 0;
  ActorStatus state = ActorStatus::idle;
  std::int32_t waiting_for = -1;  // the node whose token has not come; -1: none, or not known
  // the input that lacks the token; -1: a control edge, or `waiting_for` is -1
  std::int32_t waiting_input = -1;
  // the iteration, like `Wait::tag`; empty: outside of loops, or it waits for no token
  std::string waiting_tag;
  // elements of the queue that the actor uses; capacity 0: it uses none
  std::uint64_t queued = 0, capacity = 0;
  friend bool operator==(const ActorCounters&, const ActorCounters&) = default;
};

/// Counters of a cut edge at one of its ends.
struct EdgeCounters {
  std::int32_t to = 0;       // the receiving partition
  std::int32_t receive = 0;  // the edge's number there
  std::uint64_t sent = 0, bytes = 0, received = 0;
  // iterations that the receiver grants; -1: no grant is needed; 0: the other end reports it
  std::int32_t window = 0;
};

/// Counters of a loop, or of the part of it in one partition, since the plan was made
/// (loop_report.hpp).
struct LoopSnapshot {
  std::string loop;
  std::uint64_t executions = 0, iterations = 0;  // iterations: besides the first of each execution
  std::int32_t window = 1;                       // iterations that may be open
  std::uint64_t most_parallel = 0;               // most iterations that were open at once
  std::int64_t open_ns = 0;                      // summed time that executions were open
  // iterations open at once, on average over open_ns; 0: no time has passed
  double achieved_parallelism = 0;
  double limited_by_window = 0;  // fraction of the iterations that waited for the iteration window
};

namespace detail {

/// A run in a partition.
struct RunPart {
  std::uint64_t run = 0;  // number in this engine; in a RunSnapshot the owner's number
  std::uint64_t fired = 0;
  std::uint64_t sent = 0, received = 0;  // tokens to other partitions, and from them
  std::size_t ready = 0;                 // nodes that can fire
  std::vector<OpenLoop> loops;           // outer ones first
  std::vector<Wait> waits;               // kMostWaits at most
  std::size_t more_waits = 0;
  static constexpr std::size_t kMostWaits = 32;
};

}  // namespace detail

/// An event of a partition's flight recorder (recorder.hpp).
struct RecordedEvent {
  enum class Kind : std::uint8_t {
    turn,
    kernel,
    firing,
    send,
    receive,
    // a firing waits for an event outside of its run; or the partition waits for a token of `node`
    wait,
    copy,     // to a device or from it; its length is the time of enqueueing it
    failure,  // `node` made the run fail
  };
  Kind kind = Kind::turn;
  std::int32_t node = -1;     // node of the program; -1: none
  std::int64_t begin_ns = 0;  // since the Unix epoch
  std::int64_t length_ns = 0;
  std::uint64_t run = 0;   // the owner's number
  std::int64_t tag = 0;    // the innermost iteration; a turn: the number of nodes that it fired
  std::uint64_t flow = 0;  // equal for the send and the receive of a token
};

struct PartitionSnapshot {
  std::string device;
  bool has_answered = false;
  std::string busy_with;  // the node whose kernel its turn runs; empty: none
  std::vector<detail::RunPart> runs;
  std::vector<ActorCounters> actors;  // empty unless asked for
  std::vector<EdgeCounters> edges;
  std::vector<LoopSnapshot> loops;
  std::vector<RecordedEvent> events;  // empty unless asked for
  std::uint64_t dropped_events = 0;   // overwritten because the ring was full
  // `events`, if asked for, has all events that ended since then; 0: none was overwritten
  std::int64_t whole_since_ns = 0;
  // short firings that were not recorded, because recording takes time
  std::uint64_t thinned_events = 0;
  /// True if the kernel of `busy_with` belongs to another run. If has_answered is also true, the
  /// answer is older than that kernel. Since then only tokens and grants can have come for this
  /// run.
  bool is_busy_for_another = false;
};

/// The name of a plan, equal on all its nodes.
struct PlanName {
  std::string owner;         // the node that compiled it; empty: no cluster
  std::uint64_t number = 0;  // among the owner's plans; counts from 1 in each incarnation
  std::uint64_t life = 0;    // the owner's incarnation
  std::string text() const { return owner + "/" + std::to_string(number); }
  friend auto operator<=>(const PlanName&, const PlanName&) = default;
};

struct RunSnapshot {
  std::uint64_t run = 0;  // the owner's number
  std::uint64_t step = 0;
  // the key of a run over several nodes (actors/executor/run.hpp)
  std::uint64_t owner = 0, number = 0;
  PlanName plan;
  // time since the run began, by the engine's clock; a deterministic engine's is advanced by hand
  std::chrono::nanoseconds for_so_long{};
  bool is_ending = false;                // it has failed or was cancelled
  bool is_owned = true;                  // it was started here
  std::vector<std::string> other_nodes;  // nodes that take part and were not asked
  /// This node's partitions, each with this run alone. A partition that has left the run has its
  /// totals. The owner reports the totals of nodes that have left.
  std::vector<PartitionSnapshot> partitions;
  struct Silent {
    std::string node, why;
  };
  std::vector<Silent> silent;  // nodes that take part, were asked and have not answered
  detail::QueueUses queues;    // the program's
  /// In a run over several nodes, set by the node that asks the others: for each node, the bytes
  /// that others have received from it, and it from others.
  std::map<std::string, std::uint64_t> moved;
  // by node: known bytes that others have yet to receive from it, or it from others
  std::map<std::string, std::uint64_t> to_move;
  /// Set by the node that asks the others: every partition of the plan has answered and is in the
  /// midst of the run, so that `sent` and `received` can be compared.
  bool is_whole = false;
  std::uint64_t fired() const;
};

struct PlanSnapshot {
  PlanName name;
  std::vector<std::string> nodes;
  std::uint64_t actors = 0, edges = 0;
  std::int64_t made_ns = 0;                          // since the Unix epoch
  std::uint64_t started = 0, ended = 0, failed = 0;  // runs, as this node has seen them
  // ended runs, failed ones too; they stay on this node, whose own metrics show them
  detail::RunDurations durations;
};

struct EndedRun {
  std::uint64_t run = 0;  // the owner's number
  bool is_owned = true;   // the reporting node started it
  PlanName plan;
  std::int64_t ended_ns = 0;  // since the Unix epoch; of a success, to 10 ms
  std::int64_t took_ns = 0;
  std::string error;  // empty: it succeeded
  // firings on the reporting node; at the owner, on all nodes
  std::uint64_t fired = 0;
  Code code = Code::ok;  // the error's
  // equal failures that this entry stands for, itself included
  std::uint64_t times = 1;
  std::int64_t first_ns = 0;  // when the first of them ended
  // the reporting node's file with the events before the failure, or why there is none; empty: it
  // writes none
  std::string flight = {};
};
/// Returns a sentence for the program's user: how to go on after the failure.
std::string how_to_go_on(const EndedRun& failed);

/// Identifies a run, equally on all its nodes.
struct RunId {
  std::uint64_t owner = 0, number = 0;  // the key of a run over several nodes
  PlanName plan;                        // the plan of a run on one node
  std::uint64_t run = 0;                // the number of a run on one node
  friend auto operator<=>(const RunId&, const RunId&) = default;
};
namespace detail {

RunId id_of(const RunSnapshot& run);

/// Returns the actor that an error names first, `Op 'name' (line)`; empty: it names none.
std::string actor_of(const std::string& error);

/// One cause why a run has not ended.
struct Diagnosis {
  std::uint64_t run = 0;  // the owner's number
  PlanName plan;
  std::string text;  // a sentence
  std::string device;
  std::string actor;  // the node of the program, with the user's line; empty: none in particular
  std::int32_t node = -1;
  std::string tag, from;
  // the device that sends and the one that receives, as in `cpu:0 -> cpu:1`; empty: none in
  // particular
  std::string edge;
  enum class Kind : std::uint8_t {
    silence,
    computing,
    waiting,
    loop,
    ready,
    no_turn
  } kind = Kind::waiting;
  RunId id;
  // at a queue or in a user's actor, for no longer than such waits have taken before
  bool is_usual = false;
  // a kernel computes, or a user's code waits, on a worker that other work may need
  bool holds_worker = false;
};

}  // namespace detail

struct DeviceSnapshot : DeviceCounters {
  std::string name;  // in full
};

struct EngineSnapshot {
  std::string node;  // empty: no cluster
  int workers = 0;
  std::vector<DeviceSnapshot> devices;
  std::vector<RunSnapshot> runs;  // in the order they were started
  std::vector<PlanSnapshot> plans;
  std::vector<EndedRun> recent;  // the last that ended, the latest first
  std::vector<EndedRun> errors;  // the last that failed, the latest first
  // runs that have ended, by the code of their status, with those of plans that are gone; stays on
  // this node: only its own metrics show it
  detail::RunEndings ended_by{};
  std::string text() const;
};

namespace detail {

/// Adds another node's snapshot of its part of a run. Omits partitions that have reported to the
/// owner since that they have left, because their waits are over.
void add_part(RunSnapshot& run, const RunSnapshot& part);

}  // namespace detail

}  // namespace troupe
