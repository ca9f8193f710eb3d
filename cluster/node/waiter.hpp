// How the blocking calls of a node wait: on a condition variable, or, in a deterministic engine, by
// stepping that engine and what is around it.
//
//   waiter.until(mutex_, changed_, [&] { return requests_.at(id).is_done; });
//
// Threads: any. Conditions are evaluated with the mutex held.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <troupe/actors/engine/engine.hpp>
#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/cluster/transport/transport.hpp>

namespace troupe {

class Waiter {
 public:
  using Condition = std::function<bool()>;

  /// `step`: advances other nodes or the network; false if nothing is pending there. May be empty.
  Waiter(bool is_deterministic, Condition step)
      : is_deterministic_(is_deterministic), step_(std::move(step)) {}
  /// Before the first wait of a deterministic engine; both outlive the waits.
  void open(EngineImpl& engine, const Transport& transport) {
    engine_ = &engine;
    transport_ = &transport;
  }
  bool is_deterministic() const { return is_deterministic_; }
  bool step() const { return step_ && step_(); }

  void until(std::mutex& mutex, std::condition_variable& changed, const Condition& is_done) const {
    step_until(mutex, is_done);
    std::unique_lock lock(mutex);
    changed.wait(lock, is_done);
  }
  /// Returns false if the condition did not hold within `patience`, by the transport's clock in a
  /// deterministic engine.
  bool until(std::mutex& mutex, std::condition_variable& changed, const Condition& is_done,
             std::chrono::nanoseconds patience) const {
    if (is_deterministic_) return step_for(mutex, is_done, patience);
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, patience, is_done);
  }
  /// Steps a deterministic engine until the condition holds; does nothing with threads.
  void step_until(std::mutex& mutex, const Condition& is_done) const {
    if (!is_deterministic_) return;
    engine_->step_until([&] {
      std::lock_guard lock(mutex);
      return is_done();
    });
  }

 private:
  // The engine's own steps come last: an engine that always has one would let no time pass.
  bool step_for(std::mutex& mutex, const Condition& is_done,
                std::chrono::nanoseconds patience) const {
    const auto end = transport_->now() + patience;
    for (;;) {
      {
        std::lock_guard lock(mutex);
        if (is_done()) return true;
      }
      if (transport_->now() > end || !(step() || engine_->pool()->step())) return false;
    }
  }

  const bool is_deterministic_;
  const Condition step_;
  EngineImpl* engine_ = nullptr;  // null before `open`
  const Transport* transport_ = nullptr;
};

}  // namespace troupe
