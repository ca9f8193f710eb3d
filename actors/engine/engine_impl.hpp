// The implementation of an Engine, for the folders that build on it; users include engine.hpp. It
// composes the tables of this folder (README.md) and adds the paths through them: compile, start,
// end, time out, inspect.
//
// Runs over several nodes: the engine that compiled the plan owns its runs and begins them on the
// others through `RemotePlan`. At the others their node calls `take_part` and `begin_part` for the
// partitions they have.
//
// Threads: any. Each table has its own lock, and no two are held at once. Kernels, actors and other
// nodes are called without a lock, but `laying_mutex_`. Invariants: INVARIANTS.md.
// Ownership: the engine owns threads, devices and states; `shut_down` ends all runs before they go.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <troupe/actors/engine/device_table.hpp>
#include <troupe/actors/engine/effect_record.hpp>
#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/engine/engine_clock.hpp>
#include <troupe/actors/engine/initial_record.hpp>
#include <troupe/actors/engine/laid_variables.hpp>
#include <troupe/actors/engine/plan_cache.hpp>
#include <troupe/actors/engine/run_log.hpp>
#include <troupe/actors/engine/run_table.hpp>
#include <troupe/actors/engine/state_table.hpp>

namespace troupe::detail {

struct AtWork;

class EngineImpl final : public DeviceFinder, public ActorHost {
 public:
  explicit EngineImpl(EngineOptions options);
  ~EngineImpl();
  /// Ends all runs and drops the actors; blocks.
  void shut_down();

  /// Makes this engine a node of a cluster, before its first use. `peers` must outlive it.
  void join(Peers& peers);
  Peers* peers() const { return peers_; }
  const EngineOptions& options() const { return options_; }
  caf::actor_system& system() { return *system_; }

  // ---- states of other nodes' programs (state_table.hpp)

  using OthersStates = StateTable::Others;
  OthersStates states_of(const StateOwner& who) { return states_.of(who); }
  bool has_others_states() { return states_.has_others(); }
  bool has_states_of(const StateOwner& who) { return states_.has(who); }
  std::size_t drop_states(const std::function<bool(const StateOwner&)>& is_gone) {
    return states_.drop(is_gone);
  }
  StateStore& eager_states() { return states_.own(); }
  /// This engine's own store; the caller must not outlive the engine.
  std::shared_ptr<StateStore> own_states() {
    return {std::shared_ptr<StateStore>(), &states_.own()};
  }

  // ---- devices

  Device* find(const std::string& name) override;
  std::string node() const override { return peers_ ? peers_->name() : std::string(); }
  /// Returns a device of this machine by its short name, made on first use.
  Device& device(const std::string& name) { return devices_.get(name); }
  Ref<State> host(const StateSpec& spec) override;

  // ---- compiling

  std::shared_ptr<CompiledPlan> compile(const Graph& graph, const std::vector<Edge>& feeds,
                                        const std::vector<Edge>& fetches,
                                        const CompileOptions& options, bool is_staged = false);
  /// Returns the function itself or, if one of its nodes was lost, a plan made anew. Throws as
  /// `compile` does.
  std::shared_ptr<CompiledPlan> current(const std::shared_ptr<CompiledPlan>& compiled);
  /// Returns the kept plan for this request, or compiles and keeps one.
  std::shared_ptr<CompiledPlan> cached(const Graph& graph, const std::vector<Edge>& feeds,
                                       const std::vector<Edge>& fetches);
  /// Makes a plan of a program that was placed on this engine's devices when it was saved.
  std::shared_ptr<CompiledPlan> adopt(Placed placed) {
    return make_troupe(std::move(placed), {}, 0);
  }
  /// Makes this node's part of another node's plan.
  std::shared_ptr<CompiledPlan> take_part(Placed placed, int call_depth, PlanName name,
                                          std::shared_ptr<StateStore> states);

  // ---- runs

