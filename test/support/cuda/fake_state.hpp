// The state of the fake CUDA runtime: what its .cpp files share. Tests include fake_cuda.hpp.
//
// Note [One-way queues]
// For TSan to see only the orders that a device gives, a call that enqueues is ordered before the
// work, and work before what learns of its end by an event, a written value or a synchronising
// call. So a stream's thread publishes nothing else. It sleeps on a futex that only enqueuing calls
// write, takes no lock that callers take (except to name a violation), and uses objects that
// callers share through relaxed atomics. Objects that both use are never freed before `reset`.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <troupe/test/support/cuda/fake_cuda.hpp>

namespace fake_cuda {

// ---- waiting

/// Sleeps while *word == value; may return early.
void sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value);
void wake_all(std::atomic<std::uint32_t>& word);

/// A point in a stream, which is taken again when neither a stream nor a caller uses it.
class Mark {
 public:
  void pass();  // by the stream; ends its use
  /// True if the stream has passed; then what it did before is visible.
  bool is_passed() const;
  void wait() const;
  void begin_use() { users_.fetch_add(1, std::memory_order_relaxed); }
  void end_use() { users_.fetch_sub(1, std::memory_order_release); }
  std::int64_t when_ns() const { return when_ns_.load(std::memory_order_relaxed); }

 private:
  friend class Marks;
  mutable std::atomic<std::uint32_t> passed_{0};  // publishes the stream's work
  std::atomic<std::uint32_t> users_{0};
  std::atomic<std::int64_t> when_ns_{0};
};

class Marks {
 public:
  Mark& take();  // with one use, the stream's

 private:
  std::deque<Mark> all_;
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : x_(seed * 0x9E3779B97F4A7C15ull | 1) {}
  std::uint64_t next() {
    x_ ^= x_ << 13, x_ ^= x_ >> 7, x_ ^= x_ << 17;
    return x_ >> 16;
  }

 private:
  std::uint64_t x_;
};

// ---- handles

/// A piece of a stream's work. The generator is the stream's.
using Work = std::function<void(Random&)>;

struct Graph;

}  // namespace fake_cuda

struct CUstream_st {
  CUstream_st(int on_device, int its_number, const fake_cuda::Options& options);

  /// Appends work. `is_always`: it also runs on a device with a sticky error.
  void push(fake_cuda::Work work, bool is_always = false);
  void push(fake_cuda::Mark& mark);
  /// Appends a mark of the stream's own, which the caller stops using by end_use().
  fake_cuda::Mark& push_mark();
  void end();  // behind what was pushed
  bool is_idle();

  const int device, number;
  const std::uint32_t max_delay_us;
  std::atomic<bool> is_alive{true};
  std::atomic<fake_cuda::Graph*> capture{nullptr};  // takes launches in the place of the queue
  std::atomic<bool> is_capture_origin{false}, is_capture_invalid{false};
  // the thread that must end the capture; none for a relaxed one
  std::atomic<std::thread::id> capture_thread{};

 private:
  struct Item {
    fake_cuda::Work work = nullptr;
    fake_cuda::Mark* mark = nullptr;
    bool is_always = false, is_end = false;
    std::atomic<Item*> next{nullptr};  // publishes the next item to the stream's thread
  };
  void append(Item* item);
  void live();
  void work(const fake_cuda::Work& what);
  Item& take();

  std::mutex producers_;  // guards the next three
  Item* tail_;
  fake_cuda::Marks marks_;
  std::uint64_t pushed_ = 0;
  // Publishes nothing: the stream's thread sleeps on it.
  std::atomic<std::uint32_t> arrivals_{0};
  std::atomic<std::uint64_t> done_{0};  // items; publishes their work
  Item* head_;                          // used by the stream's thread only, as is the next
  fake_cuda::Random random_;
};

struct CUevent_st {
  CUevent_st(int on_device, bool has_clock) : device(on_device), has_timing(has_clock) {}

  const int device;
  const bool has_timing;
  std::atomic<bool> is_alive{true};
  std::mutex mutex;  // guards the rest
  fake_cuda::Marks marks;
  fake_cuda::Mark* last = nullptr;          // null: never recorded
  fake_cuda::Graph* captured_in = nullptr;  // recorded last in a capture
};

struct CUmemPoolHandle_st {
  explicit CUmemPoolHandle_st(int on_device) : device(on_device) {}

  const int device;
  std::atomic<bool> is_alive{true};
  // Guarded by State::memory. Bytes.
  std::uint64_t threshold = 0;
  std::uint64_t used = 0, used_peak = 0;          // in live blocks
  std::uint64_t reserved = 0, reserved_peak = 0;  // taken from the device
};

