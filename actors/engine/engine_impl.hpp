// What stands behind an Engine: threads, devices, state, the plans and the runs in flight. For the
// folders that build on it; users include engine.hpp.
//
// Runs over several nodes: the engine that compiled the plan owns its runs, and begins them on the
// others through `RemotePlan`. At the others their node calls `take_part` and `begin_part`: their
// part of the plan, with the partitions they have.
//
// Locks: `mutex_` is held for book-keeping only; kernels, actors and other nodes are called without
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/executor/partition_actor.hpp>
#include <troupe/actors/executor/remote_plan.hpp>
#include <troupe/actors/observe/inspection.hpp>
#include <troupe/actors/plan/pipeline.hpp>
#include <troupe/actors/runtime/clock.hpp>
#include <troupe/actors/runtime/deadlines.hpp>

namespace troupe {

struct AtWork;

/// A plan and its actors.
class Compiled {
 public:
  /// The engine, while it lives.
  EngineImpl& owner() const {
    if (!engine) throw Error(Code::failed_precondition, "the engine of this function is gone");
    return *engine;
  }

  /// What its loops did, on all its nodes.
  std::vector<LoopReport> loops() const;
  /// The part of that which is on this node.
  std::vector<LoopReport> loops_here() const;
  /// What kernels of this node took.
  std::vector<NodeCost> costs_here() const;

  EngineImpl* engine = nullptr;
  PlanTroupe troupe;
  std::vector<PassReport> reports;
  CostOptions costs = {};  // what placement went by
  Measured measured = {};

  /// Of a plan over several nodes, at its owner: what it is made of again when one of them was
  /// lost.
  std::unique_ptr<const Placed> placed = {};
  std::mutex renewal_mutex = {};  // guards renewed
  std::shared_ptr<Compiled> renewed = {};
  std::shared_ptr<StateStore> states = {};  // of a part of another node's plan: its owner's
  std::uint64_t constant_bytes = 0;
  std::uint64_t graph = 0;  // that it was compiled from; 0: it came from another node
  const std::int64_t made_ns = epoch_ns();
  // runs, as this node has seen them; publish nothing
  std::atomic<std::uint64_t> started{0}, ended{0}, failed{0};
};

class EngineImpl final : public DeviceFinder, public ActorHost {
 public:
  explicit EngineImpl(EngineOptions options);
  ~EngineImpl();
  /// Ends what still runs; after it no partition has work.
  void shut_down();

  /// Makes this engine a node, before it is used. `peers` outlives it.
  void join(Peers& peers);
  Peers* peers() const { return peers_; }
  const EngineOptions& options() const { return options_; }
  caf::actor_system& system() { return *system_; }
  StateStore& states() { return states_; }
  /// What programs of other nodes keep here, made on first use; `number` counts up with every store
  /// that was made, from 1.
  struct OthersStates {
    std::shared_ptr<StateStore> store;
    std::uint64_t number = 0;
  };
  OthersStates states_of(const StateOwner& who);
  /// This engine's own; nobody's to drop.
  std::shared_ptr<StateStore> own_states() { return {std::shared_ptr<StateStore>(), &states_}; }
  bool has_others_states();
  bool has_states_of(const StateOwner& who);
  /// Drops the states of those whom `is_gone` names; how many. Plans that were made with them keep
  /// them.
  std::size_t drop_states(const std::function<bool(const StateOwner&)>& is_gone);

  // ---- devices

  Device* find(const std::string& name) override;
  std::string node() const override { return peers_ ? peers_->name() : std::string(); }
  /// Of this machine, by its short name; made if it was not used yet.
  Device& device(const std::string& name);
  Ref<State> host(const StateSpec& spec) override;

  /// Of the options, with what is known of simulated devices.
  CostOptions costs() const;

  // ---- compiling

  std::shared_ptr<Compiled> compile(const Graph& graph, const std::vector<Edge>& feeds,
                                    const std::vector<Edge>& fetches,
                                    const CompileOptions& options);
  /// The same, or what it was made anew into after one of its nodes was lost; makes it. Throws as
  /// `compile` does.
  std::shared_ptr<Compiled> current(const std::shared_ptr<Compiled>& compiled);
  /// Plans of recent graphs, the least recently used dropped first.
  std::shared_ptr<Compiled> cached(const Graph& graph, const std::vector<Edge>& feeds,
                                   const std::vector<Edge>& fetches);
  /// The part of another node's plan that is here.
  std::shared_ptr<Compiled> take_part(Placed placed, int call_depth, PlanName name,
                                      std::shared_ptr<StateStore> states);

  // ---- runs

