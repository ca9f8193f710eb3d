// Partitions: the firing rule. A partition owns the records of its runs, matches tokens by index,
// fires what is ready and delivers the results; its actor drives it.
//
//   deliver ─► last awaited token ─► ready ─► fire ─► kernel returns ─► deliver to successors …
//                                              │
//                                              ├─► heavy, and others too: handed to a worker ─┐
//                                              └─► kernel took a Completion ──────────────────┤
//                                                       Ended message to the actor ◄──────────┘
//
// Frames: an execution of a loop is an *instance* of its frame, found by a slot in the record of
// the iteration it was entered from; it owns a ring of records, one an open iteration. In every
// iteration every node of the frame fires once, live or dead, so that draining is counted:
//   iteration n is done   when nothing in it is unfired (nodes, child instances, tokens from other
//                         partitions) and n-1 is done; iteration 0 also waits for all Enters.
//   iteration n+1 opens   when the predicate of n is true (a loop built by hand without LoopCond: with
//                         the first live token of a NextIteration); while `window` iterations are
//                         open, it waits in the instance, and the tokens for it.
//   an instance ends      when its oldest iteration is done and no later one has opened or waits: it
//                         then sends the dead tokens of those Exits that never saw a live one.
// Calls: a Call that fires makes an instance of its function's frame, of one iteration, and gives
// it the arguments; a Return passes a result to the users of the Call, in the iteration that
// called. The Call has fired, and control edges from it are told, when the instance has ended. A
// function may be in several partitions (partition_calls.cpp). However deep calls nest, nothing
// here does: Returns wait among the ready nodes like any other. A token from another partition
// names its iteration by the numbers of the iterations around it; one that comes before its
// iteration is open waits in the instance. What has come over each cut edge is noted by iteration:
// a token that comes twice, or for an iteration that was never granted or is done, is dropped, and
// said to be (`refuse`). Windows: the receiver of a cut edge grants iterations, of its frame and of
// those around it: from its oldest on as many as the edge's window has, at first and whenever that
// iteration is done. A token that is not granted stays with its sender, and keeps its iteration
// open there. So a fast producer is bounded by its slowest consumer: at most a window of tokens
// wait an edge and instance (test/model/frame.pml). The window is the frame's or, where all that
// goes from one partition to the other is small, more (plan_windows.hpp): then tokens wait for
// iterations that have no record yet. One grant is for all edges from one partition. It is given
// after every fourth part of the window; but from its first large token on an instance grants after
// each iteration, and at once if it is behind. Bytes: the large tokens of an edge and instance that
// are on their way, or wait there, hold at most `Plan::edge_bytes`; one more stays with its sender
// like one that is not granted. Never refused are that of the receiver's oldest iteration, which
// grants tell, and one of any size where none is on its way. Dead tokens: a node with a dead input
// skips its kernel and sends dead tokens; a Merge is dead when all its inputs are. A run that has
// failed treats every firing as dead: the next predicate ends its loops, everywhere at the same
// iteration, for only the predicate decides. The tokens of all NextIterations of an iteration that
// goes on reach the next one, live or dead; otherwise none does.
//
// Other nodes: a partition of another node is posted to like one of this (`PartitionDriver::post`);
// its tokens, grants and windows are the same. What a turn has for them is collected, and goes
// before a kernel runs, before the run is left, when a grant has let tokens go, when somebody asks,
// and when the turn ends: it waits for bookkeeping only. Tokens of an edge that are the same for
// iterations that follow each other wait and go as one (Token::times), which is taken as if each
// had come by itself; 256 iterations do not wait for more. But a peer may be lost, and with it
// tokens that counting would wait for: a run over several nodes that fails is abandoned, not
// drained. What it holds here is given back at once, or when its kernels that are under way have
// ended; who comes late for it is dropped. A loss is none to a partition that awaits nothing more
// of that node, in any iteration that is open or may open (`awaited_from`): its part of the run
// goes on.
//
// Threads: everything here runs in the actor's turn, but for `complete` and `run_elsewhere`, which
// touch only their firing and then post it. Invariants: 1. a node fires once an iteration: when its
// last awaited token arrives; 2. a slot is written by one token and emptied by its node's firing;
// 3. a run leaves the partition when everything has fired, kernel or none: an error skips kernels,
// not firings, so draining is counted, never guessed (an abandoned run: when nothing of it is under
// way); 4. a record is given back only when no token for it can be on its way; 5. after the first
// run nothing is allocated: records, instances and firings are kept.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <troupe/actors/executor/early_tokens.hpp>
#include <troupe/actors/executor/partition_messages.hpp>
#include <troupe/actors/executor/run.hpp>
#include <troupe/actors/observe/endless.hpp>
#include <troupe/actors/observe/recorder.hpp>
#include <troupe/actors/observe/recurrence.hpp>
#include <troupe/actors/observe/work_account.hpp>
#include <troupe/actors/plan/options.hpp>
#include <troupe/actors/runtime/stack.hpp>
#include <troupe/devices/threads/worker_pool.hpp>