  Ref<Run> start(const std::shared_ptr<CompiledPlan>& compiled, std::vector<Tensor> feeds,
                 const RunOptions& options);
  /// Starts a run and waits for it. If a worker is idle and no other run is in flight, the caller
  /// executes the run in that worker's place: without a thread to wake, a small run takes half its
  /// time. A run with a time-out is left to the workers.
  Ref<Run> run(const std::shared_ptr<CompiledPlan>& compiled, std::vector<Tensor> feeds,
               const RunOptions& options);
  /// Begins this node's part of another node's run. `owners_id`: its number there. `on_end` is
  /// called once, when all partitions of this node have left.
  Ref<Run> begin_part(const std::shared_ptr<CompiledPlan>& compiled, RunKey key,
                      std::uint64_t owners_id, std::uint64_t step, std::uint64_t seed,
                      std::vector<Tensor> feeds, std::function<void(Run&)> on_end);
  /// Returns how many runs are in flight, parts of other nodes' runs among them.
  std::size_t in_flight() const { return runs_.in_flight(); }
  /// Cancels a run that was started here, by its number. Throws not_found if it is not under way.
  void cancel(std::uint64_t number);
  /// Keeps a run that has failed elsewhere after this node had done its part.
  void keep_failed_elsewhere(EndedRun end) { log_.add_failed_elsewhere(std::move(end)); }
  void wait(Run& run);
  /// Waits until the file of `RunOptions::trace` is written or has failed, and returns the status.
  Status trace_of(const Run& run);
  EngineSnapshot snapshot(std::chrono::nanoseconds patience);
  /// Asks this node's partitions of a plan. A partition that does not answer in time is listed
  /// without an answer. `inspection` and `place` of the question are set here. Throws not_found.
  std::vector<PartitionSnapshot> ask(const PlanName& plan, const Inspect& question,
                                     std::chrono::nanoseconds patience);
  /// Asks all plans of this node, before it waits for any.
  std::vector<std::pair<std::shared_ptr<CompiledPlan>, std::vector<PartitionSnapshot>>> ask_all(
      const Inspect& question, std::chrono::nanoseconds patience);
  /// Returns the plans of this node, the newest last.
  std::vector<std::shared_ptr<CompiledPlan>> plans() { return plans_.alive(); }
  void fail(Run& run, Status status) { run.fail(std::move(status)); }
  /// Blocks until `is_done`. A deterministic engine takes steps meanwhile, here and on other nodes.
  void step_until(const std::function<bool()>& is_done);

  // ---- state

  Tensor get(const std::string& variable);
  void set(const std::string& variable, Tensor value);
  /// Read and write a variable that a graph declares, on its node; made on first use.
  Tensor get(const StateSpec& spec);
  void set(const StateSpec& spec, Tensor value);

  /// Read and write a variable of one store, for the node whose graph declares it.
  static Tensor get_in(StateStore& states, const StateSpec& spec);
  static void set_in(StateStore& states, const StateSpec& spec, Tensor value);
  /// Notes where a state lives that an eager scope uses, on its device.
  void settle(StateSpec spec) {
    if (!spec.initial.seed) spec.initial.seed = options_.seed;
    states_.settle(spec);
  }
  /// Returns the names of variables of this engine's programs, on all nodes, in order.
  std::vector<std::string> variables() { return laid_.names_among(states_.variables()); }

  const std::unique_ptr<WorkerPool>& pool() const { return pool_; }
  std::atomic<std::uint64_t> step_{0};  // publishes nothing but itself

 private:
  struct SystemConfig : caf::actor_system_config {
    explicit SystemConfig(WorkerPool& pool);
  };

