// The engine: runs graphs as troupes of actors on this machine's devices.
//
//   Engine engine;
//   Function step = engine.compile(graph, {x, y}, {loss, train});
//   std::vector<Tensor> out = step({tx, ty});          // feeds in, fetches out, in the given order
//   Tensor w = engine.get("layer1/w");
//
// Ownership: the engine owns threads, devices and state; functions and runs must not outlive it.
// Threads: compile, run, start, get and set from any thread; several runs may be in flight. A
// user's actor may start runs of its own engine, but wait for them only if it is declared to block
// (`ActorOptions::blocks`): else failed_precondition.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/observe/hang_diagnosis.hpp>
#include <troupe/actors/placement/cost_options.hpp>
#include <troupe/actors/plan/options.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/ops/eager/host.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/graph/variable.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe {

/// A line of a log: an event, and the node, run, plan and actor that it concerns. A field that does
/// not apply is empty.
struct LogRecord {
  enum class Level : std::uint8_t { info, warning, error } level = Level::info;
  std::int64_t time_ns = 0;  // since the Unix epoch
  std::string node, run, plan, actor;
  std::string text;
};

struct EngineOptions {
  int workers = 0;  // threads, 4096 at most; 0: one a core
  Granularity granularity = Granularity::automatic;
  std::uint64_t seed = 0;  // keys random draws, and initial values without a seed of their own
  bool optimize = true;    // run the passes; pruning and state order always run
  /// No threads: a run advances only while a caller waits for it or calls `take_step`. The order is
  /// drawn from the seed, and time is virtual. For tests; on one node also with simulated devices,
  /// which have threads of their own.
  bool deterministic = false;
  /// The device of unconstrained nodes; empty: `cpu:0`. Devices are made on first use: `sim:N`, and
  /// `cpu:0` to `cpu:99`, which share the same cores (a graph over several of them is cut as over
  /// any devices).
  std::string default_device = {};
  /// `automatic`: unconstrained nodes go to the devices on which a run is predicted to end
  /// earliest, within the available memory. The plan is then never predicted to be slower than with
  /// all of them on the default device.
  Placement placement = Placement::constraints;
  /// The devices that the cost model, and constraints that name no single device, may use; empty:
  /// the default device and `cpu:0` of every node of the cluster.
  std::vector<std::string> devices = {};
  CostOptions costs = {};
  EdgeOptions edges = {};
  /// For tests: unconstrained nodes go to these devices instead, each to one that is drawn from the
  /// seed.
  std::vector<std::string> scatter = {};
  SwapOptions swap = {};  // for devices with a memory limit
  GpuOptions gpu = {};
  // for simulated devices; the engine sets the name, swap and the start of the seed
  SimOptions sim = {};
  /// The most runs in flight. Starting one more blocks until one has ended. Each holds its values
  /// and a state for every open iteration.
  int max_runs = 256;
  /// Receives the lines that `Console`s print, on the thread that prints; empty: standard output.
  detail::PrintLine print = {};
  /// The most nested calls of functions: the limit of endless recursion. Each call takes a few
  /// hundred bytes and the values that it saves for a gradient. A deeper run fails with
  /// resource_exhausted.
  int call_depth = 10'000;
  /// The folder for the flight recorder of runs that fail: `DIR/NODE@OWNER-RUN.flight.json`, with
  /// the firing that failed and the cause. It keeps the last kFlights files of this node. If more
  /// runs fail within a minute, only the first kFlights are written. Nodes may share the folder; it
  /// keeps the last 16 * kFlights files of all nodes. The log names the file. Empty: no file is
  /// written (`troupe node` has a default folder).
  std::string flight = {};
  static constexpr std::uint64_t kFlights = 16;
  /// Receives the events of runs and nodes, on the thread on which they happen. It must not block;
  /// its exceptions are dropped. If many runs fail within a minute, it receives the first
  /// kFailuresLogged failures, and the number of further ones with the next failure after that
  /// minute. Empty: no log.
  std::function<void(const LogRecord&)> log = {};
  static constexpr std::uint64_t kFailuresLogged = 100;
};

struct RunOptions {
  /// Keys random draws; -1: counts up with every run of this engine. Save it with a checkpoint.
  std::int64_t step = -1;
  /// 0: none. Counts from the call, so it includes waiting for other runs (`max_runs`). A run that
  /// takes longer ends with deadline_exceeded and the cause of the wait (`diagnose`).
  std::chrono::nanoseconds timeout{0};
  /// A file for the timed firings of this node's partitions in this run, in the format of Chrome
  /// and Perfetto. It is complete a little after the run has ended: `RunHandle::trace` waits for
  /// it and returns whether it was written. It excludes the partitions of other nodes;
  /// `troupe trace` joins the files of all nodes. Throws invalid_argument if no file can be made.
  /// Empty: none.
  std::string trace = {};
};

