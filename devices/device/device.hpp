// Devices compute. A device has memory, primitives and streams; a stream runs its work in order,
// asynchronously; an event marks a point in a stream.
//
//   auto stream = device.make_stream();
//   device.primitives().fill(*stream, Tensor::scalar(1.f), View(t));
//   stream->record()->then([](const Status& s) { ... });   // called when the fill is done
//
// The CPU device's streams run the work before the call returns. The simulated stream device runs
// it later, in seeded random delays, on memory that counts as foreign: it proves ordering and
// memory, never speed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <troupe/devices/device/activity.hpp>
#include <troupe/devices/device/primitives.hpp>
#include <troupe/devices/tensor/allocator.hpp>

namespace troupe {

namespace detail {

class Device;
class Swapper;
class WorkerPool;

/// A point in a stream. Shared by all that wait for it.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool is_done() const = 0;
  /// Calls `done` once, with the stream's status, when the point is passed: at once if it is,
  /// else from a thread of the device. `done` must not block.
  virtual void then(std::function<void(const Status&)> done) = 0;
};

/// Collects the first error of work that runs later, and the origin that enqueued the work. If the
/// fault is set, its work is skipped. Threads: the enqueuer's and the device's.
class Fault {
 public:
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  void report(Status status, std::int64_t origin) {
    std::lock_guard lock(mutex_);
    if (is_set()) return;
    status_ = std::move(status);
    origin_ = origin;
    set_.store(true, std::memory_order_release);
  }
  // After is_set:
  const Status& status() const { return status_; }
  std::int64_t origin() const { return origin_; }

 private:
  std::mutex mutex_;              // guards the moment of setting
  std::atomic<bool> set_{false};  // publishes status_ and origin_
  Status status_;
  std::int64_t origin_ = 0;
};

/// A handle on a queue of work; used by one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() = 0;
  /// Errors of work enqueued through this handle from now on go to `fault` alone, with `origin`. A
  /// synchronous device throws them instead.
  virtual void attribute(std::shared_ptr<Fault> fault, std::int64_t origin) {
    (void)fault;
    (void)origin;
  }
  virtual std::shared_ptr<Event> record() = 0;
  /// As `record`, for order alone: an error of the work before it is left to the next event
  /// recorded.
  virtual std::shared_ptr<Event> mark() { return record(); }
  /// Work enqueued from now on starts after `event`.
  virtual void wait(const std::shared_ptr<Event>& event) = 0;
  /// Until `flush`, launches of the calling thread may be held and then start together, as a graph
  /// where the device has seen the like before. Other calls flush by themselves. Called again
  /// without a flush it does nothing.
  virtual void hold() {}
  /// Starts what is held. Called by the thread that called `hold`.
  virtual void flush() {}
  /// Blocks the calling thread until the stream is empty; throws the first error of its work.
  /// For tests and for shutting down; never called inside an actor.
  virtual void synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  /// `cpu:0`, `sim:0` …
  virtual const std::string& name() const = 0;
  /// `cpu`, `sim`, `gpu`: the kind that kernels are registered for.
  virtual const std::string& kind() const = 0;
  /// Kernels return with their work done, and tensors are host memory.
  virtual bool is_synchronous() const = 0;
  virtual Allocator& allocator() = 0;
  virtual const Primitives& primitives() const = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  /// A handle on the device's one compute queue: memory is freed and reused in its order.
  virtual std::unique_ptr<Stream> compute_stream() { return make_stream(); }
  /// A queue beside the compute queue, for copies.
  virtual std::unique_ptr<Stream> copy_stream() { return make_stream(); }
  /// Moves saved values to the host when memory is short; null: this device does not.
  virtual Swapper* swapper() { return nullptr; }
  /// Copies to and from host memory, in the stream's order. The source is kept until then; a
  /// destination must stay.
  virtual void copy_from_host(Stream&, const Tensor& host, View on_device) = 0;
  virtual void copy_to_host(Stream&, ConstView on_device, View host) = 0;
  /// Copies from another device's memory, in the order of `stream`, which waits for all work
  /// enqueued on the other device so far. The source must stay until then. Returns false, with
  /// nothing done, if the two have no path to each other; then the elements go through the host.
  virtual bool copy_from_peer(Stream& stream, ConstView on_peer, Device& peer, View on_device) {
    (void)stream, (void)on_peer, (void)peer, (void)on_device;
    return false;
  }
  /// The allocator of host memory that copies to and from this device use directly. The default is
  /// the heap; a GPU has memory that the system does not move.
  virtual Allocator& host_memory() { return host_allocator(); }
  /// A host tensor in that memory, its elements not yet written.
  Tensor host_empty(DType dtype, const Shape& shape);
  /// Passes the events whose points the streams have reached, and calls their callbacks. Never
  /// blocks; any thread. Returns true if there were any. A device whose own threads do this has
  /// nothing to do here.
  virtual bool poll() { return false; }
  /// Runs `work` on the host, on a thread that may compute for long: kernels that the device lacks.
  /// By default the caller's thread runs it.
  virtual void run_on_host(std::function<void()> work) { work(); }
  /// Returns counts of the memory and the queues, for snapshots and metrics. Any thread; it takes
  /// some microseconds.
  virtual DeviceCounters counters();
  /// Returns a tensor of this device. If memory is short, swapped-out buffers make room; throws
  /// resource_exhausted with advice if nothing is left to swap.
  Tensor empty(DType dtype, const Shape& shape);
};

