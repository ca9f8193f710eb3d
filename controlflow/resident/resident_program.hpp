// A loop that stays whole, as scalar code and the kernels that it calls.
//
// Threads: a program is shared and never changes; an execution is one thread's at a time.
// Invariants: Note [Resident loops] in README.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/kernel.hpp>
#include <troupe/devices/scalar/scalar_code.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

/// The slot of a value: a register, or a tensor's.
struct ResidentPlace {
  bool is_scalar = true;
  std::int32_t index = 0;
  DType type = DType::f32;
  friend bool operator==(const ResidentPlace&, const ResidentPlace&) = default;
};

/// A step that is no scalar operation.
struct ResidentCall {
  /// `pointwise` runs a scalar program on tensors; its results go where those of the iteration
  /// before were. `push`, `pop` and `read` are of lists whose elements are scalars; what they are
  /// not made for, the kernel does.
  enum class Kind : std::uint8_t { kernel, move, pointwise, push, pop, read };
  struct Input {
    ResidentPlace place;
    bool is_last = false;  // no later step reads it: it is moved
  };
  Kind kind = Kind::kernel;
  Kernel* kernel = nullptr;
  std::int32_t pointwise = -1;  // into ResidentProgram::pointwise_
  std::vector<Input> inputs;
  std::vector<ResidentPlace> outputs;
  const Graph* graph = nullptr;  // has the node, for errors
  std::int32_t node = -1;
  std::vector<std::int32_t> loops;  // around it, outermost first
};

/// A loop of the program: the resident one, number 0, or one within.
struct InnerLoop {
  std::string name;  // `train/1`
  std::uint64_t key = 0;
  std::int32_t parent = -1;
  ScalarCode::Register counter = 0;
  ScalarCode::Label first = 0, last = 0;  // steps, the last one excluded
  std::string predicate;                  // the node that decides
  bool is_endless = false;                // which depends on nothing that the loop changes
};

/// A scalar step of the whole loop's condition, and where its operands are after an iteration.
struct ComparedStep {
  std::uint64_t origin = 0;
  const OpDef* op = nullptr;
  std::vector<ResidentPlace> operands;
};

class ResidentRun;

/// Looks at an execution between two iterations.
class ResidentObserver {
 public:
  virtual ~ResidentObserver() = default;
  virtual void see(const ResidentRun& execution) = 0;
};

class ResidentProgram {
 public:
  /// `attrs`: of a ResidentLoop node, with its `origin`; `inputs`: what it is given.
  ResidentProgram(const Attrs& attrs, std::uint64_t origin, std::span<const ValueSpec> inputs,
                  Device& device);

  const ScalarCode& code() const { return code_; }
  const std::vector<ResidentCall>& calls() const { return calls_; }
  const std::vector<InnerLoop>& loops() const { return loops_; }
  const std::vector<ComparedStep>& compared() const { return compared_; }

 private:
  friend class ResidentRun;
  class Builder;

  std::shared_ptr<const AttrObject> graphs_;  // which calls refer to
  struct Pointwise {
    std::shared_ptr<const ScalarProgram> program;
    std::vector<ValueSpec> inputs, outputs;
  };
  std::vector<Pointwise> pointwise_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  ScalarCode code_;
  std::vector<ResidentCall> calls_;
  std::vector<InnerLoop> loops_;
  std::vector<ComparedStep> compared_;
  bool is_compared_late_ = false;  // an iteration's comparisons are those of the one before
  std::vector<ResidentPlace> inputs_, outputs_, variables_;  // variables: of the whole loop
  std::vector<std::pair<std::int32_t, Tensor>> constants_;   // tensors, by slot
  std::int32_t values_ = 0;
  std::size_t most_operands_ = 0, most_results_ = 0;
  // nodes that the program has besides its sub-graphs', for errors
  std::vector<std::unique_ptr<Graph>> added_;
};

