// States outlive runs. A graph declares states by name and spec; an engine (or an eager scope)
// keeps them in a `StateStore`, which graphs of the same engine share.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/expr.hpp>

namespace troupe {

/// How a variable starts. A value: printable, and the same on every machine. Draws are keyed by the
/// seed and the variable's name, so that adding a variable changes no other. Without a seed they
/// follow the seed of the engine or eager scope (`EngineOptions::seed`, `Eager::set_seed`).
struct Initializer {
  using Seed = std::optional<std::uint64_t>;
  enum class Kind : std::uint8_t {
    tensor,
    constant,
    uniform,
    normal,
    truncated_normal,
    orthogonal
  };
  Kind kind = Kind::constant;
  Tensor value;  // tensor
  double a = 0;  // constant: the value; uniform: low; normal: mean; orthogonal: gain
  double b = 0;  // uniform: high; normal: standard deviation
  Seed seed;

  static Initializer tensor(Tensor t);
  static Initializer constant(double value);
  static Initializer uniform(double low, double high, Seed seed = {});
  static Initializer normal(double mean, double deviation, Seed seed = {});
  /// Normal within two deviations of the mean.
  static Initializer truncated_normal(double mean, double deviation, Seed seed = {});
  /// Glorot and Bengio (AISTATS 2010): uniform within ±sqrt(6 / (fan_in + fan_out)). Throws
  /// invalid_argument unless both are at least 1, as do those below.
  static Initializer glorot(std::int64_t fan_in, std::int64_t fan_out, Seed seed = {});
  /// He et al. (ICCV 2015), for layers before relu: normal of deviation sqrt(2 / fan_in).
  static Initializer he(std::int64_t fan_in, Seed seed = {});
  /// Saxe et al. (ICLR 2014): `gain` times a matrix with orthonormal columns, or rows if there are
  /// fewer of them. The rows are all axes but the last. Floating dtypes of one axis or more.
  static Initializer orthogonal(double gain = 1, Seed seed = {});
  /// Returns why it makes no values of this dtype: a constant that the dtype lacks, draws of
  /// a dtype that is not floating, a range or a deviation that is none. Empty: it does.
  std::string misfit(DType dtype) const;
  /// `fallback`: the seed where there is none of its own.
  Tensor make(const std::string& name, DType dtype, const Shape& shape,
              std::uint64_t fallback = 0) const;
  /// True if both make the same value of a name.
  bool is_same(const Initializer& other) const;
};

namespace detail {

struct ActorDefinition;

struct StateSpec {
  enum class Kind : std::uint8_t { variable, fifo_queue, shuffling_queue, actor, console };
  Kind kind = Kind::variable;
  std::string name;
  std::vector<ValueSpec> values;  // a variable's one, a queue's components, an actor's outputs
  Initializer initial;
  std::int64_t capacity = 0;
  std::int64_t min_after_dequeue = 0;
  std::uint64_t seed = 0;
  std::string device;                            // its device; empty: any
  std::shared_ptr<const ActorDefinition> actor;  // kind actor: how to make one, never serialised
  Site site;  // the user's declaration, never serialised; no file: not known
  /// True if kind, values and limits are equal, and an actor's class or function too, as far as it
  /// is known (`is_same_actor`).
  bool is_same(const StateSpec& other) const;
  /// `variable 'w'`, and ` at model.cpp:7` if its site is known.
  std::string text() const;
  /// True for states that need the host's memory unless a device is named: user code, and text.
  bool is_of_host() const { return kind == Kind::actor || kind == Kind::console; }
};

/// Gets the lines that consoles print, each without its end; one at a time for a console.
using PrintLine = std::function<void(const std::string& console, const std::string& line)>;

/// Gives user's actors a place to live; the engine is one.
class ActorHost {
 public:
  virtual Ref<State> host(const StateSpec& spec) = 0;

 protected:
  ~ActorHost() = default;
};

/// States by name. Threads: any.
class StateStore {
 public:
  /// Without a host, user's actors run on the calling thread, one firing at a time.
  explicit StateStore(ActorHost* host = nullptr) : host_(host) {}
  /// Makes it on first use; throws already_exists if the name is taken by another spec.
  Ref<State> get(const StateSpec& spec);
  /// Null if there is none.
  Ref<State> find(const std::string& name) const;
  std::vector<std::string> names(StateSpec::Kind kind) const;
  std::vector<StateSpec> specs() const;
  void cancel_waiters(std::uint64_t run_id, const Status& status);
  /// Sets the printer of consoles made from now on. The default, and the meaning of an empty
  /// `print`, is standard output.
  void print_to(PrintLine print);
  /// The seed of initial values that have none of their own, of states made from now on.
  void seed_with(std::uint64_t seed);
  /// Drops every state; for shutting down.
  void clear();

 private:
  struct Entry {
    StateSpec spec;
    Ref<State> state;
  };
  Ref<State> make(const StateSpec& spec);

