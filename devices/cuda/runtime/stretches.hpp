// Straight stretches of launches, which become CUDA graphs when they repeat.
//
//   stretches.hold();                            // this thread, for a turn of its partition
//   launch(stream, ...); launch(stream, ...);    // kernels/launch.hpp: each goes to `take`
//   for (const HeldFailure& f : stretches.flush()) ...
//
// A stretch is a row of calls that enqueue work, each as bytes: the kernel, its grid, its arguments
// with all addresses. A row that begins no known stretch is made call by call, and remembered. A
// row that begins one is held; if it equals the stretch at its end, the calls are captured, once,
// and the graph is launched in their place. A call that differs in its arguments alone (a step's
// number, say) cuts the known stretch in two, so that the calls around it are replayed. Note
// [Replay] in INVARIANTS.md draws this, and argues that a replay is what the calls would be.
//
// Threads: any; `hold` is a thread's own. Ownership: graphs and the stream of captures are the
// object's; it keeps compiled programs of known stretches.
// Invariants
// 1. Held calls are started before anything else is enqueued: the stream is had through a flush.
// 2. A graph is launched in place of calls with equal bytes only, in their order.
// 3. Captures use a stream of their own, so that no other thread's call is captured.
// 4. At most kMostKnown stretches, kMostCalls calls each, kMostGraphs graphs. Comparing ends if
//    captures do not pay, or if no stretch repeats.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

#include <troupe/devices/cuda/kernels/launch.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/queue_meter.hpp>

namespace troupe::cuda {

class WorkTimer;

/// The origin of work, to which its errors go.
struct Origin {
  std::shared_ptr<Fault> fault;  // null: the queue's status
  std::int64_t node = 0;
};

/// A held call that CUDA has refused when it was made.
struct HeldFailure {
  cudaError_t error;
  Origin origin;
};

class Stretches {
 public:
  static constexpr std::size_t kLeastCalls = 3, kMostCalls = 128, kMostKnown = 64, kMostGraphs = 32;

  /// Takes calls on the stream of a device, whose launches `meter` counts.
  Stretches(int device, cudaStream_t stream, QueueMeter& meter)
      : device_(device), stream_(stream), meter_(meter), followed_(known_.end()) {}
  ~Stretches();
  Stretches(const Stretches&) = delete;
  Stretches& operator=(const Stretches&) = delete;

  /// From now on calls of this thread on the stream are taken, until `end`. While work is timed, a
  /// graph is one piece of it. `timer`: null: it is not.
  void hold(WorkTimer* timer, const WorkLabel* label);
  void end();
  bool are_held() const { return holding().stretches == this; }
  /// True if the calling thread's next call would be made later, so far as is known.
  static bool is_following();
  /// The calls of this thread that follow are of this origin, which must stay meanwhile.
  static void attribute(const Origin* origin) { holding().origin = origin; }
  /// Takes a call. `keeps` stays as long as its bytes are known.
  cudaError_t take(const HeldCall& call, std::shared_ptr<const void> keeps = nullptr);

  /// The meter has counted a call of this thread, which may have made several launches.
  void count();

  /// True if `flush` has something to do.
  bool has_any() const { return has_any_.load(std::memory_order_relaxed); }
  /// While it is locked no call is taken.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  /// Ends the stretch. Locked by the caller. Throws nothing.
  std::vector<HeldFailure> flush();

  struct Counters {
    std::uint64_t captured = 0, updated = 0, failed = 0;  // graphs
    std::size_t known = 0, graphs = 0;                    // now
  };
  Counters counters() const;

 private:
  friend bool holds(cudaStream_t stream);
  friend cudaError_t take(const HeldCall& call);

  struct Holding {
    Stretches* stretches = nullptr;
    cudaStream_t stream = nullptr;
    const Origin* origin = nullptr;
    WorkTimer* timer = nullptr;
    const WorkLabel* label = nullptr;
  };
  static Holding& holding() {
    static thread_local Holding mine;
    return mine;
  }

  struct Call {
    cudaError_t (*issue)(const unsigned char*, cudaStream_t);
    std::size_t at, size;  // its bytes
    std::uint64_t hash;
  };
  struct Row {
    std::vector<Call> calls;
    std::vector<unsigned char> bytes;
    std::vector<std::shared_ptr<const void>> keeps;  // by call
    std::vector<Origin> origins;                     // by call, while they are held
    std::uint64_t counted = 0;  // how many the meter has counted, while they are held

    void clear();
    void push(const HeldCall& call, std::shared_ptr<const void> kept);
    void pop();
    bool has_equal(std::size_t i, const Row& other, std::size_t j) const;
    bool begins_with(const Row& other) const;
    /// Calls from `first` on, and before `last`.
    Row part(std::size_t first, std::size_t last) const;
    cudaError_t issue(std::size_t i, cudaStream_t stream) const {
      return calls[i].issue(bytes.data() + calls[i].at, stream);
    }
  };
  struct Known {
    Row row;
    cudaGraphExec_t graph = nullptr;
    std::uint64_t used = 0;  // when, counted in stretches
    std::uint64_t replays = 0, misses = 0;
    bool is_refused = false;  // it cannot be captured or launched
  };
  using Iterator = std::list<Known>::iterator;

  cudaError_t take_locked(const HeldCall& call, std::shared_ptr<const void> keeps);
  cudaError_t begin(const HeldCall& call, std::shared_ptr<const void> keeps);
  Iterator find(const Row& beginning);
  bool is_first_of_any(std::size_t call) const;
  void finish();
  void remember(const Row& row);
  void forget(Iterator known);
  void cut(Iterator known, std::size_t at);
  bool capture(Known& known);
  cudaGraphExec_t make_executable(const Row& row, cudaGraph_t graph);
  void end_captures();
  void release(Known& known);
  bool replay(Known& known);
  void issue_all();

  const int device_;
  const cudaStream_t stream_;
  QueueMeter& meter_;

  mutable std::mutex mutex_;  // guards the members below, and the order of calls in the stream
  Row now_;                   // the stretch under way
  bool is_held_ = false;      // its calls; else they were made
  std::list<Known> known_;
  Iterator followed_;  // while they are held: begins as they do
  // graphs of stretches that are no longer known, for others of the same kernels
  std::list<Known> spare_;
  std::vector<HeldFailure> failures_;
  cudaStream_t captures_ = nullptr;
  Counters counters_;
  std::uint64_t stretches_ = 0, replays_ = 0;
  std::uint64_t unrepeated_ = 0;  // remembered since the last replay
  bool is_off_ = false;
  // true: `flush` has something to do. Publishes nothing: a call that must be seen happened before
  // the look
  std::atomic<bool> has_any_{false};
};

}  // namespace troupe::cuda
