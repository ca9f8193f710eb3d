// Observers of eager execution, such as tapes. While an observer is active on a thread, it receives
// the ops that the eager scopes of that thread compute, and runs the staged functions that they
// call.
//
// Threads: an observer is active on one thread at a time, the one that activated it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <troupe/ops/graph/op.hpp>

namespace troupe {

namespace detail {

struct StagedFunction;

}  // namespace detail

class Eager;

namespace detail {

class BindObserver {
 public:
  /// One op that was computed. `state`: null unless the op is stateful.
  struct Computed {
    const OpDef& op;
    const Attrs& attrs;
    std::span<const Expr> inputs;
    std::span<const Expr> outputs;
    const State* state;
    const Site& site;
    Reader& reader;
    int state_number;  // counts the reader's states; -1: none
  };

  /// While it lives, nothing is reported to the observers of this thread.
  class Paused {
   public:
    Paused() : paused_(std::exchange(head(), nullptr)) {}
    Paused(Paused&&) = delete;
    ~Paused() { head() = paused_; }

   private:
    BindObserver* const paused_;
  };

  /// The innermost observer of this thread; null: none is active.
  static BindObserver* innermost() { return head(); }
  BindObserver* outer() const { return outer_; }

  virtual void computed(const Computed& firing) = 0;
  /// True if it records a call with these inputs by `scope`. The variables that the function reads
  /// count as inputs.
  virtual bool records(const StagedFunction& function, std::span<const Expr> inputs,
                       Eager& scope) = 0;
  /// A call that it records, with its outputs and, after these, those that `forward_of` added.
  virtual void called(const std::shared_ptr<StagedFunction>& function, std::span<const Expr> inputs,
                      std::span<const Expr> outputs, Eager& scope) = 0;
  /// Returns the version of the function that yields, after its outputs, the values that its
  /// gradient needs.
  virtual std::shared_ptr<StagedFunction> forward_of(
      const std::shared_ptr<StagedFunction>& function) = 0;

 protected:
  BindObserver() = default;
  BindObserver(const BindObserver&) = delete;
  BindObserver& operator=(const BindObserver&) = delete;
  ~BindObserver() { deactivate(); }

  bool is_active() const { return is_active_; }
  void activate() {
    if (std::exchange(is_active_, true)) return;
    outer_ = std::exchange(head(), this);
  }
  /// In any order: observers that were activated later stay.
  void deactivate() {
    if (!std::exchange(is_active_, false)) return;
    BindObserver** at = &head();
    while (*at && *at != this) at = &(*at)->outer_;
    if (*at) *at = outer_;
    outer_ = nullptr;
  }

 private:
  static BindObserver*& head() {
    static thread_local BindObserver* innermost = nullptr;
    return innermost;
  }
  BindObserver* outer_ = nullptr;
  bool is_active_ = false;
};

}  // namespace detail

}  // namespace troupe
