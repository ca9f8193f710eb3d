#include <troupe/ops/graph/state.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/base/representable.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/ops/graph/no_value.hpp>

namespace troupe {

// ---- initial values

namespace {
void require_fan(const char* what, std::int64_t fan) {
  if (fan < 1)
    throw Error(Code::invalid_argument,
                fmt::format("Initializer::{}: a fan must be at least 1, not {}", what, fan));
}
}  // namespace

Initializer Initializer::tensor(Tensor t) { return {Kind::tensor, std::move(t), 0, 0, {}}; }
Initializer Initializer::constant(double value) { return {Kind::constant, {}, value, 0, {}}; }
Initializer Initializer::uniform(double low, double high, Seed seed) {
  return {Kind::uniform, {}, low, high, seed};
}
Initializer Initializer::normal(double mean, double deviation, Seed seed) {
  return {Kind::normal, {}, mean, deviation, seed};
}
Initializer Initializer::truncated_normal(double mean, double deviation, Seed seed) {
  return {Kind::truncated_normal, {}, mean, deviation, seed};
}
Initializer Initializer::glorot(std::int64_t fan_in, std::int64_t fan_out, Seed seed) {
  require_fan("glorot", fan_in);
  require_fan("glorot", fan_out);
  double limit = std::sqrt(6.0 / (static_cast<double>(fan_in) + static_cast<double>(fan_out)));
  return uniform(-limit, limit, seed);
}
Initializer Initializer::he(std::int64_t fan_in, Seed seed) {
  require_fan("he", fan_in);
  return normal(0, std::sqrt(2.0 / static_cast<double>(fan_in)), seed);
}
Initializer Initializer::orthogonal(double gain, Seed seed) {
  return {Kind::orthogonal, {}, gain, 0, seed};
}

namespace {

// FNV-1a: the same on every machine, unlike std::hash.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t h = 14695981039346656037ull;
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ull;
  return h;
}

Tensor drawn(Random kind, const RandomKey& key, double scale, double offset, DType dtype,
             const Shape& shape) {
  static const std::unique_ptr<Device> cpu = make_cpu_device();
  auto stream = cpu->make_stream();
  Tensor draws = Tensor::empty(DType::f64, shape);
  cpu->primitives().random(*stream, kind, key, View(draws));
  Tensor out = Tensor::empty(dtype, shape);
  void* to = out.raw_mutable();
  const double* from = static_cast<const double*>(draws.raw());
  visit_dtype(dtype, [&]<class T>(type_tag<T>) {
    for (std::int64_t i = 0; i < draws.elements(); ++i) {
      Tensor one = Tensor::scalar_as(dtype, from[i] * scale + offset);
      std::memcpy(static_cast<T*>(to) + i, one.raw(), sizeof(T));
    }
  });
  return out;
}

// Makes orthonormal rows or columns (the fewer of the two) from normal draws, by the Gram-Schmidt
// process, twice for each, so that no digit is lost. Signs are those of the draws, so that all such
// matrices are equally likely.
Tensor orthonormal(const RandomKey& key, double gain, DType dtype, const Shape& shape) {
  const std::int64_t columns = shape[shape.rank() - 1],
                     rows = columns == 0 ? 0 : shape.elements() / columns,
                     vectors = std::min(rows, columns), length = std::max(rows, columns);
  const Tensor draws = drawn(Random::normal, key, 1, 0, DType::f64, Shape{vectors, length});
  std::vector<double> q = draws.to_vector<double>();
  const auto row = [&](std::int64_t i) { return q.data() + i * length; };
  for (std::int64_t i = 0; i < vectors; ++i) {
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t j = 0; j < i; ++j) {
        const double along = std::inner_product(row(i), row(i) + length, row(j), 0.0);
        for (std::int64_t k = 0; k < length; ++k) row(i)[k] -= along * row(j)[k];
      }
    const double size = std::sqrt(std::inner_product(row(i), row(i) + length, row(i), 0.0));
    for (std::int64_t k = 0; k < length; ++k) row(i)[k] /= size;
  }
  Tensor out = Tensor::empty(dtype, shape);
  auto* bytes = static_cast<unsigned char*>(out.raw_mutable());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const Tensor one = Tensor::scalar_as(dtype, gain * (rows < columns ? row(i)[j] : row(j)[i]));
      std::memcpy(bytes, one.raw(), size_of(dtype));
      bytes += size_of(dtype);
    }
  return out;
}

}  // namespace