struct CompileOptions {
  bool optimize = true;
  // names of passes, for tests and for finding a faulty pass; unknown names are invalid_argument
  std::vector<std::string> skip_passes = {};
  /// f16 or bf16: f32 products, and the ops between them, are stored in this dtype
  /// (`mixed_precision` in ops/graph/program.hpp); variables stay f32. For f16 scale the loss
  /// (autodiff/loss_scale.hpp). Needs `optimize`.
  std::optional<DType> mixed_precision = {};
  /// True: a function runs the effects (assignments, optimizer steps, enqueues, prints, actors)
  /// that its fetches name or depend on, and no others; those that run, run in program order.
  /// Inside a branch, a loop or a function that runs, all effects run. False: all effects of the
  /// graph run, so that all inputs which they need must be fed.
  bool prune_effects = true;
  /// A run fails at the first node that makes a floating value that is not finite from finite
  /// operands. Its error names the node, its line, its iteration and the element; in a fused node,
  /// also the operation. A node that makes NaN from infinities fails too. The error of a feed, or
  /// of a variable that is read, has its name. Constants and fills may hold any value, and so may
  /// values made from them, because users mask with infinities. A run takes up to 1.3 times as
  /// long; without the option nothing is checked.
  bool check_finite = false;
  /// Loops whose bodies are pure and have fixed shapes run as one kernel each on the CPU, if that
  /// is faster. `Function::explain` lists them, and gives the reasons for other loops. False: the
  /// nodes of every loop fire one by one, so that single iterations can be observed. Results are
  /// equal.
  bool resident_loops = true;
  /// The scalar steps of these loops are translated into machine code when the program is compiled,
  /// where the build and the system permit it. False: they are interpreted. Results are equal.
  bool compiled_loops = true;
  /// The program is cut over a mesh of devices by this layout (ops/mesh/mesh.hpp). Feeds, fetches
  /// and what `get` and `set` see of a variable stay whole. Compiling throws invalid_argument,
  /// naming dimension, axis, node and line, if a tensor does not fit the layout.
  std::optional<mesh::Partitioning> mesh = {};
};

namespace detail {

class Run;
class EngineImpl;

}  // namespace detail

/// A run in flight. Dropping the handle lets the run finish by itself. An empty one, or one that
/// was moved from, answers every call with failed_precondition.
class RunHandle {
 public:
  RunHandle();
  RunHandle(detail::EngineImpl& engine, detail::Ref<detail::Run> run);
  RunHandle(RunHandle&&) noexcept;
  RunHandle& operator=(RunHandle&&) noexcept;
  ~RunHandle();

  /// Blocks until the run has ended, and returns its status.
  Status wait();
  bool is_done() const;
  /// Waits until the file of `RunOptions::trace` is written, and returns whether it was; ok without
  /// one. A trace that is lost does not fail its run: the log has the same text, standard error if
  /// there is no log.
  Status trace();
  /// Moves the fetched tensors out. A second call throws failed_precondition. Throws the run's
  /// error.
  std::vector<Tensor> get();
  /// Ends the run for its waiter at once. Kernels that have started finish; their results are
  /// dropped.
  void cancel();

 private:
  detail::Run& run() const;

  detail::EngineImpl* engine_ = nullptr;
  detail::Ref<detail::Run> run_;
  bool is_taken_ = false;  // `get` has moved the fetches out
};

namespace detail {

class CompiledPlan;

}  // namespace detail

struct LoopReport;