  Ref<Run> start(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds,
                 const RunOptions& options);
  /// Starts a run and waits for it. A caller that finds a worker idle and nothing else under way
  /// works on the run itself in that worker's place: with no thread to wake, nor to be woken by, a
  /// small run takes half its time. Not where the run may have to be answered for before it ends.
  Ref<Run> run(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds,
               const RunOptions& options);
  /// Begins the part of another node's run that is here; `owners_id`: its number there; `on_end` is
  /// called once, when all of it has left.
  Ref<Run> begin_part(const std::shared_ptr<Compiled>& compiled, RunKey key,
                      std::uint64_t owners_id, std::uint64_t step, std::uint64_t seed,
                      std::vector<Tensor> feeds, std::function<void(Run&)> on_end);
  /// Runs under way here, parts of others' among them.
  std::size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  void wait(Run& run);
  EngineSnapshot snapshot(std::chrono::nanoseconds patience);
  /// What the partitions of a plan that are here answer to a question of one's own (its inspection
  /// and place are not looked at); those that do not in time are there without an answer. Throws
  /// not_found.
  std::vector<PartitionSnapshot> ask(const PlanName& plan, const Inspect& question,
                                     std::chrono::nanoseconds patience);
  /// Of every plan that is here, all of them asked before any is waited for.
  std::vector<std::pair<std::shared_ptr<Compiled>, std::vector<PartitionSnapshot>>> ask_all(
      const Inspect& question, std::chrono::nanoseconds patience);
  /// Plans that take part here, the newest last.
  std::vector<std::shared_ptr<Compiled>> plans();
  void fail(Run& run, Status status) { run.fail(std::move(status)); }
  /// Blocks until `is_done`; a deterministic engine takes steps, here and elsewhere, until then.
  void step_until(const std::function<bool()>& is_done);

  // ---- state

  Tensor get(const std::string& variable);
  void set(const std::string& variable, Tensor value);
  /// Where a variable lives that a graph declares: its home is asked, or made, there.
  Tensor get(const StateSpec& spec);
  void set(const StateSpec& spec, Tensor value);

  /// The same in one store, for another node, from whose graph the spec is.
  static Tensor get_in(StateStore& states, const StateSpec& spec);
  static void set_in(StateStore& states, const StateSpec& spec, Tensor value);
  /// Of this engine's programs, here and elsewhere, in order.
  std::vector<std::string> variables();

  const std::unique_ptr<WorkerPool>& pool() const { return pool_; }
  std::atomic<std::uint64_t> step_{0};  // publishes nothing but itself

 private:
  class Timekeeper;
  struct SystemConfig : caf::actor_system_config {
    explicit SystemConfig(WorkerPool& pool);
  };
  static constexpr std::size_t kMaxPlans = 64;
  // of constants in plans that only the cache holds, besides the newest
  static constexpr std::uint64_t kMaxPlanBytes = 256 << 20;
  struct CacheKey {
    std::uint64_t graph;
    std::uint64_t version;
    std::vector<Edge> feeds, fetches;
    friend bool operator==(const CacheKey&, const CacheKey&) = default;
  };

  std::shared_ptr<Compiled> make_troupe(Placed placed, std::vector<PassReport> reports,
                                        std::uint64_t graph);
  PlacementOptions placement_options();
  Measured measured(std::uint64_t graph);
  void spawn_partitions(Compiled& compiled);
  void remember_homes(const Graph& graph);
  static void check_feeds(const Plan& plan, const std::vector<Tensor>& feeds);
  /// The right to have one more run in flight. Dropping it gives it back; a run that is kept gives
  /// it back when it is forgotten.
  class Place {
   public:
    Place(EngineImpl& engine, std::chrono::nanoseconds left) : engine_(&engine), left_(left) {}
    Place(Place&& o) noexcept : engine_(std::exchange(o.engine_, nullptr)), left_(o.left_) {}
    Place& operator=(Place&&) = delete;
    ~Place() { give_back(); }
    /// Of the run's time-out; 0: it has none.
    std::chrono::nanoseconds left() const { return left_; }
    void hand_on() { engine_ = nullptr; }