std::string Initializer::misfit(DType dtype) const {
  if (kind == Kind::constant)
    return is_representable(dtype, a) ? "" : fmt::format("{} has no value {}", name_of(dtype), a);
  if (kind != Kind::uniform && kind != Kind::normal && kind != Kind::truncated_normal) return "";
  const bool is_uniform = kind == Kind::uniform;
  if (!is_floating(dtype) && !is_complex(dtype))
    return fmt::format("draws are of floating dtypes, not of {}", name_of(dtype));
  if (!std::isfinite(a) || !std::isfinite(b) || (is_uniform ? a > b : b < 0))
    return is_uniform ? fmt::format("draws cannot be uniform from {} to {}", a, b)
                      : fmt::format("draws cannot be normal of mean {} and deviation {}", a, b);
  return "";
}

Tensor Initializer::make(const std::string& name, DType dtype, const Shape& shape,
                         std::uint64_t fallback) const {
  RandomKey key{seed.value_or(fallback), hash_of(name), 0, 0};
  switch (kind) {
    case Kind::tensor: return value;
    case Kind::constant: {
      Tensor t = Tensor::empty(dtype, shape);
      Tensor one = Tensor::scalar_as(dtype, a);
      auto* bytes = static_cast<unsigned char*>(t.raw_mutable());
      const std::int64_t elements = t.elements();
      const std::size_t size = size_of(dtype);
      for (std::int64_t i = 0; i < elements; ++i, bytes += size)
        std::memcpy(bytes, one.raw(), size);
      return t;
    }
    case Kind::uniform: return drawn(Random::uniform, key, b - a, a, dtype, shape);
    case Kind::normal: return drawn(Random::normal, key, b, a, dtype, shape);
    case Kind::truncated_normal: return drawn(Random::truncated_normal, key, b, a, dtype, shape);
    case Kind::orthogonal: return orthonormal(key, a, dtype, shape);
  }
  return {};
}

bool Initializer::is_same(const Initializer& o) const {
  if (kind != o.kind || a != o.a || b != o.b || seed != o.seed) return false;
  if (!value.has_value() || !o.value.has_value()) return value.has_value() == o.value.has_value();
  return value.is_on_host() && o.value.is_on_host() && identical(value, o.value);
}

std::string StateSpec::text() const {
  const char* what = kind == Kind::variable  ? "variable"
                     : kind == Kind::actor   ? "actor"
                     : kind == Kind::console ? "console"
                                             : "queue";
  return fmt::format("{} '{}'{}", what, name, *site.file ? " at " + site.text() : std::string());
}

bool StateSpec::is_same(const StateSpec& o) const {
  if (kind != o.kind || values.size() != o.values.size() || capacity != o.capacity ||
      min_after_dequeue != o.min_after_dequeue)
    return false;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i].dtype != o.values[i].dtype || values[i].shape != o.values[i].shape) return false;
  return !actor || !o.actor || is_same_actor(*actor, *o.actor);
}

namespace {

// A user's actor without an engine.
class InlineActor final : public ActorState {
 public:
  explicit InlineActor(const StateSpec& spec)
      : name_(spec.name), outputs_(spec.values), definition_(spec.actor) {}
  void fire(std::uint64_t, std::vector<Value> inputs, Completion completion) override {
    std::vector<Value> out;
    Status status;
    {
      std::lock_guard lock(mutex_);
      if (failures_ > definition_->options.max_restarts) {
        status = actor_is_down(name_, failures_);
      } else {
        try {
          if (!actor_) actor_ = make_actor(name_, *definition_);
          out = fire_actor(*actor_, name_, outputs_, std::move(inputs));
          failures_ = 0;
        } catch (...) {
          status = Status::from_current_exception();
          actor_.reset();
          ++failures_;
        }
      }
    }
    if (status.ok()) completion.fulfil(out);
    else completion.fail(std::move(status));
  }

