// The work of actors, estimated from few timed firings: sums never fall, whatever the samples, and
// never exceed the elapsed time.
#include <boost/test/unit_test.hpp>

#include <random>

#include <troupe/actors/observe/work_account.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(work_account_test, TROUPE_ONE_THREAD)

namespace {

constexpr std::int64_t kMs = 1'000'000;

}  // namespace

// 900,000 firings of 100 ns, and a thread that is put aside for 20 ms in the midst of one that is
// timed.
BOOST_AUTO_TEST_CASE(a_firing_that_was_put_aside_prices_no_others) {
  WorkAccount account(1);
  std::int64_t truth = 0;
  std::uint64_t before = 0;
  for (std::uint64_t n = 1; n <= 900'000; ++n) {
    const std::int64_t ns = n == 512'000 ? 20 * kMs : 100;
    truth += ns;
    if (n <= 3 || n % 1024 == 0) account.timed(0, ns, 64, true);
    if (n % 100'000 == 0 || n == 512'001) {  // right behind it, too
      account.settle({n}, 50 * kMs);
      const auto busy = static_cast<std::int64_t>(account.busy_ns(0));
      BOOST_TEST(account.busy_ns(0) >= before);
      BOOST_TEST(busy > truth * 9 / 10, n);
      BOOST_TEST(busy < truth + truth / 5, n);
      before = account.busy_ns(0);
    }
  }
  BOOST_TEST(account.bytes_out(0) == 900'000u * 64);
}

BOOST_AUTO_TEST_CASE(nodes_that_are_always_timed_have_exact_times) {
  WorkAccount account(2);
  std::minstd_rand random(3);
  std::uint64_t ns = 0, bytes = 0;
  for (std::uint64_t n = 1; n <= 1000; ++n) {
    const auto took = static_cast<std::int64_t>(random() % kMs);
    account.timed(1, took, n, n % 2 == 0);
    ns += static_cast<std::uint64_t>(took), bytes += n;
    if (n % 7 == 0) account.settle({0, n}, 0);
  }
  BOOST_TEST(account.busy_ns(1) == ns);
  BOOST_TEST(account.bytes_out(1) == bytes);
  BOOST_TEST(account.busy_ns(0) == 0u);
}

// Scalars are computed in place, and no clock is looked at: a loop of them keeps its worker busy
// all the same.
BOOST_AUTO_TEST_CASE(untimed_nodes_are_busy_for_at_most_their_turns) {
  WorkAccount account(3);
  account.timed(2, 200'000, 0, true);
  account.settle({1'000'000, 3'000'000, 1}, 50 * kMs);
  const auto in_place = static_cast<double>(account.busy_ns(0) + account.busy_ns(1));
  BOOST_TEST(in_place > 0.99 * (50e6 - 200e3));
  BOOST_TEST(in_place <= 50e6 - 200e3);
  BOOST_TEST(account.busy_ns(1) >= 2 * account.busy_ns(0));
  account.settle({1'000'100, 3'000'000, 1}, 50 * kMs);  // a hundred in a turn that did other things
  BOOST_TEST(static_cast<double>(account.busy_ns(0) + account.busy_ns(1)) - in_place < 10'000);
}

// Holds for any samples and any number of looks: three nodes in turns that are measured and on
// workers.
BOOST_AUTO_TEST_CASE(sums_never_fall_and_are_no_more_than_there_was_time_for) {
  bool was_bound = false;
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    WorkAccount account(3);
    std::minstd_rand random(seed);
    std::vector<std::uint64_t> fires(3), busy(3), bytes(3);
    std::int64_t time = 0, in_turns = 0, handed_over = 0;
    for (int i = 0; i < 2000; ++i) {
      const std::size_t node = random() % 3;
      fires[node] += 1 + random() % 5000;
      const auto ns = static_cast<std::int64_t>(random() % 40 == 0 ? random() % (10 * kMs)
                                                                   : 50 + random() % 500);
      const bool in_turn = random() % 3 != 0;
      account.timed(node, ns, random() % 4096, in_turn);
      in_turns += in_turn ? ns : 0;
      handed_over += in_turn ? 0 : ns;
      if (random() % 10 != 0) continue;
      // time of turns beside the timed firings
      const auto others = static_cast<std::int64_t>(random() % kMs);
      account.settle(fires, in_turns + others);
      time += in_turns + others;
      in_turns = 0;
      std::uint64_t sum = 0;
      for (std::size_t n = 0; n < 3; ++n) {
        BOOST_TEST(account.busy_ns(n) >= busy[n]);
        BOOST_TEST(account.bytes_out(n) >= bytes[n]);
        busy[n] = account.busy_ns(n), bytes[n] = account.bytes_out(n);
        sum += busy[n];
      }
      BOOST_TEST(sum <= static_cast<std::uint64_t>(time + handed_over));
      was_bound = was_bound || sum * 100 > static_cast<std::uint64_t>(time + handed_over) * 99;
    }
  }
  BOOST_TEST(was_bound);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