namespace troupe {

class Partition;
struct ActorCounters;
struct EdgeCounters;
struct Record;
struct Instance;
struct Iteration;
struct RunPart;

/// A kernel that ends outside its partition's turn.
struct Firing {
  Partition* partition = nullptr;
  Iteration* iteration = nullptr;
  const PlanNode* node = nullptr;
  std::vector<Value> outputs;
  Status status;
  std::int64_t nanoseconds = 0;  // of a handed-over kernel
  std::uint64_t put = 0;         // bytes that such a one puts into lists, at most
  // when it began, on the steady clock; written by who runs it, read after its end
  std::int64_t ran = 0;
  std::chrono::nanoseconds began{};  // on the steady clock, for those who ask what takes so long
  // a handed-over kernel that has not begun; for those who ask as well
  std::atomic<bool> waits_for_worker{false};
  Ref<Run> run;  // a handed-over kernel keeps its run
};

/// What a partition needs of whoever drives it.
class PartitionDriver {
 public:
  /// From any thread, at once.
  virtual void post_self(PartitionMessage message) = 0;
  virtual void post_at_once(std::int32_t partition, PartitionMessage message) = 0;
  /// From the turn; to a partition of another node together with what else the turn has for that
  /// node: with `flush`, which the driver does itself when the turn ends. True: it waits for that.
  virtual bool post(std::int32_t partition, PartitionMessage message) = 0;
  /// A token of that edge that waits for this, the last one, which stays where it is until
  /// `Partition::have_gone`; null: there is none, or it went too long ago.
  virtual Token* waiting(std::int32_t partition, std::int32_t receive) = 0;
  virtual void flush() = 0;
  /// Runs a kernel elsewhere; ends with `Firing::partition->run_elsewhere(firing)`.
  virtual void hand_over(Firing& firing) = 0;
  /// The turn runs a heavy kernel itself: what else the worker has may go elsewhere.
  virtual void before_heavy() = 0;
  /// A token or a grant that another node should not have sent was dropped; `partition`: that it
  /// came from.
  virtual void refused(Run& run, std::int32_t partition, const std::string& what) = 0;
  /// What loops' times are told by, and how long traces go on, when the ticks are `now`: these, or
  /// nanoseconds of a clock that is advanced by hand.
  virtual std::uint64_t time_at(std::uint64_t now) const = 0;
  virtual std::int64_t nanoseconds(std::uint64_t time, const TickClock& clock) const = 0;
  virtual std::uint64_t time_of(std::int64_t nanoseconds, const TickClock& clock) const = 0;
  /// Where whoever steps decides what happens next, and not how long it has taken.
  virtual bool is_stepped() const = 0;

 protected:
  ~PartitionDriver() = default;
};

/// A fetched tensor on its way from a device.
struct Landing {
  std::int32_t index;
  Tensor host;
  Shape shape;
};

/// An iteration's values and counts.
struct Iteration {
  Instance* instance = nullptr;
  std::int64_t number = 0;
  std::uint64_t tag = 0;              // keys random draws
  std::vector<Value> values;          // by slot
  std::vector<std::int32_t> awaited;  // by node: tokens still awaited, and the two flags below
  std::vector<Instance*> children;    // by child slot
  std::int32_t unfired = 0;
  // will there be a next one?
  enum class Fate : std::uint8_t { open, goes_on, ends } fate = Fate::open;
  struct Next {  // a NextIteration's token; none: dead
    std::int32_t loop;
    bool is_dead;
    Value value;
  };
  std::vector<Next> undecided;  // those that came before the predicate

