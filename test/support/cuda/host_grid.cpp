#include <troupe/test/support/cuda/host_grid.hpp>

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#if !defined(__x86_64__)
#error "host_grid switches stacks on x86-64 only"
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#endif

// Note [Orders that TSan sees]
// For TSan each thread of a block is a thread. Threads of a block and the scheduler take turns on
// one OS thread, but no switch orders them: only `Runner::order` and its kin do, for the threads
// that meet. They run in the scheduler, for all threads of a meeting in one step. If each thread
// ordered itself when it leaves a barrier, it would learn from threads that have gone on to the
// next one. State that the scheduler shares with unordered threads is Unordered: TSan sees neither
// a race nor an order in it.

namespace host_grid {

namespace {

template <class T>
class Unordered {
 public:
  operator T() const { return value_.load(std::memory_order_relaxed); }
  void operator=(T value) { value_.store(value, std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{};
};

#if defined(__SANITIZE_THREAD__)
constexpr bool kIsThreadSanitized = true;
constexpr unsigned kNoOrder = 1;  // a switch that orders nothing
#else
constexpr bool kIsThreadSanitized = false;
#endif

// At -O0 and with redzones, frames are several times as large.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStackBytes = 512 << 10;
#else
constexpr std::size_t kStackBytes = 256 << 10;
#endif
constexpr std::size_t kGuardBytes = 4096;  // below a stack: an overflow is a fault

/// A stack and what is parked on it.
struct Fiber {
  void* stack_pointer = nullptr;
  char* memory = nullptr;  // the guard, then the stack
  void* asan = nullptr;
  void* tsan = nullptr;

  char* stack() const { return memory + kGuardBytes; }
};

enum class Wait : std::uint8_t { unstarted, ready, block, warp, done };

/// Unwinds a thread of a block that ends early.
struct Abandoned {};

/// A thread of the block.
struct Lane {
  uint3 index{};            // written before the thread starts
  Unordered<Fiber*> fiber;  // from the thread's start to its end
  Unordered<Wait> wait;
  // The call in which it waits, and the bits that it gives and takes there.
  Unordered<const char*> call, file;
  Unordered<int> line;
  Unordered<unsigned> mask, from;
  Unordered<std::uint64_t> bits, result;

  Fiber& stack() const { return *static_cast<Fiber*>(fiber); }
  bool waits_like(const Lane& other) const {
    return line == other.line && is_same(call, other.call) && is_same(file, other.file);
  }
  static bool is_same(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }
};

constexpr unsigned kVotes = ~0u;                    // Lane::from, if it takes the votes of its mask
constexpr std::uint64_t kNothing = ~0ull;           // taken from a lane that gives nothing
constexpr std::size_t kSharedCapacity = 256 << 10;  // bytes

// Saves the registers that a call keeps, and goes on where `to` was saved.
[[gnu::naked, gnu::noinline]] void switch_stack(void** /*saved*/, void* /*to*/) {
  asm volatile(
      "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n"
      "movq %rsp, (%rdi); movq %rsi, %rsp\n"
      "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret");
}

[[noreturn]] void live_on_fiber();

class Random {
 public:
  explicit Random(std::uint64_t seed) : x_(seed * 0x9E3779B97F4A7C15ull | 1) {}
  unsigned below(std::uint64_t n) {
    x_ ^= x_ << 13, x_ ^= x_ >> 7, x_ ^= x_ << 17;
    return static_cast<unsigned>((x_ >> 32) % n);
  }

 private:
  std::uint64_t x_;
};

/// Runs the grids of one OS thread: the scheduler, and what threads of the block ask of it.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    for (Fiber& fiber : fibers_) free_stack(fiber);
  }

  void run(const Launch& launch, const std::function<void()>& kernel);

  // ---- called by threads of the block

  Lane& me() { return *static_cast<Lane*>(me_); }
  unsigned number() { return static_cast<unsigned>(&me() - lanes_); }
  void wait(Wait what, Site site, unsigned mask, unsigned from, std::uint64_t bits);
  void run_kernel();
  unsigned live_lanes();
  void enter_fiber();

