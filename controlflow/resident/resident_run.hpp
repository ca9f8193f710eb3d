// An execution of a loop that stays whole.
//
// Threads: an execution is one thread's at a time. Invariants: RESIDENT.md, Note [Resident loops].
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <troupe/controlflow/resident/resident_program.hpp>

namespace troupe {

class ResidentRun;

/// Counts of a loop over all its executions, those under way and those that failed too. Iterations
/// are as of the last few microseconds, and besides the first of each execution. Threads: any; the
/// counts publish nothing.
struct ResidentCounts {
  std::atomic<std::uint64_t> executions{0}, iterations{0};
};

/// Looks at an execution between two iterations.
class ResidentObserver {
 public:
  virtual ~ResidentObserver() = default;
  virtual void see(const ResidentRun& execution) = 0;
};

/// One execution. It is advanced slice by slice.
class ResidentRun final : private ScalarCalls, private CompletionSink {
 public:
  /// `counts` outlives the execution.
  ResidentRun(const ResidentProgram& program, ResidentCounts& counts);
  ~ResidentRun();

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
  struct Views {
    std::vector<ConstView> in;
    std::vector<View> out;
    MatmulArgs product;
    SlicedRows::Views rows;
    // By operand, by result: memory of a small tensor; null: it is none.
    std::vector<void*> in_memory, out_memory;
    std::vector<ScalarRegister> memory;
  };

  int call(std::int32_t number) override;
  void complete(void* ticket, Status status, std::span<Value> outputs) override;
  void add_memory(const ResidentCall& call);
  void run_direct(const ResidentCall& call);
  void compute_direct(const ResidentCall& call, Views& views);
  void* room_of(const ResidentPlace& place, const View& out);
  int run_kernel(std::int32_t number);
  bool push_scalar(const ResidentCall& call);
  bool pop_scalar(const ResidentCall& call);
  bool read_scalar(const ResidentCall& call);
  bool read_element(const Value& element, const ResidentPlace& to);
  void gather(const ResidentPlace& place, std::byte* to) const;
  void scatter(const ResidentPlace& place, const std::byte* from);
  Tensor gathered(const ResidentPlace& place) const;
  void open_cursor(const ResidentCall& call);
  void close_cursor(std::int32_t slot);
  void end_deferred();
  void store_results(const ResidentCall& call);
  void load(const ResidentPlace& place, bool is_last, Value& to);
  void store(const ResidentPlace& place, Value&& from);
  void publish();
  void count();
  void show();
  std::uint64_t tag_of(const ResidentCall& call) const;
  std::int64_t iteration_of(const InnerLoop& loop) const;

  const ResidentProgram& program_;
  ResidentCounts& counts_;
  std::int64_t counted_ = -1;  // iterations that `counts_` has; -1: it has not begun
  ScalarFrame frame_;
  std::vector<Value> values_, operands_, results_;
  std::vector<Views> views_;  // by direct step: dtypes and shapes are there
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