  static constexpr std::int32_t kDead = 1 << 30;    // a dead token came
  static constexpr std::int32_t kMerged = 1 << 29;  // a Merge has passed its value on
  static constexpr std::int32_t kCount = kMerged - 1;
};

/// One execution of a frame. The outside of all loops is an instance with one iteration.
struct Instance {
  const FramePlan* frame = nullptr;
  std::int32_t number = 0;  // of the frame
  Record* record = nullptr;
  Iteration* parent = nullptr;
  const PlanNode* caller = nullptr;  // of a call that was made here: the Call, in `parent`
  std::int32_t depth = 0;            // calls around it, itself included
  // of a function in several partitions: what tokens name the call by
  std::int64_t call = 0;
  // iteration n at n mod size, a power of two; oldest to opened - 1
  std::vector<Iteration*> ring;
  std::size_t place_of(std::int64_t n) const {
    return static_cast<std::size_t>(n) & (ring.size() - 1);
  }
  Iteration*& at(std::int64_t n) { return ring[place_of(n)]; }
  void reset();
  std::int64_t oldest = 0;
  std::int64_t opened = 0;
  // the partition's time up to which its iterations were counted
  std::uint64_t counted = 0;
  std::int32_t enters_pending = 0;
  std::int32_t invariants_pending = 0;
  bool has_dead_invariant = false;
  bool is_advancing = false;          // iterations are being given back: once at a time
  bool must_open = false;             // iteration `opened` waits for the window
  std::vector<std::int64_t> granted;  // by edge out: the last iteration that may be sent
  struct OnWay {
    std::int32_t send;
    std::int64_t number;
    std::uint64_t bytes;
  };
  // large tokens sent from here whose iterations the receiver has not said to be done
  std::vector<OnWay> on_way;
  bool has_large = false;  // one has come from elsewhere: its sender counts on grants
  // Of tokens over cut edges, which may come for more iterations than can be open: iteration n at n
  // mod `known_places`, another power of two.
  std::vector<char> came;  // by iteration, then by `Receive::place`
  EarlyTokens early;       // for iterations that are not open yet
  std::size_t known_places() const { return std::bit_ceil(static_cast<std::size_t>(frame->known)); }
  std::size_t known_place(std::int64_t n) const {
    return static_cast<std::size_t>(n) & (known_places() - 1);
  }
  std::size_t came_at(std::int64_t n, const PartitionPlan::Receive& r) const {
    return known_place(n) * static_cast<std::size_t>(frame->receives) +
           static_cast<std::size_t>(r.place);
  }
  char& has_come(std::int64_t n, const PartitionPlan::Receive& r) { return came[came_at(n, r)]; }
  bool has_come(std::int64_t n, const PartitionPlan::Receive& r) const {
    return came[came_at(n, r)] != 0;
  }
  std::vector<char> exited;  // by exit: a live token left
  std::vector<Value> invariants;
  std::vector<char> invariant_came;
  std::vector<Iteration::Next> waiting;  // for iteration `opened`
  std::uint64_t execution = 0;           // the same in no other of this partition
  // by what decides, for a while after somebody has asked; empty: none was seen
  std::vector<Comparison> compared;
  Recurrence recurrence;  // of the variables that it depends on
};

/// What it keeps alive; of a list, all that is in it.
std::uint64_t bytes_of(const Value& value);
/// The iterations around a firing, outermost first: `iteration 2 of loop 'a', iteration 0 of loop
/// 'b'`. Empty outside of loops.
std::string tag_of(const Iteration& iteration);

/// What a loop's iterations had in common with each other; over all runs. Written by the
/// partition's turn, read by anybody: single-writer counters that publish nothing.
struct LoopCounters {
  std::atomic<std::uint64_t> instances{0}, iterations{0};
  // that executions were open, and their iterations: summed, by the partition's clock
  std::atomic<std::uint64_t> time{0}, iterations_time{0};
  std::atomic<std::uint64_t> most_open{0};
  // iterations that could have opened but for the window
  std::atomic<std::uint64_t> window_waits{0};
};
/// Iterations open at once, on average over time; 0: none has passed.
double achieved_parallelism(const LoopCounters& counters);

/// Of a cut edge, at one of its ends.
struct EdgeCount {
  std::atomic<std::uint64_t> tokens{0}, bytes{0};
};
inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

/// Calls of a function in several partitions that come one after the other (see 'Calls').
struct CallPlace {
  Instance* open = nullptr;
  std::int64_t ended = 0;  // so many
  EarlyTokens early;       // of the next, ahead of what begins it
};

/// One run in one partition.
struct Record {
  struct Ready {
    Iteration* iteration;
    const PlanNode* node;
  };
  Ref<Run> run;
  // Of whatever run it holds, and never less: how often its turn came and it had something to do,
  // or a message came for it; written by the turn. And how many of its firings have ended outside
  // of the turn, before that is in the inbox; how many of these ends were taken. They publish
  // nothing: see 'What stands' in INSPECTION.md.
  std::atomic<std::uint64_t> handled{0}, posted{0};
  std::uint64_t ended = 0;
  std::uint64_t fired = 0;               // in the turns that are over
  std::uint64_t sent = 0, received = 0;  // tokens of cut edges
  Instance* root = nullptr;
  Stack<Ready> ready;         // what was just enabled is warm
  Stack<Ready> heavy;         // ready nodes whose kernels are worth another worker
  Stack<Ready> first;         // ready nodes by rank: before those of `ready`
  Stack<Ready> last;          // and when there is nothing else, the earliest iteration's first
  std::size_t given_way = 0;  // turns at whose end there was more to fire
  bool has_ready() const {
    return !ready.empty() || !first.empty() || !heavy.empty() || !last.empty();
  }
  std::int32_t outside = 0;  // firings that have not ended yet
  bool is_active = false;
  bool is_abandoned = false;
  struct Held {
    std::int32_t send;
    Iteration* iteration;  // null: it has gone
    bool is_dead;
    Value value;
    std::int32_t times = 1;  // of as many iterations of that instance, from that one on (see Token)
  };
  std::vector<Held> held;  // tokens that are not granted, or too large for now
  // Of functions in several partitions.
  std::vector<std::vector<std::vector<CallPlace>>> calls;  // by frame, depth, place
  std::vector<Ready> kept_calls;                           // Calls for which there is no place
  Iteration elsewhere;          // where calls that were made elsewhere lie; never done
  std::vector<char> came_over;  // by `Receive::place`: who makes no more calls
  bool is_through = false;      // everything has fired but what others may call
  std::vector<Landing> landings;
  std::shared_ptr<Fault> fault;  // of a stream device: what its work reports later
};

class Partition final : public CompletionSink {
 public:
  Partition(std::shared_ptr<const Plan> plan, std::int32_t index, Granularity granularity,
            int workers, PartitionDriver& driver);
  ~Partition();

