// The pool keeps every job, wakes no more workers than needed, and steps reproducibly without
// threads. Real threads and no timing: a test that would hang if a wake-up were lost is the
// assertion.
#include <troupe/devices/threads/worker_pool.hpp>

#include <pthread.h>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <troupe/devices/base/error.hpp>

namespace {

using namespace troupe;

/// A job that owns its closure until it has run.
template <class F>
Job job_of(F f) {
  return {[](void* object, Worker& worker) {
            std::unique_ptr<F> own(static_cast<F*>(object));
            if constexpr (std::is_invocable_v<F, Worker&>) (*own)(worker);
            else (*own)();
          },
          new F(std::move(f))};
}

/// How often a worker that sleeps is woken while the other, in a job of which it has submitted so
/// many more, calls `then` and waits for the first.
template <class F>
std::uint64_t wakes_beside_a_busy_owner(int jobs, F then) {
  WorkerPool pool(2);
  std::uint64_t wakes = 0;
  for (int round = 0; round < 50; ++round) {
    std::latch first(1), done(jobs);
    pool.submit(job_of([&](Worker& worker) {
      const auto before = pool.counters();
      // the other one sleeps
      while (pool.counters().parks == before.parks) std::this_thread::yield();
      worker.submit(job_of([&] { first.count_down(); }));
      for (int job = 1; job < jobs; ++job) worker.submit(job_of([&] { done.count_down(); }));
      then(worker);
      first.wait();
      wakes += pool.counters().wakes - before.wakes;
      done.count_down();
    }));
    done.wait();
  }
  return wakes;
}

/// A tree of jobs: each submits `fan` more until `depth` is used up; counts the jobs that ran.
struct Tree {
  WorkerPool& pool;
  std::atomic<int> left;
  std::atomic<int> ran{0};
  std::latch done{1};