  /// Makes the plan of a placed program, or of this node's part of one.
  std::shared_ptr<const Plan> plan_of(Placed placed, int call_depth, PlanName name,
                                      StateStore& states);
  std::shared_ptr<CompiledPlan> make_troupe(Placed placed, std::vector<PassReport> reports,
                                            std::uint64_t graph);
  PlacementOptions placement_options();
  ResidentOptions resident_options(const Graph& graph, const CompileOptions& options) const;
  Measured measured(std::uint64_t graph);
  void spawn_partitions(CompiledPlan& compiled);
  CostOptions costs() const;
  static void check_feeds(const Plan& plan, const std::vector<Tensor>& feeds);
  RunTable::Slot admit(const RunOptions& options);
  void require_may_wait() const;
  Ref<Run> make_run(const std::shared_ptr<CompiledPlan>& compiled, std::uint64_t step,
                    std::uint64_t seed, std::vector<Tensor> feeds, int leavers);
  Ref<Run> begin(const std::shared_ptr<CompiledPlan>& compiled, std::vector<Tensor> feeds,
                 const RunOptions& options, RunTable::Slot slot);
  /// Cancels a failed run's waiters in states, and abandons the run on all its nodes.
  void give_up(Run& run);
  void forget(Run& run, bool is_owned, const std::string& trace = {},
              std::shared_ptr<std::promise<Status>> traced = {});
  /// Asks the partitions for their events of a run that has ended; the last answer writes them to
  /// `path`, or to the flight recorder's files. `traced`, if not null, receives the status.
  void write_events(const Run& run, const EndedRun& end,
                    const std::shared_ptr<CompiledPlan>& compiled, const std::string& path,
                    Inspect::Trace trace, std::shared_ptr<std::promise<Status>> traced);
  void add_queue(ActorCounters& counters, const CompiledPlan& compiled);
  std::vector<PartitionSnapshot> answers_of(const CompiledPlan& compiled,
                                            const Inspection& inspection);
  void wait_for(const std::vector<std::shared_ptr<Inspection>>& inspections,
                std::chrono::nanoseconds patience);
  void expire(std::uint64_t id);
  void time_out(Run& run, const std::vector<LeanRef<PartitionActor>>& partitions,
                const std::vector<PartitionSnapshot>& answers,
                const std::vector<RunSnapshot>& elsewhere);
  void answered(std::uint64_t id);
  static std::shared_ptr<Inspection> ask(const std::vector<LeanRef<PartitionActor>>& partitions,
                                         Inspect question,
                                         std::function<void(Inspection&)> on_complete = {});
  RunSnapshot snapshot_of(const Run& run, const std::vector<LeanRef<PartitionActor>>& partitions,
                          const std::vector<PartitionSnapshot>& answers);
  void add_user_code(PartitionSnapshot& silent, const Run& run, const PartitionPlan& plan);
  bool step_elsewhere() { return peers_ && peers_->step(); }
  void wait_for_streams();
  StateSpec declared(StateSpec spec, bool is_given);
  /// True if the engine has the state, here or elsewhere.
  bool is_used(const StateSpec& spec);
  /// Gives the pieces of variables that a program lays out their values. False if a program uses
  /// one of the variables whole; laying_mutex_ is locked.
  bool store_in_pieces(const mesh::detail::VariableHomes& homes);
  bool is_laid_out_now(const std::string& variable);
  /// Cuts the values of those variables that are still whole, of which these are pieces.
  void cut_variables(const std::vector<std::string>& pieces);
  void cut_variables_of(const Graph& program);
  bool is_elsewhere(const StateSpec& spec) const {
    return peers_ && node_of(spec.device) != peers_->name();
  }
  bool is_elsewhere(const std::string& variable, StateSpec& home);

  EngineOptions options_;
  StateTable states_{this};
  LaidVariables laid_;
  std::unique_ptr<WorkerPool> pool_;
  DeviceTable devices_;
  std::mutex hosted_mutex_;  // guards hosted_; nothing else is locked under it
  std::vector<std::weak_ptr<AtWork>> hosted_;
  SystemConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  Peers* peers_ = nullptr;                   // set before the engine is used
  std::atomic<std::uint64_t> next_plan_{1};  // publishes nothing but itself
  PlanCache plans_;
  EngineClock clock_{[this](std::uint64_t run) { expire(run); }};
  RunTable runs_;
  RunLog log_{options_};
  RunEndingCounter endings_;  // counts ended runs, of plans that are gone too
  EffectRecord effects_;
  InitialRecord initials_;
  std::mutex laying_mutex_;  // held while a program arranges variables: tables and nodes are called
};

}  // namespace troupe::detail