  /// An exception on the way, here or in `turn`, fails the run that it met, which is given up: its
  /// books may be wrong from then on.
  void receive(PartitionMessage& message);
  /// In a catch block of the driver's, in the middle of a turn: tokens of the run could not be
  /// sent. It fails, and is given up by messages.
  void give_up_later(const Ref<Run>& run);
  /// Fires up to `budget` nodes; true if more are ready.
  bool turn(int budget);
  /// In its place: what was heard is fired in a later one, which may be long after.
  void break_turn() { heard_ = 0; }
  /// What was posted for other nodes goes now, or is given up.
  void have_gone();
  bool is_idle() const { return active_.empty(); }

  /// By frame; the first stands for what is outside of loops.
  /// Tokens that had to wait for a grant so far.
  std::uint64_t held_tokens() const { return held_tokens_.load(std::memory_order_relaxed); }
  /// Of those, tokens that the window would have let go, and the most bytes that large tokens of an
  /// edge and instance had on their way.
  std::uint64_t held_by_bytes() const { return held_by_bytes_.load(std::memory_order_relaxed); }
  /// Calls that had to wait until others as deep had ended.
  std::uint64_t kept_calls() const { return kept_calls_.load(std::memory_order_relaxed); }
  std::uint64_t most_on_way() const { return most_on_way_.load(std::memory_order_relaxed); }
  const std::vector<LoopCounters>& loop_counters() const { return loop_counters_; }
  const PartitionPlan& plan() const { return mine_; }
  /// The node whose kernel runs in this partition's turn; empty: none. Any thread, while the
  /// partition's actor lives.
  std::string busy_with() const;
  /// And the run, by its number in the engine, for which it ran one last.
  std::uint64_t busy_for() const { return running_run_.load(std::memory_order_relaxed); }
  /// What it said of a run when it answered last, where nothing has happened to that run here
  /// since, nor can before a token or a grant comes. Any thread.
  std::optional<RunPart> stands(std::uint64_t run) const;
  /// What a node's kernel takes, by its index; 0 where it was not measured (scalars are not).
  std::int64_t cost_ns(std::int32_t index) const {
    return costs_[static_cast<std::size_t>(index)].nanoseconds.load(std::memory_order_relaxed);
  }

