// Eager execution: the reader that computes at once. The functions of the DSL are the same as on a
// graph; every expression has a value.
//
//   Eager e(engine);                                   // or `Eager e;`: alone, without an engine
//   Expr y = tanh(e.constant(0.5));
//   float v = y.value().item<float>();
//   std::vector<Tensor> out = e.run(graph, {{x, tx}}, {z});   // replays a graph: the interpreter
//
// `run` executes the program as it was written: pruned to the fetches, without other passes. Its
// random draws are keyed as the engine keys them, so the two agree bit for bit.
// While a traced function runs its code on this thread (ops/graph/tracing.hpp), binds go into the
// function's graph. Each computed op is reported to the tapes of the thread (bind_observer.hpp).
// **Threads**: one at a time for a scope. Scopes of one engine share its states, from any threads:
// each thread has a scope, and gets the variable from it by `find_variable`.
// A scope without an engine has its own states, and nothing else runs that could end a wait at a
// queue: a dequeue from an empty queue, or an enqueue to a full one, throws failed_precondition.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/ops/eager/evaluate.hpp>
#include <troupe/ops/eager/host.hpp>
#include <troupe/ops/eager/kernel_cache.hpp>
#include <troupe/ops/eager/remote_device.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe {

/// Expressions of a graph with the values that a run feeds.
using Feeds = std::vector<std::pair<Expr, Tensor>>;

namespace detail {

class NodeTypes;
class Tracing;
struct StateInUse;

}  // namespace detail

class Eager final : public detail::Reader, private detail::Evaluate {
  struct Place;

 public:
  /// Computes on the host's CPU device, on the calling thread.
  Eager();
  /// Computes on `device`, which must outlive the scope. Values of an asynchronous device stay in
  /// its memory; `run` copies its results to the host. An asynchronous device runs behind the
  /// caller: an error of its work is thrown by a later op on it, or when a value is read. It names
  /// the op that failed and its line. From then on the scope cannot use the device.
  explicit Eager(detail::Device& device);
  /// Computes on the host's device with the host's states; traced functions that are called with
  /// its values run on the host. The host must outlive the scope.
  explicit Eager(detail::EagerHost& host);
  ~Eager() override;

  /// The innermost scope that is alive on this thread; null: there is none.
  static Eager* innermost();
  detail::EagerHost* host() const { return host_; }
  /// Unique among the scopes of this process.
  std::uint64_t id() const { return id_; }
  /// True for scopes of one host, and for the scope itself.
  bool shares_states(const Eager& other) const { return store_ == other.store_; }
  /// The graph of the trace that runs on this thread, or this scope.
  detail::Reader& current() override;

  Exprs bind(const detail::OpDef& op, std::span<const Expr> inputs, detail::Attrs attrs,
             const detail::Site& site, int state = -1) override;
  Expr adopt(const Expr& foreign, const detail::Site& site) override;
  ValueSpec spec_of(const Expr& e) const override;
  int declare(const detail::StateSpec& spec, const detail::Site& site) override;
  int declare_new(detail::StateSpec spec, const detail::Site& site) override;
  std::span<const detail::StateSpec> declared_states() const override { return states_; }
  const detail::StateSpec& state_spec(int state) const override { return states_[state]; }
  /// Returns the variable with this name, which any scope of the host, or a program of it, has
  /// declared. Throws not_found, with similar names.
  Variable find_variable(const std::string& name, At at = At::current());

  /// Returns the fetched values, on the host. Throws the error of a kernel, naming node and line.
  std::vector<Tensor> run(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches);
  /// Runs a program that passes made; one tensor a feed, in the program's order.
  std::vector<Tensor> run(const detail::Program& program, const std::vector<Tensor>& feeds);
  /// Runs the program on values of this scope, lists among them; results stay on the device.
  std::vector<detail::Value> run_values(const detail::Program& program,
                                        std::span<const Expr> feeds);

  /// Variables and queues, which outlive runs.
  detail::StateStore& states() { return *store_; }
  /// Returns the value of the graph's variable, on the host: its initial value before the first
  /// write. Throws not_found.
  Tensor get(const Graph& graph, const std::string& variable);
  /// Keys later draws and first values without a seed; a second call restarts no count of draws.
  void set_seed(std::uint64_t seed) {
    run_.seed = seed;
    store_->seed_with(seed);
  }
  /// Keys of the scope's random draws: a scope with equal ones draws the same from then on.
  struct RandomState {
    std::uint64_t seed, step, draws;
  };
  RandomState random_state() const { return {run_.seed, run_.step, calls_}; }
  void set_random_state(const RandomState& state) {
    set_seed(state.seed);
    run_.step = state.step;
    calls_ = state.draws;
  }
  /// Sets the step of the next run; each run adds one.
  void set_step(std::uint64_t step) { run_.step = step; }

