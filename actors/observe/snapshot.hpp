// Snapshots: what an engine is doing, and what it waits for. Who can say it is asked: a partition
// answers between two firings; of one that does not, because a kernel of its own takes long, what
// it is at is known.
//
//   EngineSnapshot now = engine.snapshot();
//   std::puts(now.text().c_str());
//   for (const std::string& verdict : diagnose(now)) std::puts(verdict.c_str());
//
// A snapshot is no moment: its partitions answer one after the other. What waits is still waiting
// when somebody reads it, which is what a snapshot is for.
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

namespace troupe {

namespace detail {

/// Something that has not come.
struct Wait {
  enum class Kind : std::uint8_t {
    kernel,  // a firing has begun and not ended
    device,  // a predicate is on its way from a device
    token,   // from another partition
    grant,   // another partition has no room for a token of this one
  };
  Kind kind = Kind::kernel;
  // the node that has not ended, or whose token has not come or gone: op, name, the user's line
  std::string what;
  // what it is done to: `queue 'q'`; empty: nothing, or its node is of another's part of the plan
  std::string state;
  std::string tag;        // `iteration 3 of loop 'w'`, inner loops last; empty: outside of loops
  std::string from;       // the other partition's device
  std::int32_t node = 0;  // of the program
  // a kernel: since it began; 0: it has not, and waits for a worker
  std::chrono::nanoseconds for_so_long{};
  std::chrono::nanoseconds longest{};  // a user's actor: that it ever took for an answer
  bool holds_worker = false;           // the same: it has no thread of its own
  bool puts = false;                   // at a queue: it waits for room, not for an element
  // the same: nothing of its run that is still to happen fills that queue (or empties it), or
  // closes it
  bool is_alone = false;
};

/// A firing of an operation of a queue.
bool is_at_queue(const Wait& wait);

}  // namespace detail

/// A loop that is going on.
struct OpenLoop {
  std::string loop;
  std::string tag;                   // of the iteration that it was entered from
  std::string predicate;             // the node that decides, if that is in this partition
  std::int32_t predicate_node = -1;  // of the program
  int depth = 0;                     // loops and calls around it, itself included
  std::int64_t first = 0, last = 0;  // iterations that are open
  std::int32_t window = 1;           // as many as may be
  /// What the predicate comes from, with what that was a little after somebody asked the last time.
  detail::Decision decision;
  std::uint64_t execution = 0;  // among those that the partition has begun
  bool is_endless = false;      // what decides depends on nothing that the loop changes
  // after so many iterations all that decides is what it was; 0: it was not seen to be
  std::int64_t repeats = 0;
  bool may_repeat = false;  // too few iterations were seen to tell
};

enum class ActorStatus : std::uint8_t { idle, ready, running, waiting, dead, failed };

/// What an actor of a plan has done since the plan was made. Counted by iterations and by samples,
/// so nothing on the hot path counts: `busy_ns` and `bytes_out` are what timed firings took and put
/// out, and the others at that price (work_account.hpp).
struct ActorCounters {
  std::int32_t node = 0;    // of the program
  std::uint64_t fires = 0;  // with a kernel, or passing a value on
  std::uint64_t dead = 0;   // dead tokens passed on instead
  std::uint64_t busy_ns = 0, bytes_out = 0;
  ActorStatus state = ActorStatus::idle;
  std::int32_t waiting_for = -1;  // the node whose token has not come; -1: none, or not known
  // as which input it has not; -1: over a control edge, or `waiting_for` is -1
  std::int32_t waiting_input = -1;
  // in which iteration, as `Wait::tag`; empty: outside of loops, or it waits for no token
  std::string waiting_tag;
  // elements of the queue that it puts into or takes out of; capacity 0: of none
  std::uint64_t queued = 0, capacity = 0;
  friend bool operator==(const ActorCounters&, const ActorCounters&) = default;
};

/// Of a cut edge, as one of its ends has counted.
struct EdgeCounters {
  std::int32_t to = 0;  // the partition that receives, and its number there
  std::int32_t receive = 0;
  std::uint64_t sent = 0, bytes = 0, received = 0;
  // iterations that the receiver grants; -1: none need be granted; 0: said by the other end
  std::int32_t window = 0;
};

/// What a loop, or the part of it that is in one partition, has done since the plan was made
/// (loop_report.hpp).
struct LoopSnapshot {
  std::string loop;
  std::uint64_t executions = 0, iterations = 0;  // iterations: besides the first of each execution
  std::int32_t window = 1;                       // iterations that may be open
  std::uint64_t most_parallel = 0;               // that were
  std::int64_t open_ns = 0;                      // that executions were open, summed
  // iterations open at once, on average over that time; 0: none has passed
  double achieved_parallelism = 0;
  double limited_by_window = 0;  // the part of iterations that waited for the window
};

/// A run in a partition.
struct RunPart {
  std::uint64_t run = 0;  // its number in this engine; in a RunSnapshot its owner's
  std::uint64_t fired = 0;
  std::uint64_t sent = 0, received = 0;  // tokens to other partitions, and from them
  std::size_t ready = 0;                 // nodes that can fire
  std::vector<OpenLoop> loops;           // outer ones first
  std::vector<detail::Wait> waits;       // kMostWaits at most
  std::size_t more_waits = 0;
  static constexpr std::size_t kMostWaits = 32;
};

/// What the flight recorder of a partition has kept (recorder.hpp).
struct RecordedEvent {
  enum class Kind : std::uint8_t {
    turn,
    kernel,
    firing,
    send,
    receive,
    // a firing, for something outside of its run; or the partition, for the token of `node`
    wait,
    copy,     // to a device or from it: as long as giving it to the stream took
    failure,  // `node` made the run fail
  };
  Kind kind = Kind::turn;
  std::int32_t node = -1;     // of the program; -1: none
  std::int64_t begin_ns = 0;  // since the Unix epoch
  std::int64_t length_ns = 0;
  std::uint64_t run = 0;   // its owner's number
  std::int64_t tag = 0;    // the innermost iteration; of a turn: how many nodes it fired
  std::uint64_t flow = 0;  // the same at both ends of a token's way
};

struct PartitionSnapshot {
  std::string device;
  bool has_answered = false;
  std::string busy_with;  // the node whose kernel it runs itself; empty: none
  std::vector<RunPart> runs;
  std::vector<ActorCounters> actors;  // where they were asked for
  std::vector<EdgeCounters> edges;
  std::vector<LoopSnapshot> loops;
  std::vector<RecordedEvent> events;  // the same
  std::uint64_t dropped_events = 0;   // written over, for want of room
  // all that ended since then is in `events`, if it was asked for; 0: nothing was written over
  std::int64_t whole_since_ns = 0;
  // short firings that were not drawn, for drawing them takes time
  std::uint64_t thinned_events = 0;
  /// That kernel is another run's. Where it has answered all the same: before that, and since then
  /// nothing but tokens and grants can have come for this run.
  bool is_busy_for_another = false;
};

/// What a plan is called on all its nodes.
struct PlanName {
  std::string owner;         // the node that compiled it; empty: of no cluster
  std::uint64_t number = 0;  // among the owner's
  // which owner of that name: its incarnation. One that starts again counts from 1
  std::uint64_t life = 0;
  std::string text() const { return owner + "/" + std::to_string(number); }
  friend auto operator<=>(const PlanName&, const PlanName&) = default;
};

struct RunSnapshot {
  std::uint64_t run = 0;  // its owner's number
  std::uint64_t step = 0;
  // of a run over several nodes: its key (actors/executor/run.hpp)
  std::uint64_t owner = 0, number = 0;
  PlanName plan;
  // by the engine's clock, which a deterministic engine's is advanced by hand
  std::chrono::nanoseconds for_so_long{};
  bool is_ending = false;                // it has failed or was cancelled
  bool is_owned = true;                  // it was started here
  std::vector<std::string> other_nodes;  // that take part and were not asked
  /// Of this node, each with this run alone, also those that have left it: their part is what they
  /// have done. What was run by nodes that have left the owner tells.
  std::vector<PartitionSnapshot> partitions;
  struct Silent {
    std::string node, why;
  };
  std::vector<Silent> silent;  // nodes that take part, were asked and have not answered
  detail::QueueUses queues;    // of its program
  /// Of a run over several nodes, by who has asked them: bytes that the others have got from each
  /// of them, and got to it.
  std::map<std::string, std::uint64_t> moved;
  // and those that they have not got from it yet, or it from them, as far as is known
  std::map<std::string, std::uint64_t> to_move;
  /// The same: every partition of its plan has answered and is in the midst of it, so that `sent`
  /// and `received` add up.
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
  std::uint64_t run = 0;  // its owner's number
  bool is_owned = true;   // it was started there
  PlanName plan;
  std::int64_t ended_ns = 0;  // since the Unix epoch
  std::int64_t took_ns = 0;
  std::string error;  // empty: it ended well
  // by the partitions of who says so, and, where he has started it, by those of other nodes
  std::uint64_t fired = 0;
  Code code = Code::ok;  // the error's
  // failures like it that this one stands for, itself included, and when the first ended
  std::uint64_t times = 1;
  std::int64_t first_ns = 0;
  // the file there with what led to the failure, or why there is none; empty: it writes none
  std::string flight = {};
};
/// How to go on after a run has failed: a sentence for its program's user.
std::string how_to_go_on(const EndedRun& failed);

/// Which run it is, whichever node says something of it.
struct RunId {
  std::uint64_t owner = 0, number = 0;  // of a run over several nodes
  PlanName plan;                        // of one of one node: its plan
  std::uint64_t run = 0;                // and its number there
  friend auto operator<=>(const RunId&, const RunId&) = default;
};
namespace detail {

RunId id_of(const RunSnapshot& run);

/// The actor that an error of a run names first, `Op 'name' (line)`; empty: it names none.
std::string actor_of(const std::string& error);

/// Why has a run not ended? One cause.
struct Verdict {
  std::uint64_t run = 0;  // its owner's number
  PlanName plan;          // of which it is a run
  std::string text;       // a sentence
  std::string device;     // where
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
  RunId id;  // of the run
  // at a queue or in a user's actor, for no longer than that takes now and then
  bool is_usual = false;
  // computing, or waiting in a user's code, on a worker that others may want
  bool holds_worker = false;
};

}  // namespace detail

struct EngineSnapshot {
  struct Memory {
    std::string device;
    std::uint64_t in_use = 0, peak = 0, limit = 0;  // bytes; limit 0: none
    // and what was moved from it to the host's memory, and is there now (devices/device/swap.hpp)
    std::uint64_t swapped = 0;
  };
  std::string node;  // empty: of no cluster
  int workers = 0;
  std::vector<Memory> devices;
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

/// Adds what another node says of its part of a run; not of partitions that the owner has heard to
/// have left it since: what they waited for has come.
void add_part(RunSnapshot& run, const RunSnapshot& part);

}  // namespace detail

/// Why a run has not ended: a sentence for each cause, the likeliest first. A partition that waits
/// for another is no cause if the other one can be asked.
std::vector<std::string> diagnose(const RunSnapshot& run);
std::vector<detail::Verdict> verdicts(const RunSnapshot& run);
/// Which runs hang, and why: those that have fired nothing between two looks, a second or so apart,
/// that no large token is on its way to, and whose cause is not a kernel that computes, nor a
/// user's actor or a queue that has taken as long before; and those in a loop whose predicate is
/// seen to stay true for ever: it depends on nothing that the loop changes, on comparisons that
/// cannot come out differently any more (decision.hpp), or on values that have come back
/// (recurrence.hpp). A run that is merely slow is not named. `withheld` gets those of which these
/// two looks could not tell, and two others may.
std::vector<detail::Verdict> hangs(const std::vector<RunSnapshot>& before,
                                   const std::vector<RunSnapshot>& now,
                                   std::set<RunId>* withheld = nullptr);
namespace detail {

/// Of those, what `later`, what `hangs` says of two looks that follow, leaves of it: whoever had no
/// turn and is not said to have none any more is taken back. Nobody is added: looks close to each
/// other say of nobody else that it hangs.
std::vector<Verdict> keep_what_still_stands(std::vector<Verdict> verdicts,
                                            const std::vector<Verdict>& later);
/// Looks at the same nodes, one after the other, and what follows from them: first from two that
/// are `apart`; then from looks soon after each other, which take back who has had his turn, and
/// judge a run of which the first two could not tell, because a partition of it answered late or it
/// has waited for a moment only: by two looks that are `apart` in which, and between which, all its
/// partitions answered, or what they had said stood.
///
///   Looks looks(400ms);
///   do looks.add(joined_runs(...), asked, answered); while (looks.wants_more() && wait(looks.pause()));
class Looks {
 public:
  explicit Looks(std::chrono::nanoseconds apart) : apart_(apart) {}
  /// On one clock: when it was asked for, and when all who will have answered.
  void add(std::vector<RunSnapshot> runs, std::chrono::nanoseconds began,
           std::chrono::nanoseconds ended);
  bool wants_more() const;
  /// Until the next one begins.
  std::chrono::nanoseconds pause() const { return count_ < 2 ? apart_ : apart_ / 4; }
  const std::vector<Verdict>& verdicts() const { return verdicts_; }

 private:
  struct Look {
    std::vector<RunSnapshot> runs;
    std::chrono::nanoseconds began{}, ended{};
  };
  void judge(const Look& look);

  const std::chrono::nanoseconds apart_;
  int count_ = 0;
  std::chrono::nanoseconds first_{};  // when the first ended
  std::shared_ptr<const Look> last_;
  // the first look since which all partitions of a run have answered each time
  std::map<RunId, std::shared_ptr<const Look>> whole_;
  std::set<RunId> withheld_;
  std::vector<Verdict> verdicts_;
};

}  // namespace detail

/// Of all runs, each sentence naming its run.
std::vector<std::string> diagnose(const EngineSnapshot& engine);

}  // namespace troupe