  /// Every kernel was measured and is short, or is a program of scalars, and is on operands of
  /// known shapes, of lists one at most. False for more kernels than are worth a look. Stepped, all
  /// are short: nobody waits for real, and measured times would not be the seed's.
  bool is_light() const;

  /// Runs a handed-over firing's kernel, on any thread, and posts its end.
  void run_elsewhere(Firing& firing);
  void complete(void* ticket, Status status, std::span<Value> outputs) override;

 private:
  // ns; waking a parked worker costs 7, its arrival 22 µs
  static constexpr std::int64_t kHeavy = 20'000;
  static constexpr std::uint32_t kSampled = 1024;  // one firing in so many is timed
  // ns of heavy kernels after which a turn ends: messages wait for no longer than that, and one
  // kernel
  static constexpr std::int64_t kLongTurn = 10'000'000;
  // A stream takes up to kBatches batches of kBatch kernels that it has not got to: then this waits
  // for it, so that a loop's work and buffers do not pile up there.
  // bytes: smaller tokens are bounded by windows alone
  static constexpr std::uint64_t kLarge = 4096;
  // iterations of which a token that goes on says enough: its receiver has something to do
  // meanwhile
  static constexpr std::int32_t kTimesAMessage = 256;
  // of a call's number: its place; how many were there before is above
  static constexpr int kPlaceBits = 32;
  static constexpr int kBatch = 256;
  // messages from one look at the clock to the next, within a turn
  static constexpr int kMessagesALook = 16;
  // firings from one look at the clock to the next, for loops' times; prime, to be out of step with
  // iterations
  static constexpr int kFiringsALook = 61;
  static constexpr int kBatches = 4;

  void answer(const Inspect& question);
  RunPart part_of(const Record& record);
  void find_sources();
  class Lone;
  std::int32_t predicate_of(const FramePlan& frame) const;

  void handle(PartitionMessage& message);
  void give_up(const Ref<Run>& run);
  void tell_given_up(const Ref<Run>& run, bool here_too);
  void start(const Ref<Run>& run);
  void accept(Token& token);
  void accept_one_by_one(Record& record, const Token& token);
  void accept_from_outside(Record& record, Token& token);
  void accept_at(Instance& instance, Token& token);
  void accept_here(Instance& instance, Token& token);
  void pass_on(Iteration& iteration, Token& token);
  void arrive(Iteration& iteration, const PartitionPlan::Receive& receive, bool is_dead,
              Value&& value);
  void take_early(Iteration& iteration);
  void arrive_early(Instance& instance, std::int64_t n, std::int32_t entry);
  const char* why_refused(const Instance& instance, std::int64_t n, std::int32_t window) const;
  const char* why_refused_early(const Token& token, std::int32_t around, const EarlyTokens& early,
                                std::size_t place) const;
  void refuse(Run& run, const PartitionPlan::Receive& edge, const char* why);
  const FramePlan& next_towards(std::int32_t frame, std::int32_t around) const;
  static std::int64_t number_in(const Instance& instance, const Token& token) {
    return instance.frame->depth == 0 || instance.frame->function
               ? 0
               : token.path.number[instance.frame->depth - 1];
  }
  std::string awaited_from(const Record& record, std::int32_t node) const;
  std::optional<std::pair<const PartitionPlan::Receive*, std::int64_t>> missing_from(
      const Instance& instance, std::int32_t node) const;
  void accept(const Lost& lost);
  void fire(Iteration& iteration, const PlanNode& node);
  void fire_closely(Iteration& iteration, const PlanNode& node);
  void observe(const Iteration& iteration, const PlanNode& node);
  void observe_next(const Iteration& iteration, std::int32_t loop, const Value& value);
  const Value& input_of(const Iteration& iteration, const PlanNode& node, std::int32_t input) const;
  const PlanNode* predicate_node(const FramePlan& frame) const;
  void follow_predicates();
  bool ends_with_a_queue(const FramePlan& loop) const;
  void tell_decision(const Instance& instance, OpenLoop& loop) const;
  bool run_kernel(Iteration& iteration, const PlanNode& node);
  void finish(Iteration& iteration, const PlanNode& node, Value* outputs);
  void finish_dead(Iteration& iteration, const PlanNode& node);
  void choose(Iteration& iteration, const PlanNode& node);
  void ask_device(Iteration& iteration, const PlanNode* node, const Tensor& predicate);
  void fired(Iteration& iteration);

