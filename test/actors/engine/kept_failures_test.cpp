// Failures that are kept: all if they are few, one of each kind if they are many.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include <troupe/actors/engine/kept_failures.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(kept_failures_test, TROUPE_ONE_THREAD)

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

EndedRun failed(std::uint64_t run, std::int64_t at, const std::string& error) {
  EndedRun e;
  e.run = run;
  e.plan = {"a", 1, 7};
  e.ended_ns = at;
  e.error = error;
  e.code = Code::unavailable;
  return e;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ten_thousand_failures_an_hour_leave_the_one_of_another_kind) {
  KeptFailures kept;
  kept.add(failed(1, kSecond, "node 'b' was lost"));
  for (std::uint64_t i = 0; i < 10'000; ++i)
    kept.add(failed(2 + i, kSecond + static_cast<std::int64_t>(i) * kSecond / 3,
                    fmt::format("index {} is out of range in iteration {}", i, 7 * i)));
  const std::vector<EndedRun> all = kept.latest_first();
  BOOST_TEST(all.size() == KeptFailures::kMost);
  BOOST_TEST(all.front().run == 10'001u);
  BOOST_TEST(all.back().error == "node 'b' was lost");
  BOOST_TEST(all.back().times == 1u);
  std::uint64_t told = 0;
  for (const EndedRun& e : all) told += e.times;
  BOOST_TEST(told == 10'001u);
  const auto oldest =
      std::find_if(all.begin(), all.end(), [](const EndedRun& e) { return e.times > 1; });
  BOOST_REQUIRE((oldest != all.end()));
  BOOST_TEST(oldest->first_ns == kSecond);
}

// Each is of another kind: the oldest goes.
BOOST_AUTO_TEST_CASE(memory_is_bounded_whatever_fails) {
  KeptFailures kept;
  for (std::uint64_t i = 0; i < 3 * KeptFailures::kMost; ++i) {
    std::string letters;
    for (std::uint64_t rest = i; rest > 0; rest /= 20)
      letters += static_cast<char>('a' + static_cast<char>(rest % 20));
    kept.add(failed(i, static_cast<std::int64_t>(i), letters + std::string(100'000, 'x')));
  }
  const std::vector<EndedRun> all = kept.latest_first();
  BOOST_TEST(all.size() == KeptFailures::kMost);
  BOOST_TEST(all.front().run == 3 * KeptFailures::kMost - 1);
  for (const EndedRun& e : all) BOOST_TEST(e.error.size() <= KeptFailures::kLongest + 4);
}

BOOST_AUTO_TEST_CASE(a_run_is_kept_once_with_its_flight) {
  KeptFailures kept;
  kept.add(failed(3, 5, "its own sentence"));
  kept.add(failed(3, 6, "the run has failed on another node: its own sentence"));
  kept.note_flight({"a", 1, 7}, 3, "/var/x.flight.json");
  kept.note_flight({"a", 1, 8}, 3, "of another life");
  BOOST_REQUIRE(kept.latest_first().size() == 1u);
  BOOST_TEST(kept.latest_first()[0].error == "its own sentence");
  BOOST_TEST(kept.latest_first()[0].flight == "/var/x.flight.json");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
