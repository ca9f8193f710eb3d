// When a transport's thread blocks, and when it looks by itself: by a clock that the test moves.
#include <troupe/cluster/transport/zeromq/spin_policy.hpp>

#include <utility>

#include <boost/test/unit_test.hpp>

BOOST_AUTO_TEST_SUITE(spin_policy_test)

namespace {

using namespace troupe;
using namespace std::chrono_literals;

constexpr SpinPolicy::Time kSpin = 50us;

/// A thread that does nothing but wait: each look takes a microsecond, and each yield as long as it
/// is set to.
struct Waiting {
  SpinPolicy awake{kSpin};
  SpinPolicy::Time now = 1s;
  std::uint64_t messages = 0, bytes = 0;
  bool waits_for_all = false;

  void come(std::uint64_t count, std::uint64_t of_bytes) {
    messages += count;
    bytes += count * of_bytes;
    BOOST_TEST(awake.has_moved(now, messages, bytes, waits_for_all));
    BOOST_TEST(!awake.has_moved(now, messages, bytes, waits_for_all));
  }
  /// Until it blocks; how long it was awake.
  SpinPolicy::Time wait(SpinPolicy::Time a_yield = 1us) {
    const SpinPolicy::Time began = now;
    while (!awake.has_rested(now)) {
      const SpinPolicy::Time then = std::exchange(now, now + a_yield);
      awake.yielded(then, now);
    }
    return now - began;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_small_message_is_waited_for_awake_and_then_it_blocks) {
  Waiting w;
  BOOST_TEST((w.wait() == 0us));  // nothing has ever come
  w.come(1, 64);
  BOOST_TEST((w.wait() == kSpin));
  BOOST_TEST((w.wait() == 0us));
  // As long after the last one, not the first.
  w.come(1, 64);
  w.now += kSpin - 1us;
  BOOST_TEST(!w.awake.has_rested(w.now));
  w.come(10, SpinPolicy::kSmall - 1);
  BOOST_TEST((w.wait() == kSpin));
}

BOOST_AUTO_TEST_CASE(policy_spins_for_large_messages_only_beside_ZeroMQ) {
  Waiting w;
  w.come(1, 1 << 20);
  BOOST_TEST((w.wait() == 0us));
  w.waits_for_all = true;
  w.come(1, 1 << 20);
  BOOST_TEST((w.wait() == kSpin));
  w.awake.expect(w.now);  // a piece of it
  BOOST_TEST((w.wait() == kSpin));
}

BOOST_AUTO_TEST_CASE(a_thread_without_spin_time_blocks_at_once) {
  SpinPolicy never(0us);
  BOOST_TEST(never.has_moved(1s, 1, 64, true));
  BOOST_TEST(never.has_rested(1s));
}

BOOST_AUTO_TEST_CASE(policy_blocks_while_others_take_the_core) {
  Waiting w;
  w.come(1, 64);
  // Once does not count: less than kLost in all.
  w.awake.yielded(w.now, w.now + 400us);
  w.now += 400us;
  w.come(1, 64);
  BOOST_TEST((w.wait() == kSpin));
  // Often does: each yield gives the core away for longer than it is awake.
  for (int i = 0; i < 10; ++i) {
    w.come(1, 64);
    w.wait(200us);
  }
  w.come(1, 64);
  BOOST_TEST((w.wait() == 0us));
  w.awake.expect(w.now);
  BOOST_TEST((w.wait() == 0us));
  w.now += SpinPolicy::kCrowdedFor;
  w.come(1, 64);
  BOOST_TEST((w.wait() == kSpin));
}

// An eighth of the time may be theirs: what was lost is forgotten at that rate.
BOOST_AUTO_TEST_CASE(a_core_that_others_take_seldom_is_not_crowded) {
  Waiting w;
  for (int i = 0; i < 1000; ++i) {
    w.come(1, 64);
    BOOST_REQUIRE((w.wait() == kSpin));
    w.come(1, 64);
    w.awake.yielded(w.now, w.now + 100us);
    w.now += 1ms;
  }
}

BOOST_AUTO_TEST_CASE(policy_stops_polling_idle_memory_and_retries_later) {
  Waiting w;
  std::uint64_t looks = 0;
  for (; w.awake.is_patient(); ++looks) w.awake.looked(false);
  BOOST_TEST(looks == SpinPolicy::kPatience);
  // One in as many messages; one look then finds that nothing comes.
  for (std::uint64_t i = 0; i < 10 * SpinPolicy::kPatience; ++i) {
    w.come(1, 64);
    if (!w.awake.is_patient()) continue;
    ++looks;
    w.awake.looked(false);
    BOOST_TEST(!w.awake.is_patient());
  }
  BOOST_TEST(looks == SpinPolicy::kPatience + 10);
  // An arrival makes up for some looks without one.
  w.come(SpinPolicy::kPatience, 64);
  BOOST_TEST(w.awake.is_patient());
  w.awake.looked(true);
  for (looks = 0; w.awake.is_patient(); ++looks) w.awake.looked(false);
  BOOST_TEST(looks == SpinPolicy::kGained + 1);
}

BOOST_AUTO_TEST_SUITE_END()
