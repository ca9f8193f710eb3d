// Eager execution: the reader that computes at once. The same functions as on a graph; every
// expression has a value.
//
//   Eager e;
//   Expr y = tanh(e.constant(0.5));
//   float v = y.value().item<float>();
//
// Threads: one at a time, for its states too. So nothing could end a wait at a queue: a dequeue
// from an empty one, or an enqueue to a full one, throws failed_precondition.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/ops/graph/reader.hpp>

namespace troupe {

class Eager final : public Reader {
 public:
  /// Computes on the host's CPU device, on the calling thread.
  Eager();
  /// Computes on `device`, which must outlive the scope and be synchronous.
  explicit Eager(Device& device);
  ~Eager() override;

  Exprs bind(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
             int state = -1) override;
  Expr adopt(const Expr& foreign, const Site& site) override;
  ValueSpec spec_of(const Expr& e) const override;
  int declare(const StateSpec& spec, const Site& site) override;
  const StateSpec& state_spec(int state) const override { return states_[state]; }
  StateStore& states() { return store_; }

  /// What has been bound since somebody asked: while_loop asks whether its predicate is false
  /// because of NaN.
  struct Comparisons {
    bool nan_holds = false;  // <, <=, >, >= with NaN are true meanwhile, and looked at one by one
    bool has_effect = false;
    bool compares = false;  // floats, by one of them
    // where `nan_holds`: the first of them that compared NaN: `Less (train.cpp:41)`; empty: none
    std::string nan;
    Edge operand;  // of it, the mark of what was NaN
  };
  /// While it lives, `by` is told. What is bound meanwhile is an ordinary part of the program,
  /// unless NaN holds: then it was asked for once more, and random draws afterwards are those that
  /// they were without it.
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

  /// While it lives, what is bound is only looked at, to know what it would yield: what has an
  /// effect or draws does nothing and yields zeros, and so does what takes a value of a graph,
  /// which has none; reads are real. Random draws afterwards are those that they were without it.
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

  void set_seed(std::uint64_t seed) { run_.seed = seed; }

 private:
  bool is_nan(const Expr& e, const Site& site);
  Exprs compare(const OpDef& op, std::span<const Expr> inputs, Attrs attrs, const Site& site,
                Comparisons& watch);

  std::unique_ptr<Device> own_;
  Device* device_;
  std::unique_ptr<Stream> stream_;
  RunInfo run_;
  std::uint64_t calls_ = 0;
  std::vector<StateSpec> states_;
  StateStore store_;
  Comparisons* watch_ = nullptr;
  bool is_looking_ = false;
};

}  // namespace troupe