  void deliver(Iteration& iteration, const Target& target, Value&& value);
  void deliver_dead(Iteration& iteration, const Target& target);
  void fetch_dead(Run& run, std::int32_t index);
  void deliver_elsewhere(Iteration& iteration, const Target& target, Value&& value);
  void deliver_all(Iteration& iteration, TargetRange targets, Value&& value);
  void deliver_several(Iteration& iteration, TargetRange targets, Value&& value);
  void deliver_controls(Iteration& iteration, TargetRange targets);
  void deliver_all_dead(Iteration& iteration, TargetRange targets);
  void count_down(Iteration& iteration, std::int32_t node, std::int32_t dead);
  void merge(Iteration& iteration, std::int32_t node, std::int32_t input, Value* value);
  void enable(Iteration& iteration, const PlanNode& node);
  void enable_apart(Iteration& iteration, const PlanNode& node);
  bool is_heavy(const PlanNode& node) const;
  void enter(Iteration& from, const PartitionPlan::Enter& enter, Value* value);
  void exit(Iteration& from, const PartitionPlan::Exit& exit, Value* value);
  void predicate(Iteration& iteration, Value&& value);
  void decide(Iteration& iteration, bool goes_on);
  void next(Iteration& from, std::int32_t loop, Value* value);
  void bring(Iteration& iteration, std::int32_t loop, Value* value);

  void call(Iteration& from, const PlanNode& node);
  void give_back(Iteration& iteration, const PlanNode& node, Value* value);
  void tell_of(const Instance& callee);
  CallPlace* free_place(Record& record, std::int32_t function, std::int32_t depth,
                        std::int64_t& call);
  CallPlace* place_of(Record& record, std::int32_t function, std::int64_t call);
  void accept_in_call(Record& record, Token& token);
  void begin_part(CallPlace& place, Record& record, Token& token);
  Iteration* call_ended(Record& record, Instance& instance);
  void tell(Record& record, std::int32_t send, std::int64_t call);
  void through(Record& record);
  void leave_if_over(Record& record);
  void forget_calls(Record& record);

  Instance& take_instance(Iteration& parent, std::int32_t frame);
  Instance& instance_at(Iteration& parent, std::int32_t frame);
  Iteration& open(Instance& instance);
  void count_time(Instance& instance);
  void look_at_clock(std::uint64_t tick) {
    looked_ = tick;
    if (has_loops_) now_ = driver_.time_at(tick);
  }
  std::vector<LoopSnapshot> loop_snapshots(const TickClock& clock);
  void advance(Instance& instance);
  Iteration* advanced(Instance& instance);
  Iteration* end(Instance& instance);
  void end(Record& record);
  void abandon(Ref<Run> run);
  Record* find(const Run& run);
  template <class End>
  Instance* instance_of(Record& record, const End& edge, const Path& path);
  void discard(Record& record);
  void discard(Instance& instance);

