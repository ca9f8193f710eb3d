// Deadlines: in order, not those that were removed, also from within, and none after the end.
#include <troupe/actors/runtime/deadlines.hpp>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

using namespace troupe;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(deadlines_test)

BOOST_AUTO_TEST_CASE(they_expire_in_order_and_those_removed_do_not) {
  const auto now = Deadlines::Clock::now();
  // by its thread only; read when that has said that it is through
  std::vector<std::uint64_t> expired;
  std::promise<void> first, gate, through;
  Deadlines deadlines([&](std::uint64_t id) {
    expired.push_back(id);
    if (id == 1) first.set_value(), gate.get_future().wait();
    if (id == 5) through.set_value();
  });
  deadlines.add(now + 1h, 9);  // the thread sleeps, or is about to, until then
  deadlines.add(now, 1);
  first.get_future().wait();
  // It is within a call: nothing expires meanwhile, so these are ordered by their time alone.
  deadlines.add(now - 1ms, 5);
  deadlines.add(now - 3ms, 3);
  deadlines.add(now - 2ms, 4);
  deadlines.add(now - 4ms, 2);
  deadlines.remove(now - 3ms, 3);
  gate.set_value();
  through.get_future().wait();
  BOOST_TEST(expired == (std::vector<std::uint64_t>{1, 2, 4, 5}));
}

BOOST_AUTO_TEST_CASE(one_may_be_set_again_from_within) {
  std::promise<int> done;
  Deadlines* self = nullptr;
  int calls = 0;
  Deadlines deadlines([&](std::uint64_t id) {
    if (++calls < 3) self->add(Deadlines::Clock::now(), id);
    else done.set_value(calls);
  });
  self = &deadlines;
  deadlines.add(Deadlines::Clock::now(), 7);
  BOOST_TEST(done.get_future().get() == 3);
}

BOOST_AUTO_TEST_CASE(many_threads_set_and_remove) {
  constexpr std::uint64_t kThreads = 4, kEach = 500, kFar = 1 << 20;
  std::atomic<std::uint64_t> calls{0}, wrong{0};
  std::promise<void> all;
  Deadlines deadlines([&](std::uint64_t id) {
    if (id >= kFar) ++wrong;
    if (++calls == kThreads * kEach) all.set_value();
  });
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t id = t * kEach; id < (t + 1) * kEach; ++id) {
        const auto now = Deadlines::Clock::now();
        deadlines.add(now + 1h, kFar + id);
        deadlines.add(now, id);
        deadlines.remove(now + 1h, kFar + id);
      }
    });
  for (std::thread& t : threads) t.join();
  all.get_future().wait();
  BOOST_TEST(wrong == 0u);
}

BOOST_AUTO_TEST_CASE(after_the_end_there_are_none) {
  int calls = 0;
  Deadlines deadlines([&](std::uint64_t) { ++calls; });
  deadlines.add(Deadlines::Clock::now() + 1h, 1);
  deadlines.stop();
  deadlines.add(Deadlines::Clock::now(), 2);
  deadlines.remove(Deadlines::Clock::now(), 2);
  BOOST_TEST(calls == 0);
}

BOOST_AUTO_TEST_SUITE_END()
