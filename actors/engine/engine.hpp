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

#include <troupe/actors/observe/snapshot.hpp>
#include <troupe/actors/placement/cost_options.hpp>
#include <troupe/actors/plan/options.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/ops/eager/host.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/graph/variable.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe {

/// A line of a log: what happened, and to whom. A field that does not apply is empty.
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
  /// No threads: runs advance only while somebody waits for them or calls `step`; the order is
  /// drawn from the seed and time is virtual. For tests, on one node also with simulated devices,
  /// which have threads of their own.
  bool deterministic = false;
  /// Where unconstrained nodes go; empty: `cpu:0`. Devices are made on first use: `cpu:0` to
  /// `cpu:99`, which are the same cores (a graph over several of them is cut as over any devices),
  /// and `sim:N`.
  std::string default_device = {};
  /// `automatic`: unconstrained nodes go where a run is predicted to end earliest, in the memory
  /// there is; a plan is then never predicted to be slower than with all of them on the default
  /// device.
  Placement placement = Placement::constraints;
  /// Where the cost model, and constraints that name no single device, may place nodes; empty: the
  /// default device and `cpu:0` of every node of the cluster.
  std::vector<std::string> devices = {};
  CostOptions costs = {};
  EdgeOptions edges = {};
  /// For tests: unconstrained nodes go to these devices instead, each to one that is drawn from the
  /// seed.
  std::vector<std::string> scatter = {};
  SwapOptions swap = {};  // of devices with a limit of their memory
  GpuOptions gpu = {};
  // of simulated devices; name, swap and what the seed starts from are the engine's
  SimOptions sim = {};
  /// Runs in flight, at most; who starts one more waits until one has ended. Each holds its values
  /// and a record for every open iteration.
  int max_runs = 256;
  /// Gets what `Console`s print, a line at a time, on whatever thread prints; empty: standard
  /// output.
  detail::PrintLine print = {};
  /// Calls of functions inside each other, at most: what recursion without end runs into, at a few
  /// hundred bytes and what it saves for a gradient a call. A run that goes deeper fails with
  /// resource_exhausted.
  int call_depth = 10'000;
  /// Where the flight recorder is written when a run fails: `DIR/NODE@OWNER-RUN.flight.json`, of
  /// the last kFlights of this node, each with the firing that failed and why; of those that fail
  /// within a minute, the first kFlights. Nodes may share the folder, which holds the last 16 *
  /// kFlights of them all. The log says which file it is. Empty: nowhere (`troupe node` has a place
  /// by default).
  std::string flight = {};
  static constexpr std::uint64_t kFlights = 16;
  /// Gets what happens to runs and nodes, on whatever thread it happens; must not block; what it
  /// throws is lost. Of runs that fail within a minute it hears of the first kFailuresLogged, and
  /// with the next one after that how many more there were. Empty: nobody.
  std::function<void(const LogRecord&)> log = {};
  static constexpr std::uint64_t kFailuresLogged = 100;
};

struct RunOptions {
  /// Keys random draws; -1: counts up with every run of this engine. Save it with a checkpoint.
  std::int64_t step = -1;
  /// 0: none. Counts from the call: waiting for others to end (`max_runs`) is part of it. A run
  /// that takes longer ends with deadline_exceeded and what it was waiting for (`diagnose`).
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
  // by name, for tests and for finding the culprit; others are refused with invalid_argument
  std::vector<std::string> skip_passes = {};
  /// f16 or bf16: f32 products, and what joins them, are stored in it (`mixed_precision` in
  /// ops/graph/program.hpp); variables stay f32. For f16 scale the loss (autodiff/loss_scale.hpp).
  /// Needs `optimize`.
  std::optional<DType> mixed_precision = {};
  /// True: a function runs the effects (assignments, optimizer steps, enqueues, prints, actors)
  /// that its fetches name or depend on, and no others; those that run, run in program order.
  /// Inside a branch, a loop or a function that runs, all effects run. False: all effects of the
  /// graph run, so that all inputs which they need must be fed.
  bool prune_effects = true;
  /// A run fails at the first node that makes a floating value that is not finite of operands that
  /// are. Its error names the node, its line, its iteration and the element; of fused nodes it
  /// names the operation within. A node is also first if it makes NaN of infinities. A feed, or a
  /// variable that is read, fails by its name. Constants and fills may hold what they like, and so
  /// may values that are made of them: infinities as masks are the user's wish. A run takes up to
  /// 1.3 times as long; without the option nothing is looked at.
  bool check_finite = false;
  /// Loops whose bodies are pure and of fixed shapes run as one kernel each on the CPU, where that
  /// is faster; `Function::explain` says which, and why others do not. False: every loop is made of
  /// nodes that fire one by one, for looking at single iterations. Results are the same.
  bool resident_loops = true;
  /// The program is cut over a mesh of devices by this layout (ops/mesh/mesh.hpp). Feeds, fetches
  /// and variables stay whole. Compiling throws invalid_argument, naming dimension, axis, node and
  /// line, where a tensor does not fit the layout.
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