  ActorHost* host_;
  mutable std::mutex mutex_;  // guards all below
  std::uint64_t seed_ = 0;
  PrintLine print_;
  std::map<std::string, Entry> states_;
};

/// Returns the status of a firing whose run has failed or was cancelled.
Status given_up();

/// A mutable tensor. One holder at a time has the right to change it. Other requests are queued and
/// served in order, without blocking a thread.
class VariableState final : public State {
 public:
  VariableState(DType dtype, Shape shape, Tensor initial);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  /// The current value; waits (spinning, then yielding) for an update in progress. For callers
  /// outside actors.
  Tensor snapshot();
  void replace(Tensor value);
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

  /// Calls `use(value)` with the exclusive right to change it: now, or when those before are done.
  /// `use` must not throw and gets the tensor by reference; it calls release() when it is done,
  /// possibly later.
  using Use = std::function<void(Tensor& value)>;
  /// The fast way in: true if the right was free and is now the caller's.
  bool try_acquire();
  /// A cancelled run never gets the right once its cancel() has returned (see
  /// QueueState::enqueue).
  void acquire(const RunInfo& run, Use use, std::function<void(const Status&)> cancelled);
  /// The value, to the holder of the right only.
  Tensor& value() { return value_; }
  /// Gives the right back, to the next in line if there is one. `changed` counts a new version.
  /// After the call, `use` must not wait for the variable: queued requests are served once `use`
  /// has returned.
  void release(bool changed);
  void cancel(std::uint64_t run_id, const Status& status) override;

 private:
  struct Waiter {
    std::uint64_t run_id;
    Use use;
    std::function<void(const Status&)> cancelled;
  };
  DType dtype_;
  Shape shape_;
  // guards held_, waiters_ and how they are served; held for a few instructions only
  std::mutex mutex_;
  bool held_ = false;
  bool is_serving_ = false;     // a thread is calling a waiter's `use`
  bool is_given_back_ = false;  // during such a call: that `use` has released
  std::deque<Waiter> waiters_;
  Tensor value_;                           // owned by the holder of the right
  std::atomic<std::uint64_t> version_{0};  // publishes nothing but itself
};

/// Lines of text for people.
class ConsoleState final : public State {
 public:
  ConsoleState(std::string name, PrintLine print)
      : name_(std::move(name)), print_(std::move(print)) {}
  void print(const std::string& line);
  void cancel(std::uint64_t, const Status&) override {}  // nothing waits here

 private:
  const std::string name_;
  const PrintLine print_;
  std::mutex mutex_;  // a line at a time
};

/// A queue of tuples of tensors with back-pressure: requests that must wait are stored as
/// continuations, in order.
class QueueState final : public State {
 public:
  explicit QueueState(const StateSpec& spec);
  /// `done` gets the element (dequeue) or nothing (enqueue), or the error of a cancelled run, a
  /// closed queue or an element that is not of the queue's components.
  using Done = std::function<void(Status, std::vector<Value>)>;
  /// A cancelled run puts nothing in and takes nothing out once its cancel() has returned: the
  /// canceller sets `run.cancelled` before it locks the queue's mutex, and each request reads it
  /// with the mutex locked.
  void enqueue(const RunInfo& run, std::vector<Value> element, Done done);
  void dequeue(const RunInfo& run, Done done);
  /// Closes the queue: dequeues drain its elements, then fail with out_of_range. Waiting enqueues
  /// fail with failed_precondition.
  void close();
  std::int64_t size() const;
  void cancel(std::uint64_t run_id, const Status& status) override;

  /// A queue's elements in its own order, and those of waiting enqueues behind them.
  struct Contents {
    std::vector<std::vector<Value>> elements;
    std::uint64_t draws = 0;  // by which a shuffling queue has chosen elements
    bool is_closed = false;
  };
  Contents contents() const;
  /// Replaces the elements, those of waiting enqueues too, which end as if there had been room.
  /// Elements for which there is no room wait as enqueues do. Throws invalid_argument for an
  /// element that is not of the queue's components; the queue is unchanged then.
  void replace(Contents contents);

 private:
  struct Producer {
    std::uint64_t run_id;
    std::vector<Value> element;
    Done done;
  };
  struct Consumer {
    std::uint64_t run_id;
    Done done;
  };
  struct Ended {
    Done done;
    Status status;
    std::vector<Value> element;
  };
  Status check(const std::vector<Value>& element) const;
  void settle(std::vector<Ended>& ended);
  static void answer(std::vector<Ended>& ended);
  bool may_dequeue() const;
  std::vector<Value> pick();

  const std::string name_;
  const std::vector<ValueSpec> components_;
  mutable std::mutex mutex_;  // guards everything below; callbacks run outside it
  const std::int64_t capacity_;
  const std::int64_t min_after_dequeue_;
  const bool shuffles_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
  bool closed_ = false;
  std::vector<std::vector<Value>> elements_;
  std::size_t head_ = 0;  // index of a FIFO's oldest element in elements_
  std::deque<Producer> producers_;
  std::deque<Consumer> consumers_;
};

}  // namespace detail

}  // namespace troupe