/// x86-64-v2, v3, v4 or portable: the copies of the CPU kernels that run.
enum class CpuLevel : std::uint8_t { portable, v2, v3, v4 };
std::string_view name_of(CpuLevel level);
/// The best this processor runs; TROUPE_CPU_LEVEL=v2|v3|v4 forces a lower one.
CpuLevel cpu_level();
/// Returns whether this build has kernels of the level (CMake's TROUPE_LEVELS).
bool is_built(CpuLevel level);

struct CpuOptions {
  WorkerPool* pool = nullptr;  // intra-op blocks run there; null: on the caller alone
  std::string name = "cpu:0";
};
/// The host as a device: synchronous streams, host_allocator().
std::unique_ptr<Device> make_cpu_device(const CpuOptions& options = {});

}  // namespace detail

/// Decides which values that loops save for their gradients move to the host, and when (swap.hpp).
/// A device without a memory limit swaps nothing.
struct SwapOptions {
  bool is_on = true;
  std::size_t threshold = 16 << 10;  // bytes: smaller buffers stay
  double fill_level = 0.7;           // share of the limit above which the oldest leave
  // share of the limit above which swapped-out buffers free their memory before it is needed
  double keep_level = 1;
  int prefetch = 4;              // elements of a list that are fetched ahead of use
  std::uint64_t host_limit = 0;  // bytes of host memory, 0: none
  bool all_lists = false;        // users' lists too
};

/// Durations of a simulated device's work on its virtual clock (devices/sim/sim_device.hpp).
struct SimSpeed {
  double launch_ns = 1000;        // for each piece of work
  double bytes_per_ns = 288;      // bandwidth of the device's memory
  double flops_per_ns = 4000;     // rate of matrix products
  double copy_bytes_per_ns = 10;  // to and from the host
};

/// A GPU of this machine (devices/cuda/).
struct GpuOptions {
  std::uint64_t memory_limit = 0;  // bytes; 0: nine tenths of the memory free at the first use
  bool tf32 = false;               // matrix products of f32 may round their operands to 10 bits
  // compiled programs and plans, at most 256 MB; empty: $XDG_CACHE_HOME/troupe or ~/.cache/troupe
  std::string cache_folder = {};
  bool poisons = false;  // fills fresh and freed memory with NaN, in the stream's order: for tests
  bool graphs = true;    // repeated stretches of launches become one launch
};

struct SimOptions {
  std::string name = "sim:0";
  std::uint64_t seed = 1;           // seeds the delays
  std::uint64_t memory_limit = 0;   // bytes, 0 = none
  std::uint32_t max_delay_us = 50;  // each piece of work starts after a random delay up to this
  SwapOptions swap = {};
  SimSpeed speed = {};
  bool is_traced = false;  // records the work on the virtual clock
  // no threads: work runs when a test takes a step (devices/sim/sim_device.hpp)
  bool manual = false;
  // fills fresh and freed memory, a pass of the compute stream; false: for benchmarks
  bool poisons = true;
};
namespace detail {

/// A device with asynchronous streams and memory of its own but no hardware: kernels are the CPU's,
/// run later by a thread a stream; freed and fresh memory is filled with a pattern of NaNs (unless
/// `poisons` is false), in the stream's order.
std::unique_ptr<Device> make_sim_device(const SimOptions& options = {});

}  // namespace detail

}  // namespace troupe