  Tree(WorkerPool& where, int jobs) : pool(where), left(jobs - 1) {}
  void grow() {
    ran.fetch_add(1);
    for (int i = 0; i < 3; ++i) {
      if (left.fetch_sub(1) <= 0) break;
      if (i == 2) pool.submit_elsewhere(job_of([this] { grow(); }));
      else pool.submit(job_of([this] { grow(); }));
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(worker_pool)

BOOST_AUTO_TEST_CASE(a_pool_needs_a_worker) {
  BOOST_CHECK_THROW(WorkerPool(0), std::invalid_argument);
}

// With stacks of which the address space holds one at most.
BOOST_AUTO_TEST_CASE(a_pool_without_threads_reports_it) {
  pthread_attr_t before, huge;
  BOOST_REQUIRE(pthread_getattr_default_np(&before) == 0);
  BOOST_REQUIRE(pthread_attr_init(&huge) == 0);
  BOOST_REQUIRE(pthread_attr_setstacksize(&huge, std::size_t{1} << 46) == 0);
  BOOST_REQUIRE(pthread_setattr_default_np(&huge) == 0);
  BOOST_CHECK_EXCEPTION(WorkerPool(4), Error, [](const Error& e) {
    return e.code() == Code::resource_exhausted &&
           std::string(e.what()).find(" of 4 workers could be started") != std::string::npos;
  });
  BOOST_TEST(pthread_setattr_default_np(&before) == 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
  std::atomic<int> ran{0};
  {
    WorkerPool pool(2);
    for (int i = 0; i < 10; ++i) pool.submit(job_of([&] { ran.fetch_add(1); }));
  }
  BOOST_TEST(ran.load() == 10);
}

BOOST_AUTO_TEST_CASE(pending_jobs_run_before_the_threads_join) {
  for (const int workers : {1, 2, 4}) {
    std::atomic<int> ran{0};
    {
      WorkerPool pool(workers);
      for (int i = 0; i < 5000; ++i) pool.submit(job_of([&] { ran.fetch_add(1); }));
    }
    BOOST_TEST(ran.load() == 5000);
  }
}

BOOST_AUTO_TEST_CASE(jobs_of_jobs_run_before_the_threads_join) {
  for (const int workers : {1, 2, 4}) {
    int ran = 0;
    Tree* tree = nullptr;
    std::unique_ptr<Tree> own;
    {
      WorkerPool pool(workers);
      own = std::make_unique<Tree>(pool, 20000);
      tree = own.get();
      pool.submit(job_of([tree] { tree->grow(); }));
    }
    ran = tree->ran.load();
    BOOST_TEST(ran == 20000);
  }
}

BOOST_AUTO_TEST_CASE(a_full_ring_overflows_without_losing_jobs) {
  std::atomic<int> ran{0};
  WorkerPool pool(1);
  std::latch done(1);
  constexpr int jobs = 3 * RunRing::kCapacity;
  pool.submit(job_of([&](Worker& worker) {
    for (int i = 0; i < jobs; ++i)
      worker.submit(job_of([&] {
        if (ran.fetch_add(1) + 1 == jobs) done.count_down();
      }));
    BOOST_CHECK_GT(pool.pending(), 0u);  // the limit was reached
  }));
  done.wait();
  BOOST_TEST(ran.load() == jobs);
}

BOOST_AUTO_TEST_CASE(a_worker_runs_its_own_jobs_in_order) {
  std::vector<int> order;
  std::latch done(1);
  WorkerPool pool(1);
  pool.submit(job_of([&](Worker& worker) {
    for (int i = 0; i < 10; ++i) worker.submit(job_of([&, i] { order.push_back(i); }));
    worker.submit(job_of([&] { done.count_down(); }));
  }));
  done.wait();
  std::vector<int> expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  BOOST_TEST(order == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(current_names_the_worker) {
  BOOST_CHECK(Worker::current() == nullptr);
  WorkerPool pool(2);
  std::latch done(1);
  pool.submit(job_of([&](Worker& worker) {
    BOOST_CHECK(Worker::current() == &worker);
    BOOST_CHECK(&worker.pool() == &pool);
    BOOST_CHECK(worker.index() >= 0 && worker.index() < pool.size());
    done.count_down();
  }));
  done.wait();
  BOOST_CHECK(Worker::current() == nullptr);
}

// Each of these four hangs if the second worker is not brought in: the first never returns without
// it.

BOOST_AUTO_TEST_CASE(work_submitted_elsewhere_starts_beside_a_busy_worker) {
  WorkerPool pool(2);
  for (int round = 0; round < 200; ++round) {
    std::latch second(1), done(1);
    pool.submit(job_of([&] {
      pool.submit_elsewhere(job_of([&] { second.count_down(); }));
      second.wait();
      done.count_down();
    }));
    done.wait();
  }
}

BOOST_AUTO_TEST_CASE(two_local_jobs_wake_a_sleeper_beside_a_busy_owner) {
  const std::uint64_t wakes = wakes_beside_a_busy_owner(2, [](Worker&) {});
  BOOST_CHECK_GT(wakes, 0u);  // it was woken, not only found the jobs at its next watch
}

BOOST_AUTO_TEST_CASE(a_lone_local_job_is_taken_from_an_owner_that_is_stuck) {
  WorkerPool pool(3);
  for (int round = 0; round < 50; ++round) {
    std::latch second(1), done(1);
    pool.submit(job_of([&](Worker& worker) {
      worker.submit(job_of([&] { second.count_down(); }));
      second.wait();
      done.count_down();
    }));
    done.wait();
  }
  BOOST_CHECK_GT(pool.counters().steals, 0u);
}

BOOST_AUTO_TEST_CASE(a_job_behind_a_long_one_wakes_a_sleeper) {
  const std::uint64_t wakes = wakes_beside_a_busy_owner(1, [](Worker& worker) { worker.share(); });
  BOOST_CHECK_GT(wakes, 0u);  // it was woken, not only found the job at its next watch
}

// Each round ends when the lone job has run elsewhere. The test ends when an offer was taken, so it
// hangs without offers.
BOOST_AUTO_TEST_CASE(offer_gives_a_lone_job_to_a_searcher) {
  WorkerPool pool(2);
  while (pool.counters().offers == 0) {
    std::latch second(1), done(1);
    pool.submit(job_of([&](Worker& worker) {
      worker.submit(job_of([&] { second.count_down(); }));
      while (!second.try_wait()) worker.offer();
      done.count_down();
    }));
    done.wait();
  }
  BOOST_CHECK_LE(pool.counters().offers, pool.counters().jobs);
}

// Ends when a worker that slept was woken and has run.
BOOST_AUTO_TEST_CASE(counters_count_searches_and_sleep) {
  WorkerPool pool(2);
  while (pool.counters().wake_ns == 0) {
    const auto parks = pool.counters().parks;
    std::latch done(1);
    pool.submit(job_of([&] { done.count_down(); }));
    done.wait();
    while (pool.counters().parks == parks) std::this_thread::yield();
  }
  const PoolCounters seen = pool.counters();
  BOOST_CHECK_GT(seen.searches, seen.finds);  // each sleep follows a search in vain
  BOOST_CHECK_GT(seen.search_ns, 0u);
  BOOST_CHECK_GT(seen.sleep_ns, 0u);
  BOOST_CHECK_GE(seen.wakes, 1u);
}

// Looks in vain become rarer, and what is stuck later is found all the same.
BOOST_AUTO_TEST_CASE(a_watcher_without_work_looks_less_often) {
  WorkerPool pool(2);
  std::latch second(1), done(1);
  std::uint64_t looks = 0;
  std::chrono::duration<double, std::milli> took{};
  pool.submit(job_of([&](Worker& worker) {
    const auto before = pool.counters().parks;
    const auto began = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(400) ||
           pool.counters().parks == before) {}
    looks = pool.counters().parks - before;
    // longer, where this thread has been put aside
    took = std::chrono::steady_clock::now() - began;
    worker.submit(job_of([&] { second.count_down(); }));
    second.wait();
    done.count_down();
  }));
  done.wait();
  // one each millisecond would be 1; a slow machine makes fewer
  BOOST_CHECK_LE(static_cast<double>(looks), 0.15 * took.count());
}

BOOST_AUTO_TEST_CASE(every_worker_is_brought_in) {
  WorkerPool pool(4);
  for (int round = 0; round < 100; ++round) {
    std::latch together(4), done(4);
    for (int i = 0; i < 4; ++i)
      pool.submit(job_of([&] {
        together.arrive_and_wait();
        done.count_down();
      }));
    done.wait();
  }
}

BOOST_AUTO_TEST_CASE(no_wake_up_is_lost_around_parking) {
  // One job at a time from outside, at moments spread over the end of a search (30 µs) and the
  // start of the sleep that follows. Time only aims here; a lost wake-up hangs.
  std::mt19937 random(1);
  for (const int workers : {1, 2}) {
    WorkerPool pool(workers);
    for (int round = 0; round < 1500; ++round) {
      std::latch done(1);
      pool.submit(job_of([&] { done.count_down(); }));
      done.wait();
      const auto until =
          std::chrono::steady_clock::now() + std::chrono::nanoseconds(25'000 + random() % 10'000);
      while (std::chrono::steady_clock::now() < until) {}
    }
    BOOST_CHECK_GT(pool.counters().wakes, 0u);  // some found it asleep
  }
}

BOOST_AUTO_TEST_CASE(an_idle_pool_parks_and_is_woken) {
  // After a pause longer than a worker searches, the worker is likely to be asleep when the job
  // comes: repeated until one was. If none ever is, the test times out.
  WorkerPool pool(2);
  do {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    std::latch done(1);
    pool.submit(job_of([&] { done.count_down(); }));
    done.wait();
  } while (pool.counters().wakes == 0);
  BOOST_CHECK_GE(pool.counters().wakes, 1u);
}

BOOST_AUTO_TEST_CASE(submitters_and_thieves_at_once) {
  WorkerPool pool(4);
  constexpr int threads = 3, jobs = 4000;
  std::atomic<int> ran{0};
  std::vector<std::thread> submitters;
  std::latch done(threads * jobs);
  for (int t = 0; t < threads; ++t)
    submitters.emplace_back([&] {
      for (int i = 0; i < jobs / 2; ++i)
        pool.submit(job_of([&](Worker& worker) {
          worker.submit(job_of([&] {
            ran.fetch_add(1, std::memory_order_relaxed);
            done.count_down();
          }));
          ran.fetch_add(1, std::memory_order_relaxed);
          done.count_down();
        }));
    });
  for (auto& submitter : submitters) submitter.join();
  done.wait();
  BOOST_TEST(ran.load() == threads * jobs);
}

BOOST_AUTO_TEST_CASE(
    submitted_job_sees_the_writes_of_its_submitter) {  // a plain int: TSan's business
  WorkerPool pool(4);
  int value = 0;
  std::latch done(1);
  std::function<void()> step = [&] {
    if (++value == 20000) return done.count_down();
    value % 3 == 0 ? pool.submit_elsewhere(job_of(step)) : pool.submit(job_of(step));
  };
  pool.submit(job_of(step));
  done.wait();
  BOOST_TEST(value == 20000);
}

BOOST_AUTO_TEST_CASE(slots_are_found_again) {
  WorkerPool pool(1);
  int user = 0;
  const int slot = pool.attach(&user);
  BOOST_CHECK(pool.attached(slot) == &user);
  pool.detach(slot);
  BOOST_TEST(pool.attach(&user) == slot);
  for (int i = 1; i < WorkerPool::kSlots; ++i) pool.attach(&user);
  BOOST_CHECK_THROW(pool.attach(&user), std::length_error);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(parallel_for)

BOOST_AUTO_TEST_CASE(each_block_runs_once) {
  WorkerPool pool(3);
  for (const int blocks : {0, 1, 2, 3, 7, 64, 1000}) {
    // plain ints: blocks must not share any
    std::vector<int> hits(static_cast<std::size_t>(blocks));
    pool.parallel_for(blocks, [&](int block) { ++hits[static_cast<std::size_t>(block)]; });
    BOOST_TEST(std::count(hits.begin(), hits.end(), 1) == blocks);
  }
}

BOOST_AUTO_TEST_CASE(loops_in_quick_succession_meet_late_invitations) {
  WorkerPool pool(4);
  for (int round = 0; round < 5000; ++round) {
    std::array<int, 4> local{};  // gone with this iteration: a late helper must not touch it
    pool.parallel_for(4, [&](int block) { local[static_cast<std::size_t>(block)] = round; });
    BOOST_REQUIRE(std::all_of(local.begin(), local.end(), [&](int v) { return v == round; }));
  }
}

BOOST_AUTO_TEST_CASE(from_a_job_and_nested) {
  WorkerPool pool(3);
  std::atomic<int> inner{0};
  std::latch done(1);
  pool.submit(job_of([&] {
    pool.parallel_for(5, [&](int) { pool.parallel_for(7, [&](int) { inner.fetch_add(1); }); });
    done.count_down();
  }));
  done.wait();
  BOOST_TEST(inner.load() == 35);
}

BOOST_AUTO_TEST_CASE(several_callers_at_once) {
  WorkerPool pool(2);
  std::atomic<int> blocks{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        pool.parallel_for(3, [&](int) { blocks.fetch_add(1, std::memory_order_relaxed); });
    });
  for (auto& caller : callers) caller.join();
  BOOST_TEST(blocks.load() == 3 * 500 * 3);
}

BOOST_AUTO_TEST_CASE(another_worker_takes_part) {
  WorkerPool pool(2);
  for (int round = 0; round < 100; ++round) {
    std::latch both(2);
    pool.parallel_for(2, [&](int) { both.arrive_and_wait(); });  // hangs with one thread
  }
}

BOOST_AUTO_TEST_CASE(invitations_are_bounded_while_the_others_are_busy) {
  WorkerPool pool(2);
  std::latch busy(1), release(1), done(1);
  pool.submit(job_of([&] {
    busy.count_down();
    release.wait();
    done.count_down();
  }));
  busy.wait();
  std::latch looped(1);
  std::size_t pending = 0;
  pool.submit(job_of([&] {
    for (int i = 0; i < 1000; ++i) pool.parallel_for(4, [](int) {});
    pending = pool.pending();
    looped.count_down();
  }));
  looped.wait();
  BOOST_TEST(pending == 1u);
  release.count_down();
  done.wait();
}

BOOST_AUTO_TEST_CASE(the_first_exception_reaches_the_caller) {
  WorkerPool pool(3);
  for (int round = 0; round < 300; ++round) {
    BOOST_CHECK_THROW(pool.parallel_for(8,
                                        [](int block) {
                                          if (block % 2 == 1) throw std::runtime_error("odd");
                                        }),
                      std::runtime_error);
  }
  int sum = 0;
  pool.parallel_for(1, [&](int) { sum = 1; });  // and the pool is usable after
  BOOST_TEST(sum == 1);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(stepped_pool)

namespace {

std::vector<int> order_of(std::uint64_t seed) {
  WorkerPool pool(Deterministic{seed});
  std::vector<int> order;
  for (int i = 0; i < 20; ++i)
    pool.submit(job_of([&, i](Worker& worker) {
      order.push_back(i);
      if (i < 10) worker.submit(job_of([&, i] { order.push_back(100 + i); }));
      if (i == 15) pool.parallel_for(6, [&](int block) { order.push_back(200 + block); });
    }));
  pool.run_all();
  return order;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_seed_is_an_order) {
  BOOST_TEST(order_of(1) == order_of(1), boost::test_tools::per_element());
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto order = order_of(seed);
    BOOST_TEST(order.size() == 36u);
    orders.insert(std::move(order));
  }
  BOOST_CHECK_GT(orders.size(), 10u);
}

BOOST_AUTO_TEST_CASE(one_step_runs_one_job) {
  WorkerPool pool(Deterministic{3});
  int ran = 0;
  pool.submit(job_of([&](Worker& worker) {
    ++ran;
    BOOST_CHECK(Worker::current() == &worker);
    pool.submit_elsewhere(job_of([&] { ++ran; }));
  }));
  BOOST_TEST(ran == 0);
  BOOST_TEST(pool.pending() == 1u);
  BOOST_CHECK(pool.step());
  BOOST_TEST(ran == 1);
  BOOST_CHECK(pool.step());
  BOOST_TEST(ran == 2);
  BOOST_CHECK(!pool.step());
  BOOST_CHECK(Worker::current() == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()