 private:
  std::mutex mutex_;  // guards actor_ and failures_
  std::string name_;
  std::vector<ValueSpec> outputs_;
  std::shared_ptr<const ActorDefinition> definition_;
  // made at the first firing, and anew at the next after it threw
  std::unique_ptr<NodeActor> actor_;
  int failures_ = 0;  // in a row
};

}  // namespace

Ref<State> StateStore::make(const StateSpec& spec) {
  switch (spec.kind) {
    case StateSpec::Kind::variable: {
      const ValueSpec& v = spec.values[0];
      return Ref<State>(new VariableState(v.dtype, v.shape,
                                          spec.initial.make(spec.name, v.dtype, v.shape, seed_)));
    }
    case StateSpec::Kind::fifo_queue:
    case StateSpec::Kind::shuffling_queue: return Ref<State>(new QueueState(spec));
    case StateSpec::Kind::console: return Ref<State>(new ConsoleState(spec.name, print_));
    case StateSpec::Kind::actor:
      return host_ ? host_->host(spec) : Ref<State>(new InlineActor(spec));
  }
  return {};
}

void StateStore::print_to(PrintLine print) {
  std::lock_guard lock(mutex_);
  print_ = std::move(print);
}

void StateStore::seed_with(std::uint64_t seed) {
  std::lock_guard lock(mutex_);
  seed_ = seed;
}

void StateStore::clear() {
  std::map<std::string, Entry> dropped;  // destroyed outside the lock
  std::lock_guard lock(mutex_);
  dropped.swap(states_);
}

// ---- the store

Ref<State> StateStore::get(const StateSpec& spec) {
  std::lock_guard lock(mutex_);
  auto it = states_.find(spec.name);
  if (it == states_.end()) it = states_.emplace(spec.name, Entry{spec, make(spec)}).first;
  else if (!it->second.spec.is_same(spec))
    throw Error(Code::already_exists,
                fmt::format("{}: the engine has {} already, with {}; give one of them another name",
                            spec.text(), it->second.spec.text(),
                            spec.actor && it->second.spec.actor
                                ? difference_of_actors(*it->second.spec.actor, *spec.actor)
                                : "another dtype, shape or kind"));
  return it->second.state;
}

Ref<State> StateStore::find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  auto it = states_.find(name);
  return it == states_.end() ? Ref<State>() : it->second.state;
}

std::vector<std::string> StateStore::names(StateSpec::Kind kind) const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, entry] : states_)
    if (entry.spec.kind == kind) out.push_back(name);
  return out;
}

std::vector<StateSpec> StateStore::specs() const {
  std::lock_guard lock(mutex_);
  std::vector<StateSpec> out;
  for (const auto& [name, entry] : states_) out.push_back(entry.spec);
  return out;
}

void StateStore::cancel_waiters(std::uint64_t run_id, const Status& status) {
  std::vector<Ref<State>> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : states_) all.push_back(entry.state);
  }
  for (const Ref<State>& s : all) s->cancel(run_id, status);
}

namespace detail {

Status given_up() { return Status(Code::aborted, "the run has failed or was cancelled"); }

}  // namespace detail

namespace {

// The waiters of one run, in order; the others stay in theirs.
template <class Waiter>
std::vector<Waiter> take_of_run(std::deque<Waiter>& waiters, std::uint64_t run_id) {
  const auto first = std::stable_partition(waiters.begin(), waiters.end(),
                                           [&](const Waiter& w) { return w.run_id != run_id; });
  std::vector<Waiter> taken(std::make_move_iterator(first), std::make_move_iterator(waiters.end()));
  waiters.erase(first, waiters.end());
  return taken;
}

}  // namespace

// ---- variables

VariableState::VariableState(DType dtype, Shape shape, Tensor initial)
    : dtype_(dtype), shape_(shape), value_(std::move(initial)) {}

bool VariableState::try_acquire() {
  std::lock_guard lock(mutex_);
  if (held_) return false;
  return held_ = true;
}