/// One execution. It is advanced slice by slice.
class ResidentRun final : private CompletionSink, private ScalarCalls {
 public:
  explicit ResidentRun(const ResidentProgram& program);

  /// Takes the inputs of the firing, whose run outlives this execution. `resume` is called, on any
  /// thread, when an execution that waits for a kernel can be advanced again.
  void start(KernelContext& c, std::function<void()> resume);

  /// `waiting`: `resume` will be called, or was. `abandoned`: the run is over.
  enum class Outcome : std::uint8_t { done, more, waiting, abandoned };
  /// A slice ends after some time, or, if `iterations` is not 0, after so many.
  struct Slice {
    std::int64_t nanoseconds = 2'000'000;
    std::int64_t iterations = 0;
  };
  /// Throws what a kernel throws; `where` and `tag` then say where.
  Outcome advance(const Slice& slice);
  /// After `done`.
  void take(std::span<Value> outputs);
  /// Gives up all values; `start` may follow.
  void clear();

  /// Returns those of the whole loop besides the first, on the thread that advances it.
  std::int64_t iterations() const { return iteration_of(program_.loops_[0]); }

  /// The next iterations are shown to `observer`. Any thread.
  void observe(std::shared_ptr<ResidentObserver> observer, int iterations);
  // For the observer:
  /// The iteration that the condition's steps have last run in.
  std::int64_t compared_iteration() const { return iterations() - program_.is_compared_late_; }
  Value value(const ResidentPlace& place) const;
  /// A variable of the whole loop, as the iteration begins.
  Value variable(std::size_t k) const { return value(program_.variables_[k]); }

  /// The node that failed: `MatMul 'layer1/MatMul_7' (train.cpp:41)`.
  std::string where() const;
  /// The iterations that it failed in, outermost first.
  std::string tag() const;

  /// A loop that is under way. Any thread, as of the last few microseconds.
  struct Open {
    const InnerLoop* loop;
    std::int64_t iteration;
  };
  std::vector<Open> open() const;

 private:
  int call(std::int32_t number) override;
  void complete(void* ticket, Status status, std::span<Value> outputs) override;
  void run_pointwise(const ResidentCall& call);
  int run_kernel(std::int32_t number);
  bool run_on_list(const ResidentCall& call);
  void end_deferred();
  void store_results(const ResidentCall& call);
  void load(const ResidentPlace& place, bool is_last, Value& to);
  void store(const ResidentPlace& place, Value&& from);
  void publish();
  void show();
  std::uint64_t tag_of(const ResidentCall& call) const;
  std::int64_t iteration_of(const InnerLoop& loop) const;

  const ResidentProgram& program_;
  ScalarFrame frame_;
  std::vector<Value> values_, operands_, results_;
  struct Views {
    std::vector<ConstView> in;
    std::vector<View> out;
  };
  std::vector<Views> views_;  // by pointwise step: dtypes and shapes are there
  Device* device_ = nullptr;
  Stream* stream_ = nullptr;
  const RunInfo* run_ = nullptr;
  std::uint64_t outer_tag_ = 0;
  std::function<void()> resume_;
  std::int64_t chunk_ = 64;    // jumps back between two looks at the clock
  std::int32_t current_ = -1;  // the call under way, or the one that failed
  bool has_deferred_ = false;  // `current_` ends when its Completion does
  Status deferred_status_, thrown_;
  enum Deferral : int { kRunning, kCompleted, kParked };
  std::atomic<int> deferral_{kRunning};  // publishes results_ and deferred_status_
  std::atomic<int> observes_{0};         // iterations; publishes nothing
  std::int64_t shown_ = -1;              // the iteration that was last shown
  std::mutex mutex_;                     // guards observer_
  std::shared_ptr<ResidentObserver> observer_;
  // read by `open`; publish nothing
  std::atomic<std::int32_t> place_{0};
  std::vector<std::atomic<std::int64_t>> iterations_;
};

}  // namespace troupe