  const uint3& block_index() const { return block_index_; }
  const dim3& block_size() const { return block_; }
  const dim3& grid_size() const { return grid_; }
  void* dynamic_shared() { return shared_.get(); }

 private:
  void place_block(std::uint64_t number);
  void run_block();
  void start_lane(Lane& lane);
  void resume(Lane& lane);
  void to_scheduler();
  bool release_block();
  bool release_warps();
  void release(unsigned first, unsigned mask);
  void abandon_block();
  [[noreturn]] void fail(const std::string& what);
  std::string waiting() const;
  void shuffle_order();

  Fiber& take_fiber(unsigned lane);
  void free_stack(Fiber& fiber);

  // For TSan: see Note [Orders that TSan sees].
  void order_start();
  void order_end();
  void order(unsigned first, unsigned count, unsigned mask);
#if defined(__SANITIZE_THREAD__)
  void as_lane(unsigned lane, void (*call)(void*), void* meeting);
#endif

  dim3 grid_, block_;
  uint3 block_index_{};
  const std::function<void()>* kernel_ = nullptr;
  std::unique_ptr<Random> random_;
  std::size_t shared_bytes_ = 0;
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> shared_{std::aligned_alloc(1024, kSharedCapacity)};

  Lane lanes_[kMaxThreads];
  unsigned order_[kMaxThreads];  // in which the lanes run
  unsigned threads_ = 0, done_ = 0;
  Unordered<Lane*> me_;
  Unordered<bool> is_abandoned_, has_failed_;
  std::exception_ptr failure_;  // written by the first lane that fails

  Fiber fibers_[kMaxThreads];
  unsigned free_[kMaxThreads], frees_ = 0, made_ = 0;  // fibers without a lane; those that exist

