// Two heavy jobs on two workers against the same two one after the other: straight after other
// work, and after the pool has slept for 200 ms. The peer is the sequential run, the ratio the
// speed-up; then oneTBB's parallel_invoke.
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/bench/bench.hpp>

#include <atomic>
#include <cstdint>
#include <latch>
#include <thread>

#ifdef TROUPE_WITH_TBB
#include <tbb/global_control.h>
#include <tbb/parallel_invoke.h>
#include <tbb/version.h>
#endif

namespace {

using namespace troupe;
using namespace std::chrono_literals;
constexpr int kRepetitions = 15;

/// About a millisecond of arithmetic that stays within one core.
std::uint64_t compute(std::uint64_t state) {
  for (int i = 0; i < 1'200'000; ++i) state = state * 6364136223846793005u + 1442695040888963407u;
  return state;
}

volatile std::uint64_t sink;

double sequential() {
  const double start = bench::now_ns();
  sink = compute(1);
  sink = compute(2);
  return bench::now_ns() - start;
}

/// As an actor does it: a job of the pool hands two heavy jobs to whichever workers are free. Timed
/// inside the jobs, while the thread that asks sleeps and leaves the cores to the pool.
struct Fork {
  std::atomic<int> left{2};
  std::latch finished{1};
  double start = 0, end = 0;

  static void run(void* object, Worker& worker) {
    static_cast<Fork*>(object)->start = bench::now_ns();
    worker.pool().submit_elsewhere({&run_heavy, object});
    worker.pool().submit_elsewhere({&run_heavy, object});
  }
  static void run_heavy(void* object, Worker&) {
    auto& fork = *static_cast<Fork*>(object);
    sink = compute(3);
    if (fork.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    fork.end = bench::now_ns();
    fork.finished.count_down();
  }
};

double parallel(WorkerPool& pool) {
  Fork fork;
  pool.submit({&Fork::run, &fork});
  fork.finished.wait();
  return fork.end - fork.start;
}

bench::Comparison measure(const char* name, WorkerPool& pool, std::chrono::milliseconds idle) {
  bench::Comparison c{.name = name,
                      .unit = "ns",
                      .peer = "the same two jobs in sequence",
                      .peer_version = "same build",
                      .budget = 1.8,
                      .threads = 2,
                      .speed_up = true,
                      .ours = {},
                      .theirs = {}};
  for (int i = 0; i < kRepetitions; ++i) {
    c.theirs.push_back(sequential());
    if (idle == 0ms) parallel(pool);  // warms the pool
    std::this_thread::sleep_for(idle);
    c.ours.push_back(parallel(pool));
  }
  return c;
}

#ifdef TROUPE_WITH_TBB
constexpr const char *kTbb = "oneTBB parallel_invoke", *kTbbVersion = TBB_VERSION_STRING;

double by_tbb() {
  const double start = bench::now_ns();
  const auto heavy = [] { sink = compute(3); };
  tbb::parallel_invoke(heavy, heavy);
  return bench::now_ns() - start;
}
#else
constexpr const char *kTbb = "oneTBB parallel_invoke (not installed)", *kTbbVersion = "";
#endif

bench::Comparison against_tbb(const char* name, WorkerPool& pool, std::chrono::milliseconds idle) {
  bench::Comparison c{
      .name = name, .unit = "ns", .peer = kTbb, .peer_version = kTbbVersion, .threads = 2};
#ifdef TROUPE_WITH_TBB
  const tbb::global_control two(tbb::global_control::max_allowed_parallelism, 2);
#endif
  for (int i = 0; i < kRepetitions; ++i) {
    if (idle == 0ms) parallel(pool);
    std::this_thread::sleep_for(idle);
    c.ours.push_back(parallel(pool));
#ifdef TROUPE_WITH_TBB
    if (idle == 0ms) by_tbb();
    std::this_thread::sleep_for(idle);
    c.theirs.push_back(by_tbb());
#endif
  }
  return c;
}

}  // namespace

int main() {
  WorkerPool pool(2);
  measure("two_heavy_jobs_hot", pool, 0ms).print();
  measure("two_heavy_jobs_after_idle", pool, 200ms).print();
  against_tbb("two_heavy_jobs_hot_tbb", pool, 0ms).print();
  against_tbb("two_heavy_jobs_after_idle_tbb", pool, 200ms).print();
}