  void fetch(Record& record, std::int32_t index, Value&& value);
  Tensor land(const Tensor& on_device);
  void send(Iteration& from, std::int32_t send, Value* value);
  void post(Iteration& from, std::int32_t send, Value* value, std::int32_t times = 1);
  void let_go(Record::Held& token);
  static bool goes_on(const Token& token, const Iteration& from, const Value* value);
  void flush() {
    if (std::exchange(has_posted_, false)) driver_.flush();
  }
  std::uint64_t large() const {
    return std::max<std::uint64_t>(1, std::min(kLarge, plan_->edge_bytes));
  }
  bool has_room(const Iteration& from, std::int32_t send, std::uint64_t bytes);
  void note(Instance& instance, const Token& token);
  bool retry_held(Record& record, std::int32_t partition);
  bool is_granted(const Iteration& from, const PartitionPlan::Send& to) const;
  static bool is_same(bool is_dead, const Value& a, const Value* b);
  bool extend(const Iteration& from, std::int32_t send, const Value* value);
  static bool is_true(const Value& value);
  static bool tells_others(const Iteration& iteration) {
    return !iteration.instance->frame->told.empty();
  }
  void tell_others(Iteration& iteration, const Value* predicate, bool is_true);
  // A token on which another has gone, which the next one may go on as well: until what is posted
  // goes, in the same execution of its loop.
  struct Going {
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};
    std::uint64_t execution = kNone;  // it goes no further
    std::int64_t next = 0;            // of that iteration,
    // and of those before this one: as many as are granted and one message says
    std::int64_t end = 0;
    bool says_true = false;  // that a loop goes on
    // those before this iteration are of the token's `times`, and were counted as sent
    std::int64_t counted = 0;
    Token* token = nullptr;  // null: there is none
    Record* record = nullptr;
  };
  void goes_on_after(Token& token, const Iteration& from, std::int32_t send, std::int32_t times);
  void count_sent(Record& record, std::int32_t send, std::int32_t times, std::uint64_t bytes);
  static bool is_next(const Going& going, const Iteration& iteration);
  void extend(Going& going);
  void went_on_to_the_end(Going& going);
  void count_gone(std::int32_t send);
  // senders: those whose grants are due at this iteration, the others, both
  enum class Told : std::uint8_t { due, behind, all };
  void grant(Instance& instance, Told whom);
  void accept(const Grant& grant);
  void fail(Run& run, const PlanNode* node, const Status& status);
  static Status in_loop(const Iteration& iteration, Status status);
  void fail_at(Run& run, std::int32_t source, const Status& status);
  std::vector<ActorCounters> actor_counters();
  bool waits_outside(const Firing& firing) const;
  std::vector<EdgeCounters> edge_counters() const;
  /// Tokens that have not come, for those who ask what actors wait for.
  struct Missing {
    std::int32_t source = -1;  // node of the program; -1: none, or not known
    std::int32_t input = -1;   // of who awaits it; -1: a control edge
  };
  /// What decides whether a loop goes on.
  struct Deciding {
    struct Watch {
      const PlanNode* node;
      const Followed::Watch* of;
    };
    bool is_endless = false;  // it is the same for ever
    Followed followed;
    std::vector<Watch> here;              // in this frame
    std::vector<std::int32_t> variables;  // that decide, into PartitionPlan::loops, if all are here
  };
  class UnderWay;
  Missing missing_input(const Iteration& iteration, const PlanNode& node,
                        const UnderWay& under_way) const;
  void measure(const PlanNode& node, std::int64_t nanoseconds, std::span<const Value> outputs,
               std::uint64_t put, bool in_turn);
  static std::uint64_t put_into_lists(const Iteration& iteration, const PlanNode& node);
  void record_kernel(const Iteration& iteration, const PlanNode& node, std::int64_t start,
                     std::int64_t took);
  void record_ended(const Firing& firing);
  void record_wait(const Token& token);
  void record_copy(const Run& run, std::int32_t source, std::uint64_t began);
  void record_failure(const Run& run, std::int32_t source);
  void record_sent(const Token& token, const PartitionPlan::Send& to, std::int32_t first = 0,
                   std::int32_t count = 1);
  void record_received(const Token& token);
  std::uint64_t flow_of(const Token& token, std::int32_t partition, std::int32_t receive,
                        std::int32_t ahead) const;
  static void count_end(const Firing& firing);
  Firing& spare_firing();
  Firing& take_firing(Iteration& iteration, const PlanNode& node);
  void hand_over(Iteration& iteration, const PlanNode& node);
  void dispatch_heavy(Record& record);
  void hand_over_newest(Record& record);
  void give_way(Record& record);
  void dispatch_others(Record& record);
  static int compare(const Iteration& a, const Iteration& b);
  void bring_value(Value& value);
  void bring_or_fail(Run& run, Value& value, std::int32_t source);
  bool run_scalars(Iteration& iteration, const PlanNode& node);
  void bring_token(Value& value);
  void take_held(Iteration& iteration, const PlanNode& node);
  static void empty_inputs(Iteration& iteration, const PlanNode& node);
  KernelContext context(Iteration& iteration, const PlanNode& node, Value* outputs);

  struct Said;
  struct Cost {
    // written by the turn, read by reports; publishes nothing
    std::atomic<std::int64_t> nanoseconds{0};
    std::int32_t samples = 0;
    std::int64_t longest = 0;  // ns, of those that ended elsewhere, as of a user's actor
  };

