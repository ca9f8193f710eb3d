// A caller in the place of an idle worker: jobs run once, on no more threads at a time than the
// pool has workers, and what it leaves behind is run by the worker whose slot it took.
#include <troupe/devices/threads/worker_pool.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(caller_worker_test)

namespace {

using namespace troupe;

/// A job that owns its closure until it has run.
template <class F>
Job job_of(F f) {
  return {[](void* object, Worker&) { (*std::unique_ptr<F>(static_cast<F*>(object)))(); },
          new F(std::move(f))};
}

/// Runs `f` as a caller worker; tries again until a worker is idle.
template <class F>
void as_caller_worker(WorkerPool& pool, F f) {
  for (;;) {
    CallerWorker caller_worker(pool);
    if (caller_worker) return f(caller_worker);
    std::this_thread::yield();
  }
}

}  // namespace

// One worker only: a second may take a job off a caller that the kernel has put aside.
BOOST_AUTO_TEST_CASE(a_caller_runs_its_jobs_itself) {
  WorkerPool pool(1);
  for (int round = 0; round < 200; ++round)
    as_caller_worker(pool, [&](CallerWorker& self) {
      BOOST_REQUIRE(Worker::current() != nullptr);
      BOOST_TEST(&Worker::current()->pool() == &pool);
      std::thread::id ran_on;
      bool done = false;
      pool.submit(job_of([&] {
        ran_on = std::this_thread::get_id();
        done = true;
      }));
      self.run_until([&] { return done; });
      BOOST_TEST(done);
      BOOST_TEST((ran_on == std::this_thread::get_id()));
    });
  BOOST_TEST(Worker::current() == nullptr);
  BOOST_TEST(pool.counters().jobs == 200u);
}

BOOST_AUTO_TEST_CASE(only_where_a_worker_is_idle) {
  WorkerPool pool(1);
  std::latch begun(1), release(1), ended(1);
  pool.submit(job_of([&] {
    begun.count_down();
    release.wait();
    ended.count_down();
  }));
  begun.wait();
  {
    CallerWorker refused(pool);
    BOOST_TEST(!refused);
    BOOST_TEST(Worker::current() == nullptr);
  }
  release.count_down();
  ended.wait();
}

BOOST_AUTO_TEST_CASE(not_on_a_worker_nor_twice_nor_for_a_stepped_pool) {
  WorkerPool pool(2), other(1), stepped(Deterministic{.seed = 1});
  as_caller_worker(pool, [&](CallerWorker&) {
    BOOST_TEST(!CallerWorker(pool));
    BOOST_TEST(!CallerWorker(other));
  });
  std::latch done(1);
  bool on_worker = true;
  pool.submit(job_of([&] {
    on_worker = static_cast<bool>(CallerWorker(pool));
    done.count_down();
  }));
  done.wait();
  BOOST_TEST(!on_worker);
  BOOST_TEST(!CallerWorker(stepped));
}

BOOST_AUTO_TEST_CASE(a_stepped_pool_runs_it_by_its_seed) {
  std::vector<std::vector<bool>> drawn;
  for (const std::uint64_t seed : {1, 1, 2}) {
    WorkerPool pool(Deterministic{.seed = seed});
    std::vector<bool>& is_here = drawn.emplace_back();
    std::size_t ran = 0;
    for (int i = 0; i < 32; ++i) {
      CallerWorker self(pool, CallerWorker::Stepped::drawn);
      is_here.push_back(static_cast<bool>(self));
      BOOST_TEST((Worker::current() != nullptr) == static_cast<bool>(self));
      const Job job = job_of([&] { ++ran; });
      pool.submit(job);
      if (self) self.run_some(1);
    }
    BOOST_TEST(Worker::current() == nullptr);
    BOOST_TEST(ran == 0u);  // each job is a step of the pool's
    BOOST_TEST(pool.run_all() == 32u);
    BOOST_TEST(ran == 32u);
    BOOST_TEST((std::count(is_here.begin(), is_here.end(), true) > 0 &&
                std::count(is_here.begin(), is_here.end(), false) > 0));
    // not within a step
    pool.submit(job_of([&] { BOOST_TEST(!CallerWorker(pool, CallerWorker::Stepped::drawn)); }));
    pool.run_all();
  }
  BOOST_TEST((drawn[0] == drawn[1]));
  BOOST_TEST((drawn[0] != drawn[2]));
}

BOOST_AUTO_TEST_CASE(pool_runs_the_jobs_that_a_caller_worker_leaves) {
  for (const int workers : {1, 2}) {
    WorkerPool pool(workers);
    for (int round = 0; round < 500; ++round) {
      const int left = round % 4;
      std::latch ran(left);
      as_caller_worker(pool, [&](CallerWorker&) {
        for (int i = 0; i < left; ++i) pool.submit(job_of([&] { ran.count_down(); }));
      });
      ran.wait();
    }
  }
}