/// A graph compiled for certain feeds and fetches. A value; copies share the plan. If a node of the
/// plan was lost, the next call makes the plan again; it throws not_found while a node is absent.
class Function {
 public:
  Function() = default;
  explicit Function(std::shared_ptr<detail::CompiledPlan> compiled)
      : compiled_(std::move(compiled)) {}
  /// Throws invalid_argument if a feed's number, dtype or shape is wrong, and the run's error. The
  /// calling thread may run kernels itself, in the place of an idle worker.
  std::vector<Tensor> operator()(std::vector<Tensor> feeds, const RunOptions& options = {}) const;
  RunHandle start(std::vector<Tensor> feeds, const RunOptions& options = {}) const;
  /// Returns the predictions for a run as text: its time and critical path; nodes, work and peak
  /// memory of each device; the bytes over each cut edge. Then it lists the changes of each pass,
  /// and the optimised program, one node a line. Equal plans give equal texts.
  /// placement/PLACEMENT.md explains an example.
  std::string explain() const;
  /// Returns the warnings of `compile`, one sentence each. An effect that this function runs, or
  /// one that this engine compiled earlier, causes none, so they depend on the order of `compile`:
  /// compile the training before the validation. There are three kinds: a read, an update, a
  /// dequeue or an actor's firing runs without an effect on its state that stands before it in the
  /// program (the first such node and the last such effect, with their lines, once for each
  /// function); no fetch reaches an optimizer's step (once for each engine); and a variable has
  /// another initial value than in an earlier graph of this engine, which started it (once for each
  /// line; none after `set`). `EngineOptions::log` gets them too, or standard error if there is no
  /// log.
  const std::vector<std::string>& warnings() const;
  /// Reports the parallelism of each loop over all runs so far, on all nodes (loop_report.hpp).
  /// Blocks for the other nodes; lost ones are left out.
  std::vector<LoopReport> loops() const;

 private:
  std::shared_ptr<detail::CompiledPlan> compiled_;
};

/// Expressions of the graph and their values.
using Feeds = std::vector<std::pair<Expr, Tensor>>;

/// Compiles graphs and runs them. It also hosts eager scopes: `Eager e(engine)` computes on the
/// engine's default device with the engine's states. Traced functions that are called with its
/// values run on the engine.
class Engine final : public detail::EagerHost {
 public:
  explicit Engine(EngineOptions options = {});
  explicit Engine(std::initializer_list<detail::Nothing>) : Engine(EngineOptions{}) {}  // `({})`
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Throws invalid_argument for feeds or fetches of another graph, for inputs that are not fed,
  /// and for feeds whose values are built into loops, branches or gradients: integer constants that
  /// they use, and the count of a loop that its gradient uses. Warns of effects that it leaves out
  /// (`Function::warnings`, `CompileOptions::prune_effects`).
  Function compile(const Graph& graph, const std::vector<Expr>& feeds,
                   const std::vector<Expr>& fetches, const CompileOptions& options = {});
  /// Compiles, or takes the plan from a bounded cache, and runs.
  std::vector<Tensor> run(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches,
                          const RunOptions& options = {});
  RunHandle start(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches,
                  const RunOptions& options = {});

  /// Returns a variable's value, on the host. Throws not_found if no run or declaration made it.
  /// Throws failed_precondition for a name that exists on several nodes of a cluster, and for a
  /// value that was lost with its node (cluster/NOTES.md).
  Tensor get(const std::string& variable);
  Tensor get(const Variable& variable);
  /// Throws invalid_argument if dtype or shape differ.
  void set(const std::string& variable, Tensor value);
  void set(const Variable& variable, Tensor value);
  /// Resets a variable to its initial value.
  void initialize(const Variable& variable);
  /// Returns the names of the variables that programs of this engine have used, on any node.
  std::vector<std::string> variables() const;

  /// Returns a device by name, for the counters of its allocator and swapper. Makes it if it was
  /// not used yet.
  detail::Device& device(const std::string& name);

  /// Returns the runs in flight, and the events that they wait for. Blocks until all partitions
  /// have answered, for `patience` at most, because a partition in a kernel does not answer. Must
  /// not be called from an actor.
  EngineSnapshot snapshot(std::chrono::nanoseconds patience = std::chrono::milliseconds(100));

  std::uint64_t step() const;
  void set_step(std::uint64_t step);
  int workers() const;

  /// Returns the implementation, for the folders that build on this one (engine_impl.hpp).
  detail::EngineImpl& impl() { return *impl_; }

  /// Deterministic engines: takes one step of one actor; false if nothing is pending, or if the
  /// engine has threads, which take them all.
  bool take_step();
  /// Deterministic engines: moves the virtual clock; deadlines that pass are due.
  void advance_time(std::chrono::nanoseconds by);

 private:
  detail::StateStore& eager_states() override;
  detail::Device& eager_device() override;
  detail::Device& eager_device(const std::string& name) override;
  std::uint64_t eager_seed() const override;
  std::unique_ptr<detail::StagedProgram> stage(const Graph& graph,
                                               const std::vector<detail::Edge>& feeds,
                                               const std::vector<detail::Edge>& fetches,
                                               detail::Keep keep) override;

  Function function_of(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches,
                       std::vector<Tensor>& values);

  std::unique_ptr<detail::EngineImpl> impl_;
};

}  // namespace troupe