  /// Blocks until the run has ended; its status.
  Status wait();
  bool is_done() const;
  /// Waits until the file of `RunOptions::trace` is written, and returns whether it was; ok without
  /// one. A trace that is lost does not fail its run: the log has the same text, standard error if
  /// there is no log.
  Status trace();
  /// The fetched tensors, which are given away: once, then failed_precondition. Throws the run's
  /// error.
  std::vector<Tensor> get();
  /// Answers the waiter at once; kernels that have started finish, their results are dropped.
  void cancel();

 private:
  detail::Run& run() const;

  detail::EngineImpl* engine_ = nullptr;
  detail::Ref<detail::Run> run_;
  bool is_taken_ = false;  // what was fetched
};

namespace detail {

class Compiled;

}  // namespace detail

struct LoopReport;

/// A graph compiled for certain feeds and fetches. A value; copies share the plan. One over several
/// nodes is made again, by the next call, after one of them was lost; that call throws not_found
/// while such a node is not there.
class Function {
 public:
  Function() = default;
  explicit Function(std::shared_ptr<detail::Compiled> compiled) : compiled_(std::move(compiled)) {}
  /// Throws invalid_argument if a feed's number, dtype or shape is wrong, and the run's error. The
  /// calling thread may run kernels itself, in the place of an idle worker.
  std::vector<Tensor> operator()(std::vector<Tensor> feeds, const RunOptions& options = {}) const;
  RunHandle start(std::vector<Tensor> feeds, const RunOptions& options = {}) const;
  /// What a run is predicted to do: its time and critical path, nodes, work and peak memory of each
  /// device, the bytes that go over each cut edge; then what each pass did, and the optimised
  /// program, one node a line. Equal plans give equal texts. placement/PLACEMENT.md reads one.
  std::string explain() const;
  /// Returns the warnings of `compile`, one sentence each. An effect that this function, or one
  /// which this engine compiled earlier, runs causes none. There are two kinds: a read runs without
  /// an effect on its state that stands before it in the program (the first read and the last such
  /// effect, with their lines, once for each function); and no fetch reaches an optimizer's step
  /// (once for each engine). `EngineOptions::log` gets them too, or standard error if there is no
  /// log.
  const std::vector<std::string>& warnings() const;
  /// How far the iterations of each loop ran side by side, over all runs so far, on all nodes; see
  /// loop_report.hpp. Asks the other nodes: those that are lost are left out.
  std::vector<LoopReport> loops() const;

 private:
  std::shared_ptr<detail::Compiled> compiled_;
};

/// What a caller feeds: an expression of the graph and its value.
using Feeds = std::vector<std::pair<Expr, Tensor>>;

/// Also where eager scopes live: `Eager e(engine)` computes on the engine's default device with the
/// engine's states, and traced functions that are called with its values run on the engine.
class Engine final : public detail::EagerHost {
 public:
  explicit Engine(EngineOptions options = {});
  explicit Engine(std::initializer_list<detail::Nothing>) : Engine(EngineOptions{}) {}  // `({})`
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Throws invalid_argument for feeds or fetches of another graph, inputs that are not fed, and
  /// feeds of what loops, branches or gradients were built with the value of: integer constants
  /// that they use, and the count of a loop by which its gradient counts. Warns of effects that it
  /// leaves out (`Function::warnings`, `CompileOptions::prune_effects`).
  Function compile(const Graph& graph, const std::vector<Expr>& feeds,
                   const std::vector<Expr>& fetches, const CompileOptions& options = {});
  /// Compiles, or takes the plan from a bounded cache, and runs.
  std::vector<Tensor> run(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches,
                          const RunOptions& options = {});
  RunHandle start(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches,
                  const RunOptions& options = {});

  /// A variable's value, on the host. Throws not_found if no run or declaration made it, and
  /// failed_precondition for a name that is there on several nodes of a cluster, or a value that
  /// was lost with its node (cluster/NOTES.md).
  Tensor get(const std::string& variable);
  Tensor get(const Variable& variable);
  /// Throws invalid_argument if dtype or shape differ.
  void set(const std::string& variable, Tensor value);
  void set(const Variable& variable, Tensor value);
  /// Gives it its initial value again.
  void initialize(const Variable& variable);
  /// The names of those that programs of this engine have used, wherever they live.
  std::vector<std::string> variables() const;

  /// A device by name, made if it was not used yet: for its allocator's and its swapper's counters.
  detail::Device& device(const std::string& name);

  /// What is under way, and what it waits for. Asks partitions, and waits for their answers, but
  /// not for long: who is in the midst of a kernel does not answer. Not from within an actor.
  EngineSnapshot snapshot(std::chrono::nanoseconds patience = std::chrono::milliseconds(100));

  std::uint64_t step() const;
  void set_step(std::uint64_t step);
  int workers() const;

  /// What stands behind it, for the folders that build on this one (engine_impl.hpp).
  detail::EngineImpl& impl() { return *impl_; }

  /// Deterministic engines: takes one step of one actor; false if nothing is pending, or if the
  /// engine has threads, which take them all.
  bool take_step();
  /// Deterministic engines: moves the virtual clock; deadlines that pass are due.
  void advance_time(std::chrono::nanoseconds by);

 private:
  detail::StateStore& eager_states() override;
  detail::Device& eager_device() override;
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