  const std::shared_ptr<const Plan> plan_;
  const PartitionPlan& mine_;
  const std::int32_t index_;
  const Granularity granularity_;
  PartitionDriver& driver_;
  std::unique_ptr<Stream> stream_;
  std::vector<Value> scratch_;  // outputs of the firing under way
  std::vector<std::unique_ptr<Record>> records_;
  std::vector<Record*> idle_;
  std::vector<Record*> active_;
  std::vector<std::unique_ptr<Iteration>> iterations_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<std::vector<Iteration*>> spare_iterations_;  // by frame
  std::vector<std::vector<Instance*>> spare_instances_;
  Instance over_;                // stands among an iteration's children for one that has ended
  std::size_t next_active_ = 0;  // whose turn it is among the runs in flight
  std::vector<std::unique_ptr<Firing>> firings_;
  std::vector<Firing*> spare_;
  std::vector<LoopCounters> loop_counters_;
  // as above
  std::atomic<std::uint64_t> held_tokens_{0}, held_by_bytes_{0}, most_on_way_{0}, kept_calls_{0};
  // whose kernel the turn is in; points into the plan, publishes nothing
  std::atomic<const PlanNode*> running_{nullptr};
  std::atomic<std::uint64_t> running_run_{0};  // and of which run
  const bool hands_over_;                      // heavy kernels may go to other workers
  // there are some: without, no node's cost is looked at, which tiny ones would feel
  bool has_heavy_ = false;
  const bool has_loops_;
  // the driver's time when a message came or a few before it, a kernel of a microsecond ended, or
  // kFiringsALook firings ago: for loops
  std::uint64_t now_ = 0;
  std::vector<Cost> costs_;
  // Live firings are not counted: a node fires once an iteration, so they are the iterations but
  // for what is here.
  // by node: firings without a kernel, and those that a run given up left out
  std::vector<std::uint64_t> dead_, skipped_;
  std::vector<EdgeCount> sent_, received_;  // by send, by receive
  std::vector<Going> going_;                // by send
  std::vector<std::int32_t> are_going_;     // the sends that have one
  WorkAccount work_;
  std::uint64_t turn_ticks_ = 0;           // that turns took, since `work_` was settled
  std::int64_t settled_ns_ = steady_ns();  // when that was
  // ticks: when the last turn left nothing to do in a run that is going on; 0: it did not
  std::uint64_t parked_ = 0;
  // the node of the program that failed a run last; -1: none since the last start
  std::atomic<std::int32_t> failed_{-1};
  FlightRecorder recorder_;
  mutable std::mutex said_mutex_;     // guards said_, which no turn looks at but to answer
  std::shared_ptr<const Said> said_;  // what it said last
  std::uint64_t executions_ = 0;      // of loops and calls that have begun
  std::vector<Deciding> deciding_;    // by frame; since somebody asked
  // its nodes, by their numbers in the program; since somebody asked
  std::unordered_map<std::int32_t, const PlanNode*> by_source_;
  // what waits at a queue, for which nodes of the program; the same
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> may_end_;
  int observes_ = 0;          // what they compare, in so many more firings
  std::size_t may_read_ = 0;  // bytes of what such loops begin their iterations with
  // traces, and this turn may draw more, or observes, or is to end
  bool looks_closer_ = false;
  std::int64_t heavy_ns_ = 0;  // what heavy kernels have taken in this turn
  bool is_long_ = false;       // too much: this turn ends before it fires more
  // firings that the run whose turn it is may have, and how many of them it has not; share_ 0: it
  // is nobody's
  int share_ = 0, left_ = 0;
  bool is_drawn_ = false;  // the firing under way is an event of its own
  // ticks: when the message came that is handled, or was last, or a few before it; 0: a turn has
  // begun since, or was broken off
  std::uint64_t heard_ = 0;
  int heard_by_look_ = 0;  // messages since
  // ticks: now, but for a few firings of scalars; 0: a kernel or a copy has taken its time since
  std::uint64_t looked_ = 0;
  // of a turn that looks closer: when its firing began, or its last one that was drawn ended
  std::uint64_t last_tick_ = 0;
  bool has_posted_ = false;  // what waits for `flush`
  std::uint32_t tick_ = 0;
  int in_batch_ = 0;  // kernels enqueued since the last event
  int batches_ = 0;   // events that the stream has not got to
};

}  // namespace troupe