void VariableState::acquire(const RunInfo& run, Use use,
                            std::function<void(const Status&)> cancelled) {
  bool is_given_up;
  {
    std::lock_guard lock(mutex_);
    is_given_up = run.cancelled.load(std::memory_order_seq_cst);
    if (held_ && !is_given_up) {
      waiters_.push_back({run.id, std::move(use), std::move(cancelled)});
      return;
    }
    if (!is_given_up) held_ = true;
  }
  if (is_given_up) cancelled(given_up());
  else use(value_);
}

// The release that finds no serving thread serves the waiters in a loop. Nested calls would take a
// thousand stack frames for a thousand waiters. A release during serving, from within `use` or from
// another thread, sets `is_given_back_` under the mutex. The serving thread reads the flag under
// the mutex after `use`. If it is set, the thread goes on; else it stops serving, and the release
// that is still to come serves. No waiter is forgotten: each side reads the other's write.
void VariableState::release(bool changed) {
  if (changed) version_.fetch_add(1, std::memory_order_release);
  Ref<State> self;  // a `use` may hold the last reference
  Use next;
  std::unique_lock lock(mutex_);
  if (is_serving_) {
    is_given_back_ = true;
    return;
  }
  if (!waiters_.empty()) {
    retain();
    self = Ref<State>(this);
  }
  while (!waiters_.empty()) {
    next = std::move(waiters_.front().use);
    waiters_.pop_front();
    is_serving_ = true;
    is_given_back_ = false;
    lock.unlock();
    next(value_);
    next = {};
    lock.lock();
    is_serving_ = false;
    if (!is_given_back_) return;
  }
  held_ = false;
}

void VariableState::cancel(std::uint64_t run_id, const Status& status) {
  std::vector<std::function<void(const Status&)>> told;
  {
    std::lock_guard lock(mutex_);
    for (Waiter& w : take_of_run(waiters_, run_id)) told.push_back(std::move(w.cancelled));
  }
  for (auto& tell : told) tell(status);
}

Tensor VariableState::snapshot() {
  while (!try_acquire()) std::this_thread::yield();
  Tensor t = value_;
  release(false);
  require_value(t);
  return t;
}

void VariableState::replace(Tensor value) {
  if (!value.has_value() || value.dtype() != dtype_ || value.shape() != shape_)
    throw Error(
        Code::invalid_argument,
        fmt::format("it holds {}{}, and cannot be set to {}", name_of(dtype_), shape_.text(),
                    value.has_value()
                        ? fmt::format("{}{}", name_of(value.dtype()), value.shape().text())
                        : "nothing"));
  while (!try_acquire()) std::this_thread::yield();
  value_ = std::move(value);
  release(true);
}

// ---- consoles

void ConsoleState::print(const std::string& line) {
  std::lock_guard lock(mutex_);
  if (print_) print_(name_, line);
  else fmt::print("{}\n", line);
}

// ---- queues

QueueState::QueueState(const StateSpec& spec)
    : name_(spec.name), components_(spec.values), capacity_(spec.capacity),
      min_after_dequeue_(spec.min_after_dequeue),
      shuffles_(spec.kind == StateSpec::Kind::shuffling_queue), seed_(spec.seed) {}

std::int64_t QueueState::size() const {
  std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(elements_.size() - head_);
}

bool QueueState::may_dequeue() const {
  std::int64_t n = static_cast<std::int64_t>(elements_.size() - head_);
  return n > (shuffles_ && !closed_ ? min_after_dequeue_ : 0);
}