  void* scheduler_ = nullptr;  // its saved stack pointer
  void* scheduler_asan_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_bytes_ = 0;
  void* scheduler_tsan_ = nullptr;
};

Runner& runner() {
  static thread_local const auto one = std::make_unique<Runner>();
  return *one;
}

void live_on_fiber() {
  runner().enter_fiber();
  for (;;) runner().run_kernel();
}

// ---- fibers

Fiber& Runner::take_fiber(unsigned lane) {
  // Under TSan a stack belongs to one lane: another one's locals would race with what it left.
  unsigned number = lane;
  if (!kIsThreadSanitized) number = frees_ != 0 ? free_[--frees_] : made_++;
  Fiber& fiber = fibers_[number];
  if (fiber.memory != nullptr) return fiber;
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kGuardBytes, PROT_NONE);
  fiber.memory = static_cast<char*>(memory);
  // switch_stack pops these: six registers, then the address of the first function.
  void** top = reinterpret_cast<void**>(fiber.stack() + kStackBytes) - 2;
  *top = reinterpret_cast<void*>(&live_on_fiber);
  fiber.stack_pointer = top - 6;
#if defined(__SANITIZE_THREAD__)
  if (fiber.tsan == nullptr) fiber.tsan = __tsan_create_fiber(0);
#endif
  return fiber;
}

void Runner::free_stack(Fiber& fiber) {
  if (fiber.memory == nullptr) return;
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack(), kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(fiber.tsan);
#endif
  munmap(fiber.memory, kGuardBytes + kStackBytes);
}

void Runner::enter_fiber() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

void Runner::to_scheduler() {
  Fiber& fiber = me().stack();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fiber.asan, scheduler_stack_, scheduler_stack_bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(scheduler_tsan_, kNoOrder);
#endif
  switch_stack(&fiber.stack_pointer, scheduler_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fiber.asan, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

void Runner::resume(Lane& lane) {
  me_ = &lane;
  Fiber& fiber = lane.stack();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_asan_, fiber.stack(), kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(fiber.tsan, kNoOrder);
#endif
  switch_stack(&scheduler_, fiber.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_asan_, nullptr, nullptr);
#endif
  if (lane.wait != Wait::done) return;
  ++done_;
  if (!kIsThreadSanitized) free_[frees_++] = static_cast<unsigned>(&fiber - fibers_);
}

// ---- what TSan sees

#if defined(__SANITIZE_THREAD__)
// Calls for TSan's thread of `lane`, on the scheduler's stack.
void Runner::as_lane(unsigned lane, void (*call)(void*), void* meeting) {
  Fiber* const fiber = lanes_[lane].fiber;
  void* const scheduler = scheduler_tsan_;
  __tsan_switch_to_fiber(fiber->tsan, kNoOrder);
  call(meeting);
  __tsan_switch_to_fiber(scheduler, kNoOrder);
}
#endif

void Runner::order_start() {
#if defined(__SANITIZE_THREAD__)
  // A fresh address for each meeting: TSan forgets it when it is freed.
  const auto meeting = std::make_unique<char>();
  __tsan_release(meeting.get());
  for (unsigned i = 0; i < threads_; ++i) as_lane(i, &__tsan_acquire, meeting.get());
#endif
}

void Runner::order_end() {
#if defined(__SANITIZE_THREAD__)
  const auto meeting = std::make_unique<char>();
  for (unsigned i = 0; i < threads_; ++i) as_lane(i, &__tsan_release, meeting.get());
  __tsan_acquire(meeting.get());
#endif
}

void Runner::order([[maybe_unused]] unsigned first, [[maybe_unused]] unsigned count,
                   [[maybe_unused]] unsigned mask) {
#if defined(__SANITIZE_THREAD__)
  const auto meeting = std::make_unique<char>();
  for (const auto order : {&__tsan_release, &__tsan_acquire})
    for (unsigned k = 0; k < count; ++k)
      if ((mask >> k % kWarp & 1) != 0) as_lane(first + k, order, meeting.get());
#endif
}

// ---- called by threads of the block

void Runner::run_kernel() {
  try {
    (*kernel_)();
  } catch (const Abandoned&) {
  } catch (...) {
    if (!has_failed_) {
      has_failed_ = true;
      failure_ = std::current_exception();
    }
  }
  me().wait = Wait::done;
  to_scheduler();
}

void Runner::wait(Wait what, Site site, unsigned mask, unsigned from, std::uint64_t bits) {
  Lane& lane = me();
  lane.call = site.call;
  lane.file = site.file;
  lane.line = site.line;
  lane.mask = mask;
  lane.from = from;
  lane.bits = bits;
  lane.wait = what;
  to_scheduler();
  if (is_abandoned_) throw Abandoned{};
}

unsigned Runner::live_lanes() {
  const unsigned first = number() / kWarp * kWarp;
  unsigned live = 0;
  for (unsigned k = 0; k < kWarp && first + k < threads_; ++k)
    live |= static_cast<unsigned>(lanes_[first + k].wait != Wait::done) << k;
  return live;
}

// ---- the scheduler

void Runner::run(const Launch& launch, const std::function<void()>& kernel) {
  const std::uint64_t blocks = std::uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
  const std::uint64_t threads = std::uint64_t(launch.block.x) * launch.block.y * launch.block.z;
  if (blocks == 0 || threads == 0 || threads > kMaxThreads || launch.shared_bytes > kMaxSharedBytes)
    throw std::invalid_argument("a grid needs blocks of 1 to 1024 threads and at most 227 KiB");
  grid_ = launch.grid;
  block_ = launch.block;
  kernel_ = &kernel;
  threads_ = static_cast<unsigned>(threads);
  shared_bytes_ = launch.shared_bytes;
  random_ = launch.seed != 0 ? std::make_unique<Random>(launch.seed) : nullptr;
  std::iota(order_, order_ + threads_, 0u);
#if defined(__SANITIZE_THREAD__)
  scheduler_tsan_ = __tsan_get_current_fiber();
#endif
  // Seeds turn the ring of blocks, and odd ones go through it backwards.
  const std::uint64_t turn = random_ ? random_->below(blocks) : 0;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t number = (i + turn) % blocks;
    place_block(launch.seed & 1 ? blocks - 1 - number : number);
    run_block();
  }
}

void Runner::place_block(std::uint64_t number) {
  block_index_ = {static_cast<unsigned>(number % grid_.x),
                  static_cast<unsigned>(number / grid_.x % grid_.y),
                  static_cast<unsigned>(number / (std::uint64_t(grid_.x) * grid_.y))};
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(shared_.get(), kSharedCapacity);
#endif
  std::memset(shared_.get(), 0xFF, shared_bytes_);
#if defined(__SANITIZE_ADDRESS__)
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(shared_.get()) + shared_bytes_,
                            kSharedCapacity - shared_bytes_);
#endif
}

void Runner::run_block() {
  done_ = 0;
  is_abandoned_ = false;
  has_failed_ = false;
  for (unsigned i = 0; i < threads_; ++i) {
    lanes_[i].index = {i % block_.x, i / block_.x % block_.y, i / (block_.x * block_.y)};
    lanes_[i].wait = Wait::unstarted;
    if (kIsThreadSanitized) lanes_[i].fiber = &take_fiber(i);
  }
  order_start();
  while (done_ < threads_) {
    shuffle_order();
    bool has_run = false;
    for (unsigned k = 0; k < threads_ && !has_failed_; ++k) {
      Lane& lane = lanes_[order_[k]];
      if (lane.wait == Wait::unstarted) start_lane(lane);
      else if (lane.wait == Wait::ready) resume(lane);
      else continue;
      has_run = true;
    }
    if (has_failed_) {
      abandon_block();
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    if (!has_run && !release_block() && !release_warps()) fail(waiting());
  }
  order_end();
}

void Runner::start_lane(Lane& lane) {
  lane.fiber = &take_fiber(static_cast<unsigned>(&lane - lanes_));
  lane.wait = Wait::ready;
  resume(lane);
}

void Runner::shuffle_order() {
  if (random_ == nullptr) return;
  for (unsigned i = threads_; i > 1; --i) std::swap(order_[i - 1], order_[random_->below(i)]);
}

// If all threads that have not ended wait at the block's barrier, wakes them.
bool Runner::release_block() {
  const Lane* first = nullptr;
  std::uint64_t votes = 0;
  for (unsigned i = 0; i < threads_; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.wait == Wait::done) continue;
    if (lane.wait != Wait::block) return false;
    if (first == nullptr) first = &lane;
    if (!lane.waits_like(*first)) fail("the block diverges: " + waiting());
    votes += lane.bits;
  }
  for (unsigned i = 0; i < threads_; ++i) {
    if (lanes_[i].wait != Wait::block) continue;
    lanes_[i].result = votes;
    lanes_[i].wait = Wait::ready;
  }
  // Threads that have ended came earlier, and their past is the block's too.
  order(0, threads_, ~0u);
  return true;
}

// Wakes the lanes of a warp if all lanes of their mask wait with this mask, or have ended.
bool Runner::release_warps() {
  bool has_woken = false;
  for (unsigned i = 0; i < threads_; ++i) {
    if (lanes_[i].wait != Wait::warp) continue;
    const unsigned first = i / kWarp * kWarp, mask = lanes_[i].mask;
    bool is_met = (mask >> (i - first) & 1) != 0;
    for (unsigned k = 0; k < kWarp && first + k < threads_; ++k) {
      const Lane& other = lanes_[first + k];
      if ((mask >> k & 1) == 0 || other.wait == Wait::done) continue;
      is_met &= other.wait == Wait::warp && other.mask == mask;
      if (is_met && !other.waits_like(lanes_[i])) fail("a warp diverges: " + waiting());
    }
    if (is_met) release(first, mask);
    has_woken |= is_met;
  }
  return has_woken;
}

// Gives the lanes of `mask` of the warp that starts at `first` what they wait for.
void Runner::release(unsigned first, unsigned mask) {
  const unsigned lanes = std::min(kWarp, threads_ - first);
  auto gives = [&](unsigned k) {
    return k < lanes && (mask >> k & 1) != 0 && lanes_[first + k].wait != Wait::done;
  };
  std::uint64_t votes = 0;
  for (unsigned k = 0; k < lanes; ++k)
    if (gives(k) && (lanes_[first + k].bits & 1) != 0) votes |= 1ull << k;
  for (unsigned k = 0; k < lanes; ++k) {
    Lane& lane = lanes_[first + k];
    if (!gives(k)) continue;
    const unsigned from = lane.from;
    if (from == kVotes) lane.result = votes;
    else lane.result = gives(from) ? lanes_[first + from].bits : kNothing;
  }
  for (unsigned k = 0; k < lanes; ++k)
    if (gives(k)) lanes_[first + k].wait = Wait::ready;
  order(first, lanes, mask);
}

// Ends the threads of the block that have not ended: each unwinds its stack.
void Runner::abandon_block() {
  is_abandoned_ = true;
  for (unsigned i = 0; i < threads_; ++i) {
    if (lanes_[i].wait == Wait::unstarted) lanes_[i].wait = Wait::done;
    else if (lanes_[i].wait != Wait::done) resume(lanes_[i]);
  }
  order_end();
}

void Runner::fail(const std::string& what) {
  abandon_block();
  throw Deadlock(what);
}

std::string at(const Lane& lane) {
  const char* file = lane.file;
  const char* slash = std::strrchr(file, '/');
  return std::string(lane.call) + " at " + (slash != nullptr ? slash + 1 : file) + ":" +
         std::to_string(lane.line);
}

// Returns a text like: block (1, 0, 0): 16 threads wait in __syncthreads at sums.cu:7, ...
std::string Runner::waiting() const {
  std::vector<std::pair<const Lane*, unsigned>> groups;  // the first of equal lanes, their number
  for (unsigned i = 0; i < threads_; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.wait != Wait::block && lane.wait != Wait::warp) continue;
    auto group = groups.begin();
    while (group != groups.end() && !lane.waits_like(*group->first)) ++group;
    if (group == groups.end()) groups.emplace_back(&lane, 1);
    else ++group->second;
  }
  std::string text = "block (" + std::to_string(block_index_.x) + ", " +
                     std::to_string(block_index_.y) + ", " + std::to_string(block_index_.z) + "): ";
  for (const auto& [first, count] : groups)
    text += std::to_string(count) + " threads wait in " + at(*first) + ", the first is thread " +
            std::to_string(first - lanes_) + "; ";
  return text + std::to_string(done_) + " have ended";
}

}  // namespace

void run(const Launch& launch, const std::function<void()>& kernel) {
  runner().run(launch, kernel);
}

void* dynamic_shared() { return runner().dynamic_shared(); }
const uint3& thread_index() { return runner().me().index; }
const uint3& block_index() { return runner().block_index(); }
const dim3& block_size() { return runner().block_size(); }
const dim3& grid_size() { return runner().grid_size(); }
unsigned lane() { return runner().number() % kWarp; }
unsigned live_lanes() { return runner().live_lanes(); }

void wait_for_block(Site site) { count_votes(false, site); }

unsigned count_votes(bool vote, Site site) {
  Runner& r = runner();
  r.wait(Wait::block, site, 0, 0, vote);
  return static_cast<unsigned>(r.me().result);
}

unsigned ballot(unsigned mask, bool vote, Site site) {
  Runner& r = runner();
  r.wait(Wait::warp, site, mask, kVotes, vote);
  return static_cast<unsigned>(r.me().result);
}

std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned from, Site site) {
  Runner& r = runner();
  r.wait(Wait::warp, site, mask, from, bits);
  return r.me().result;
}

void trap(Site site) {
  throw Trap(std::string(site.call) + " at " + site.file + ":" + std::to_string(site.line));
}

}  // namespace host_grid
