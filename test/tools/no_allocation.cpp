// Counts what messages and parallel loops allocate once they are warm: nothing.
//
//   no_allocation     exit status 0, or 1 and the counts
//
// A program of its own because it replaces operator new.
#include <troupe/actors/lean_actor.hpp>
#include <troupe/actors/scheduler_module.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <new>

namespace {

std::atomic<long> allocations{0};

void* count_and_allocate(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return count_and_allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return count_and_allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

using namespace troupe;

class Runner : public LeanActor<long> {
 public:
  Runner(caf::actor_config& config, std::latch*& finished) : LeanActor(config), finished_(finished) {}
  LeanRef<Runner> next;

  void receive(long& left) override {
    if (left == 0)
      finished_->count_down();
    else
      next->send(left - 1);
  }

 private:
  std::latch*& finished_;
};

/// Allocations in `rounds` of work after as many to warm up.
template <class Work>
long allocated_by(Work work) {
  work();
  const long before = allocations.load();
  work();
  return allocations.load() - before;
}

}  // namespace

int main() {
  bool clean = true;
  for (const int workers : {1, 2}) {
    WorkerPool pool(workers);
    caf::actor_system_config config;
    SchedulerModule::load(config, pool);
    caf::actor_system system(config);
    std::latch* finished = nullptr;
    auto one = lean_spawn<Runner>(system, finished), two = lean_spawn<Runner>(system, finished);
    one->next = two;
    two->next = one;
    const long by_messages = allocated_by([&] {
      std::latch burst(1'000);  // from outside the pool: fills the shared depot, from which this thread then draws
      finished = &burst;
      for (int i = 0; i < 1'000; ++i) one->send(0);
      burst.wait();
      std::latch tokens(2);
      finished = &tokens;
      one->send(200'000);
      two->send(200'000);
      tokens.wait();
    });
    std::atomic<int> blocks{0};
    const long by_loops = allocated_by([&] {
      for (int i = 0; i < 20'000; ++i) pool.parallel_for(4, [&](int) { blocks.fetch_add(1, std::memory_order_relaxed); });
    });
    one->next = {};
    two->next = {};
    std::printf("%d workers: %ld allocations by 402,000 messages, %ld by 20,000 loops\n", workers, by_messages, by_loops);
    clean = clean && by_messages == 0 && by_loops == 0;
  }
  return clean ? 0 : 1;
}