BOOST_AUTO_TEST_CASE(it_gives_up_where_nothing_comes) {
  WorkerPool pool(2);
  as_caller_worker(pool, [&](CallerWorker& self) {
    self.run_until([] { return false; });  // returns: there is nothing to do
    BOOST_TEST(pool.counters().jobs == 0u);
  });
}

BOOST_AUTO_TEST_CASE(a_block_of_a_kernel_may_run_anywhere) {
  WorkerPool pool(2);
  for (int round = 0; round < 200; ++round)
    as_caller_worker(pool, [&](CallerWorker& self) {
      std::atomic<int> sum{0};
      std::latch done(1);
      pool.submit(job_of([&] {
        pool.parallel_for(16, [&](int block) { sum.fetch_add(block); });
        done.count_down();
      }));
      self.run_until([&] { return done.try_wait(); });
      done.wait();
      BOOST_TEST(sum.load() == 120);
    });
}

// One caller is kept in its search while another gives its slot back. The latter thread sleeps on,
// until the first goes to work on something behind which a lone job waits: without another it would
// wait for ever.
BOOST_AUTO_TEST_CASE(searcher_wakes_the_freed_slot_only_when_it_starts_to_work) {
  std::latch searches(1), given_back(1), fetched(1);
  WorkerPool pool(2);
  std::thread searcher([&] {
    as_caller_worker(pool, [&](CallerWorker& self) {
      int asked = 0;
      self.run_until([&] {
        if (++asked < 3) return false;  // before its next job, and before it searches
        searches.count_down();
        given_back.wait();
        pool.submit(job_of([&] { fetched.count_down(); }));
        return true;
      });
      fetched.wait();
    });
  });
  searches.wait();
  const auto before = pool.counters().wakes;
  as_caller_worker(pool, [](CallerWorker&) {});
  BOOST_TEST(pool.counters().wakes == before);
  given_back.count_down();
  searcher.join();
}

// A worker that searches goes to work, on a job that waits for a lone one behind it, just when a
// caller gives its slot back: another worker must be left to fetch that one. Time only aims here;
// a lost wake-up hangs.
BOOST_AUTO_TEST_CASE(a_worker_watches_after_a_place_is_given_back) {
  for (const int workers : {2, 3}) {
    WorkerPool pool(workers);
    std::vector<std::thread> callers;
    for (int c = 1; c < workers; ++c)  // fewer than workers: one is left to fetch
      callers.emplace_back([&pool, c] {
        std::mt19937 random(static_cast<unsigned>(c));
        for (int round = 0; round < 500; ++round) {
          std::latch second(1), done(1);
          as_caller_worker(pool, [&](CallerWorker&) {
            pool.submit_elsewhere(job_of([&] {
              pool.submit(job_of([&] { second.count_down(); }));
              second.wait();
              done.count_down();
            }));
            const auto until =
                std::chrono::steady_clock::now() + std::chrono::nanoseconds(random() % 2'000);
            while (std::chrono::steady_clock::now() < until) {}
          });
          done.wait();
        }
      });
    for (std::thread& t : callers) t.join();
  }
}

// Callers and submitters from outside, all at once: each job once, and never more at a time than
// workers.
BOOST_AUTO_TEST_CASE(many_callers) {
  constexpr int kCallers = 4, kRounds = 1500;
  for (const int workers : {1, 2, 3}) {
    std::atomic<int> ran{0}, at_once{0}, most{0}, stood_in{0};
    {
      WorkerPool pool(workers);
      auto job = [&] {
        const int now = at_once.fetch_add(1) + 1;
        for (int seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {}
        at_once.fetch_sub(1);
        ran.fetch_add(1);
      };
      std::vector<std::thread> callers;
      for (int c = 0; c < kCallers; ++c)
        callers.emplace_back([&, c] {
          for (int round = 0; round < kRounds; ++round) {
            std::atomic<bool> done{false};
            {
              std::optional<CallerWorker> self;
              if (c > 0) self.emplace(pool);
              if (self && *self) stood_in.fetch_add(1);
              pool.submit(job_of([&] {
                job();
                for (int i = 0; i < round % 3; ++i) pool.submit(job_of(job));
                if (round % 5 == 0) pool.submit_elsewhere(job_of(job));
                pool.submit(job_of([&] {
                  job();
                  done.store(true);
                  done.notify_one();
                }));
              }));
              if (self && *self) self->run_until([&] { return done.load(); });
            }
            done.wait(false);
          }
        });
      for (std::thread& t : callers) t.join();
    }
    int expected = 0;
    for (int round = 0; round < kRounds; ++round)
      expected += kCallers * (2 + round % 3 + (round % 5 == 0 ? 1 : 0));
    BOOST_TEST(ran.load() == expected);
    BOOST_TEST(most.load() <= workers);
    BOOST_TEST(stood_in.load() > 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()