std::vector<Value> QueueState::pick() {
  if (!shuffles_) {
    std::vector<Value> out = std::move(elements_[head_++]);
    if (head_ * 2 > elements_.size() && head_ > 16) {
      elements_.erase(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return out;
  }
  // SplitMix64 of (seed, draw): counter-based, as all randomness here.
  std::uint64_t z = seed_ + 0x9E3779B97F4A7C15ull * ++draws_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  std::size_t i = static_cast<std::size_t>((z ^ (z >> 31)) % elements_.size());
  std::vector<Value> out = std::move(elements_[i]);
  elements_[i] = std::move(elements_.back());
  elements_.pop_back();
  return out;
}

// Completes all enqueues and dequeues that can complete; the mutex is locked. Callbacks are
// collected; the caller runs them after it has unlocked the mutex.
void QueueState::settle(std::vector<Ended>& ended) {
  for (bool moved = true; moved;) {
    moved = false;
    if (!producers_.empty() && static_cast<std::int64_t>(elements_.size() - head_) < capacity_) {
      Producer p = std::move(producers_.front());
      producers_.pop_front();
      elements_.push_back(std::move(p.element));
      ended.push_back({std::move(p.done), Status(), {}});
      moved = true;
    }
    if (!consumers_.empty() && may_dequeue()) {
      Consumer c = std::move(consumers_.front());
      consumers_.pop_front();
      ended.push_back({std::move(c.done), Status(), pick()});
      moved = true;
    }
  }
  if (closed_)
    for (; !consumers_.empty(); consumers_.pop_front())
      ended.push_back({std::move(consumers_.front().done),
                       Status(Code::out_of_range, "the queue is closed and empty"),
                       {}});
}

void QueueState::answer(std::vector<Ended>& ended) {
  for (Ended& e : ended) e.done(std::move(e.status), std::move(e.element));
}

// Checks dtypes and shapes of an element, because a graph does not always know them exactly.
Status QueueState::check(const std::vector<Value>& element) const {
  if (element.size() != components_.size())
    return Status(Code::invalid_argument,
                  fmt::format("queue '{}': elements have {} components, not {}", name_,
                              components_.size(), element.size()));
  for (std::size_t i = 0; i < element.size(); ++i)
    if (!fits(element[i], components_[i]))
      return Status(
          Code::invalid_argument,
          fmt::format("queue '{}': component {} must be {}, not {}", name_, i,
                      components_[i].text(),
                      element[i].has_value() ? spec_of_value(element[i]).text() : "nothing"));
  return {};
}

void QueueState::enqueue(const RunInfo& run, std::vector<Value> element, Done done) {
  if (Status status = check(element); !status.ok()) return done(std::move(status), {});
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    if (run.cancelled.load(std::memory_order_seq_cst))
      ended.push_back({std::move(done), given_up(), {}});
    else if (closed_)
      ended.push_back(
          {std::move(done), Status(Code::failed_precondition, "the queue is closed"), {}});
    else {
      producers_.push_back({run.id, std::move(element), std::move(done)});
      settle(ended);
    }
  }
  answer(ended);
}

void QueueState::dequeue(const RunInfo& run, Done done) {
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    if (run.cancelled.load(std::memory_order_seq_cst)) {
      ended.push_back({std::move(done), given_up(), {}});
    } else {
      consumers_.push_back({run.id, std::move(done)});
      settle(ended);
    }
  }
  answer(ended);
}

void QueueState::close() {
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    for (Producer& p : producers_)
      ended.push_back(
          {std::move(p.done), Status(Code::failed_precondition, "the queue was closed"), {}});
    producers_.clear();
    settle(ended);
  }
  answer(ended);
}

QueueState::Contents QueueState::contents() const {
  std::lock_guard lock(mutex_);
  Contents all{
      {elements_.begin() + static_cast<std::ptrdiff_t>(head_), elements_.end()}, draws_, closed_};
  for (const Producer& p : producers_) all.elements.push_back(p.element);
  return all;
}

void QueueState::replace(Contents contents) {
  for (const std::vector<Value>& element : contents.elements) check(element).throw_if_error();
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    for (Producer& p : producers_) ended.push_back({std::move(p.done), Status(), {}});
    producers_.clear();
    elements_.clear();
    head_ = 0;
    draws_ = contents.draws;
    closed_ = contents.is_closed;
    const std::uint64_t no_run = RunInfo().id;
    for (std::vector<Value>& element : contents.elements)
      if (static_cast<std::int64_t>(elements_.size()) < capacity_)
        elements_.push_back(std::move(element));
      else producers_.push_back({no_run, std::move(element), [](const Status&, const auto&) {}});
    settle(ended);
  }
  answer(ended);
}

void QueueState::cancel(std::uint64_t run_id, const Status& status) {
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    for (Producer& p : take_of_run(producers_, run_id))
      ended.push_back({std::move(p.done), status, {}});
    for (Consumer& c : take_of_run(consumers_, run_id))
      ended.push_back({std::move(c.done), status, {}});
  }
  answer(ended);
}

}  // namespace troupe