   private:
    void give_back();
    EngineImpl* engine_;
    std::chrono::nanoseconds left_;
  };
  Place admit(const RunOptions& options);
  void leave_place();  // mutex_ is held
  void require_may_wait() const;
  Ref<Run> make_run(const std::shared_ptr<Compiled>& compiled, std::uint64_t step,
                    std::uint64_t seed, std::vector<Tensor> feeds, int leavers);
  // mutex_ is held; throws cancelled if the engine is shutting down
  void keep(const Ref<Run>& run, Compiled& compiled);
  Ref<Run> begin(const std::shared_ptr<Compiled>& compiled, std::vector<Tensor> feeds,
                 const RunOptions& options, Place place);
  /// Of all that waits in states for a run that has failed, and of what its other nodes do of it.
  void give_up(Run& run);
  void forget(Run& run, const std::shared_ptr<Compiled>& compiled, bool is_owned,
              const std::string& trace = {});
  /// Writes what the partitions have recorded of a run that has ended, when they have answered: to
  /// `path`, or the flight recorder's files.
  void write_events(const Run& run, const EndedRun& end, const std::shared_ptr<Compiled>& compiled,
                    const std::string& path, Inspect::Trace trace);
  bool may_write_flight();
  void log_failure(const EndedRun& end);
  void add_queue(ActorCounters& counters, const Compiled& compiled);
  std::vector<PartitionSnapshot> answers_of(const Compiled& compiled, const Inspection& inspection);
  void wait_for(const std::vector<std::shared_ptr<Inspection>>& inspections,
                std::chrono::nanoseconds patience);
  void expire(std::uint64_t id);
  void time_out(Run& run, const std::vector<LeanRef<PartitionActor>>& partitions,
                const std::vector<PartitionSnapshot>& answers,
                const std::vector<RunSnapshot>& elsewhere);
  void heard(std::uint64_t id, const RunSnapshot& part);
  void answered(std::uint64_t id);
  /// Has `expire` called with the run's number; mutex_ is held.
  void remind_in(std::chrono::nanoseconds delay, Run& run);
  /// By the engine's clock: the steady one, or a deterministic engine's.
  std::chrono::nanoseconds time() const;
  static std::shared_ptr<Inspection> ask(const std::vector<LeanRef<PartitionActor>>& partitions,
                                         Inspect question,
                                         std::function<void(Inspection&)> on_complete = {});
  RunSnapshot snapshot_of(const Run& run, const std::vector<LeanRef<PartitionActor>>& partitions,
                          const std::vector<PartitionSnapshot>& answers);
  void add_user_code(PartitionSnapshot& silent, const Run& run, const PartitionPlan& plan);
  bool step_elsewhere() { return peers_ && peers_->step(); }
  void wait_for_streams();
  StateSpec declared(StateSpec spec, bool is_given);
  std::vector<std::shared_ptr<StateStore>> all_states();
  bool is_elsewhere(const StateSpec& spec) const {
    return peers_ && node_of(spec.device) != peers_->name();
  }
  bool is_elsewhere(const std::string& variable, StateSpec& home);

  EngineOptions options_;
  StateStore states_{this};
  std::unique_ptr<WorkerPool> pool_;
  std::mutex devices_mutex_;  // guards devices_
  std::map<std::string, std::unique_ptr<Device>> devices_;
  std::mutex hosted_mutex_;  // guards hosted_; nothing else is locked under it
  std::vector<std::weak_ptr<AtWork>> hosted_;
  SystemConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  Peers* peers_ = nullptr;                   // set before the engine is used
  std::atomic<std::uint64_t> next_run_{1};   // publishes nothing but itself
  std::atomic<std::uint64_t> next_plan_{1};  // the same

  // guards closing_, live_, expiring_, plans_, compiled_, recent_, errors_, settled_, homes_,
  // flights_ and what is behind it
  std::mutex mutex_;
  bool closing_ = false;  // no run begins any more
  std::condition_variable drained_;
  std::unordered_map<std::uint64_t, Ref<Run>> live_;
  /// A run whose time is up: asked why it has not ended.
  struct Expiring {
    std::shared_ptr<Inspection> here;
    std::vector<RunSnapshot> elsewhere;  // of other nodes
    std::size_t nodes = 0;               // how many of those were asked
    bool is_answered() const { return here->is_complete() && elsewhere.size() == nodes; }
  };
  std::unordered_map<std::uint64_t, Expiring> expiring_;
  // admitted, and parts of others' runs; written under mutex_, read by callers that work
  std::atomic<std::size_t> in_flight_{0};
  std::condition_variable room_;                                     // for another run
  std::list<std::pair<CacheKey, std::shared_ptr<Compiled>>> plans_;  // most recently used first
  std::vector<std::weak_ptr<Compiled>> compiled_;                    // all that users hold
  static constexpr std::size_t kRecent = 32, kErrors = 64;
  std::vector<EndedRun> recent_, errors_;  // rings
  std::uint64_t ended_ = 0, failed_ = 0;   // how many there were
  std::uint64_t flights_ = 0;              // files of failed runs, since:
  std::chrono::steady_clock::time_point flights_since_, logged_since_;
  std::uint64_t logged_ = 0, untold_ = 0;       // runs that failed, since then; until then
  std::map<std::string, std::string> settled_;  // where states live that plans here have used
  // variables that plans here have used, by name and node
  std::map<std::string, std::map<std::string, StateSpec>> homes_;
  std::map<StateOwner, OthersStates> others_states_;
  std::uint64_t stores_ = 0;  // that others_states_ ever held
  // dropped; runs that are still to end may wait in them
  std::vector<std::weak_ptr<StateStore>> left_states_;
  LeanRef<Timekeeper> timekeeper_;                                 // of virtual time
  Deadlines deadlines_{[this](std::uint64_t id) { expire(id); }};  // of real time
};

}  // namespace troupe