  /// Returns an expression of this scope with this value, as if an op had yielded it.
  Expr hold(detail::Value value);
  /// While it lives, ops of the scope without a state compute on another device of its host; states
  /// stay where they are. Inputs in another device's memory are copied by themselves. In a trace it
  /// constrains the nodes to the device. Nests. A device may be another node's,
  /// `/node:w1/cpu:0`: ops and traced functions run there, states that are declared meanwhile live
  /// there, and results stay there until they are read (remote_device.hpp).
  class OnDevice {
   public:
    OnDevice(Eager& eager, const std::string& device, const detail::Site& at);
    OnDevice(OnDevice&&) = delete;
    ~OnDevice();

   private:
    Eager& eager_;
    Place* const before_;
    std::unique_ptr<Graph::Scope> traced_;
    detail::Tracing* trace_ = nullptr;
  };
  /// Throws not_found, naming the line, for a device or a node that the host does not have.
  [[nodiscard]] OnDevice on_device(const std::string& device, At at = At::current()) {
    return OnDevice(*this, device, at);
  }
  /// Returns the value, copied to the host if it is in a device's memory.
  Tensor on_host(const Expr& e) { return on_host(e.held()); }
  /// Returns the value as it may be fed to a program of the scope's host: in the memory of the
  /// scope's own device, where it is computed, or of the host. Blocks until it is.
  detail::Value at_home(const Expr& e);
  /// Returns the state that the scope uses by this spec; of a state on another node, what stands
  /// for it. It identifies the state in all scopes of one host.
  detail::Ref<detail::State> state_of(const detail::StateSpec& spec);
  /// A state of the scope: its number, and what `state_of` returns.
  struct Resolved {
    int number;
    const detail::State* state;
  };
  /// Declares the state on first use; a later call is one look-up by name.
  Resolved resolve(const detail::StateSpec& spec);
  /// Refuses reads of the variable from now on, naming `why`, until it is assigned: the computation
  /// of its first value has failed.
  void refuse_reads(const std::string& variable, std::string why);
  /// Returns the local device on which ops compute, if it is not the scope's own; else null.
  const detail::Device* other_device() const {
    return at_ == places_[0].get() || at_->remote ? nullptr : at_->device;
  }
  /// Returns the device on which ops compute, if it is another node's; else null.
  detail::RemoteDevice* remote() const { return at_->remote; }
  /// Runs a staged program of `remote` there; values stay there.
  std::vector<detail::Value> run_there(detail::Kernel& program, const std::string& name,
                                       std::span<const Expr> inputs, std::size_t outputs);
  /// Returns the kernels that later binds of the same op, attributes, dtypes and shapes run again.
  const detail::KernelCache& kernels() const { return at_->kernels; }

  /// A summary of the nodes bound while a Watching lives. while_loop uses it to find out whether
  /// its predicate is false because of NaN.
  struct Comparisons {
    bool nan_holds = false;  // <, <=, >, >= with NaN yield true meanwhile and are inspected singly
    bool has_effect = false;
    bool compares = false;  // true: one of <, <=, >, >= compared floats
    // with `nan_holds`: the first comparison that met NaN, `Less (train.cpp:41)`; empty: none
    std::string nan;
    detail::Edge operand;  // its operand that was NaN
  };
  /// Fills `by` while it lives. Nodes that are bound meanwhile are an ordinary part of the program,
  /// unless `nan_holds`: then they repeat earlier ones, and later random draws are not changed by
  /// them.
  class Watching {
   public:
    Watching(Eager& eager, Comparisons& by)
        : eager_(eager), by_(by), before_(std::exchange(eager.watch_, &by)), calls_(eager.calls_) {}
    Watching(Watching&&) = delete;
    ~Watching() {
      eager_.watch_ = before_;
      if (before_) before_->has_effect = before_->has_effect || by_.has_effect;
      if (by_.nan_holds) eager_.calls_ = calls_;
    }

   private:
    Eager& eager_;
    Comparisons& by_;
    Comparisons* const before_;
    const std::uint64_t calls_;
  };

  /// Dry run: while it lives, ops only infer the specs of their outputs. Ops with effects or random
  /// draws are skipped and yield zeros, as do ops on a value of a graph, which has none; reads are
  /// real. Later random draws are not changed by the dry run.
  class Looking {
   public:
    explicit Looking(Eager& eager)
        : eager_(eager), before_(std::exchange(eager.is_looking_, true)), calls_(eager.calls_) {}
    Looking(Looking&&) = delete;
    ~Looking() {
      eager_.is_looking_ = before_;
      eager_.calls_ = calls_;
    }

   private:
    Eager& eager_;
    const bool before_;
    const std::uint64_t calls_;
  };