namespace fake_cuda {

/// The type of a graph's node, as far as updates of executables compare it.
enum class NodeKind : std::uint8_t {
  kernel,
  host_work,
  copy,
  fill,
  write_value,
  graph,
  conditional
};

struct Node {
  Work work;  // or a conditional node:
  NodeKind kind = NodeKind::conditional;
  cudaGraphConditionalNodeType type{};
  std::atomic<unsigned>* condition = nullptr;
  std::vector<cudaGraph_t> bodies;
};

struct Graph {
  std::vector<Node> nodes;  // in an order in which they may run
  struct Condition {
    std::atomic<unsigned> value{0};
    bool has_default = false;
    unsigned by_default = 0;
  };
  std::deque<Condition> conditions;
  bool is_of_capture = false;  // made by one, whose caller gets it at the end
  std::atomic<bool> is_alive{true};
};

// ---- memory

/// Device memory, or pinned host memory. Entries stay until `reset`.
struct Block {
  char* data;
  std::size_t bytes;
  int device;  // kPinned: host memory
  cudaMemPool_t pool;
  bool is_freed = false;               // guarded by State::memory
  std::atomic<bool> is_buried{false};  // the free has passed its stream; publishes the burial
};
inline constexpr int kPinned = -1;

struct Device {
  std::atomic<int> sticky{cudaSuccess};
  // Guarded by State::memory.
  std::uint64_t allocated = 0, peak = 0, live_blocks = 0;
  std::unique_ptr<CUmemPoolHandle_st> default_pool;
  std::set<int> peers;  // to which access is enabled
};

/// Counters of Report, without an order.
struct Counts {
  std::atomic<std::uint64_t> allocations{0}, launches{0}, captured{0}, graph_launches{0},
      graph_updates{0}, host_work{0}, copies{0}, write_values{0}, records{0}, waits{0}, queries{0},
      syncs{0}, live_streams{0}, live_events{0}, live_pools{0}, live_graphs{0};
};
inline void count(std::atomic<std::uint64_t>& counter, int by = 1) {
  counter.fetch_add(static_cast<std::uint64_t>(by), std::memory_order_relaxed);
}

inline constexpr std::size_t kSharedBytes = 48 << 10;  // for a launch without an attribute

struct State {
  explicit State(const Options& o);

  Options options;  // written by `reset` only
  Device devices[kMaxDevices];
  Counts counts;
  // Dynamic shared memory that a launch may have; cudaFuncSetAttribute raises it for all kernels.
  std::atomic<std::size_t> max_shared_bytes{kSharedBytes};

  std::mutex texts;  // guards the next two
  std::vector<std::string> violations, pageable_copies;

  std::mutex plans;                                                  // guards planted failures
  std::multimap<std::string, std::pair<int, cudaError_t>> failures;  // calls to go, the answer
  std::atomic<bool> has_failures{false};

  // guards what follows, and the memory of devices and memory pools
  std::mutex memory;
  std::map<const char*, Block*> blocks;  // by address; freed ones while their memory is kept
  std::deque<Block*> freed;              // oldest first
  std::uint64_t freed_bytes = 0, pinned_bytes = 0;
  std::vector<std::unique_ptr<Block>> records;

  std::mutex handles;  // guards what follows; handles are never freed
  std::deque<CUstream_st> streams;
  std::deque<CUevent_st> events;
  std::deque<CUmemPoolHandle_st> pools;
  int next_stream = 0;
  std::atomic<std::uint32_t> running{0};  // threads of streams
};

/// Never destroyed: devices may be destroyed late, or never.
State& state();

// ---- used by every entry point

/// The device of this thread.
int& current_device();
/// True on a stream's thread while it works.
bool& is_in_work();
/// Non-relaxed captures that this thread has begun.
int& captures_begun();

void violate(std::string what);
/// The error that cudaGetLastError returns on this thread.
cudaError_t& last_error();
/// The answer planted for this call of `name`, or success.
cudaError_t planted(const char* name);
/// Keeps an error for cudaGetLastError.
cudaError_t result(cudaError_t error);
/// Answers for a call on `device`: a sticky error, a planted failure, or a refusal in a stream's
/// work.
cudaError_t enter(const char* name, int device);
/// As `enter`, for the current device.
cudaError_t enter(const char* name);
/// As `enter`, for a stream's device. The default stream and dead streams are violations.
cudaError_t enter(const char* name, cudaStream_t stream);
cudaError_t enter(const char* name, cudaEvent_t event);
/// The sticky error of a device, or success.
cudaError_t sticky_error(int device);
/// Violates if the current device is not the stream's.
cudaError_t check_current(const char* name, int device);
/// Refuses a call that waits or allocates while this thread captures.
cudaError_t check_no_capture(const char* name);

inline bool is_device(int device) { return device >= 0 && device < state().options.devices; }

/// Appends work to a stream or to what it captures.
void add_work(cudaStream_t stream, Work work, NodeKind kind);
/// Answers for a call that enqueues: it is refused by a stream whose capture has become invalid.
cudaError_t check_capture(cudaStream_t stream);
/// Refuses, if the stream captures, and makes its capture invalid.
cudaError_t check_not_capturing(const char* name, cudaStream_t stream);
/// Waits for all streams of a device, as a call that blocks.
void wait_for_device(int device);

/// The block that holds [p, p + bytes), live or freed, or null. The caller holds State::memory.
Block* find_block(const void* p, std::size_t bytes);
/// Frees all but live pinned memory.
void free_all_memory();
void free_all_graphs();

}  // namespace fake_cuda

/// In an entry point: returns if `enter` refuses.
#define FAKE_CUDA_ENTER(...) \
  if (const cudaError_t refused = ::fake_cuda::enter(__VA_ARGS__)) return refused