 private:
  bool is_nan(const Expr& e, const detail::Site& site);
  Exprs compare(const detail::OpDef& op, std::span<const Expr> inputs, detail::Attrs attrs,
                const detail::Site& site);
  Exprs compute(const detail::OpDef& op, std::span<const Expr> inputs, detail::Attrs attrs,
                const detail::Site& site, int state, const Replayed* again);
  Exprs compute_cached(const detail::OpDef& op, std::span<const Expr> inputs, detail::Attrs attrs,
                       const detail::Site& site);
  Exprs bind_there(Place& place, const detail::OpDef& op, std::span<const Expr> inputs,
                   detail::Attrs attrs, const detail::Site& site, int state, const Replayed* again);
  Exprs compute_there(Place& place, const detail::OpDef& op, std::span<const Expr> inputs,
                      const std::vector<ValueSpec>& specs, detail::Attrs attrs,
                      const detail::Site& site, int state, const Replayed* again);
  Exprs run_kernel(Place& place, detail::Kernel& kernel, const detail::OpDef& op,
                   std::span<const Expr> inputs, std::size_t outputs, const detail::StateInUse& use,
                   const detail::Site& site);
  void tell(const detail::OpDef& op, const detail::Attrs& attrs, std::span<const Expr> inputs,
            const Exprs& outputs, const detail::State* state, int number, const detail::Site& site);
  Exprs bind_in(Graph& graph, const detail::OpDef& op, std::span<const Expr> inputs,
                detail::Attrs attrs, const detail::Site& site, int state);
  void require_own(const detail::Tracing& trace, const detail::StateSpec& spec,
                   const detail::Site& site) const;
  void require_value(const detail::OpDef& op, int state, const detail::Site& site);
  detail::Node node_of(const detail::OpDef& op, std::span<const Expr> inputs, detail::Attrs attrs,
                       const detail::Site& site);
  Exprs run_functional(const detail::Node& node, std::span<const Expr> inputs,
                       std::optional<std::span<const detail::StateSpec>> states);
  Exprs in_scope(std::vector<detail::Value> values);

  std::vector<detail::Value> call(const detail::SubGraph& graph,
                                  std::vector<detail::Value> arguments) override;
  std::vector<detail::Value> call(const detail::SubGraph& graph,
                                  std::vector<detail::Value> arguments, std::uint64_t key,
                                  std::int64_t n) override;
  std::vector<detail::Value> call(const detail::FunctionDef& function,
                                  std::vector<detail::Value> arguments,
                                  const detail::Node& node) override;
  Tensor on_host(const detail::Value& value) override;

  // Calls nest on the C++ stack, a few kilobytes each.
  static constexpr int kMaxDepth = 500;

  // A device on which ops compute, and its kernels.
  struct Place {
    explicit Place(detail::Device& on) : device(&on), stream(on.compute_stream()) {}
    detail::Device* device;
    detail::RemoteDevice* const remote = dynamic_cast<detail::RemoteDevice*>(device);
    std::unique_ptr<detail::Stream> stream;
    detail::KernelCache kernels = {};
    // On an asynchronous device: the first error, whose origin counts `enqueued`; the ops enqueued
    // since the device was last waited for, from number `first` on.
    std::shared_ptr<detail::Fault> fault = std::make_shared<detail::Fault>();
    std::vector<std::pair<const detail::OpDef*, detail::Site>> enqueued = {};
    std::int64_t first = 0;
  };
  Place& place_on(const std::string& device);
  // The place on the device of another node that the state names; null: it lives here.
  Place* place_of(const detail::StateSpec& state);
  // The place on which a bind computes.
  Place& place_for(const detail::OpDef& op, std::span<const Expr> inputs, int state);
  Place& place_on(detail::Device& device);
  Place* place_of(const detail::Device& device);
  void enqueue(Place& place, const detail::OpDef& op, const detail::Site& site) const;
  static void wait(Place& place);
  static void refuse_failed(const Place& place);
  // Copies a tensor that is in the memory of a device other than the place's to the host.
  void bring(detail::Value& value, const Place& to);

  const std::uint64_t id_;
  std::unique_ptr<detail::Device> own_;
  std::vector<std::unique_ptr<Place>> places_;  // the first is the scope's own
  Place* at_;                                   // the one on which ops compute
  detail::RunInfo run_;
  std::uint64_t calls_ = 0;  // origins given to binds that repeat no node
  std::vector<detail::StateSpec> states_;
  std::unordered_map<std::string, Resolved> resolved_;          // by name
  std::unordered_map<std::string, std::string> without_value_;  // by name: why it has none
  detail::EagerHost* host_ = nullptr;
  std::unique_ptr<detail::StateStore> own_states_;
  detail::StateStore* store_;
  Eager* outer_ = nullptr;  // the scope that was the innermost one of its thread before this one
  Comparisons* watch_ = nullptr;
  bool is_looking_ = false;
  // states of the graph whose functional node runs now
  std::optional<std::span<const detail::StateSpec>> replayed_states_;
  std::uint64_t tag_ = 0;  // the current iteration's
  int depth_ = 0;          // nesting depth of the current call
};

}  // namespace troupe
