// The run log: its two lists, and what it lets through within a minute.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <troupe/actors/engine/run_log.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(run_log_test, TROUPE_ONE_THREAD)

namespace {

EndedRun ended_run(std::uint64_t number, const std::string& error = {}) {
  EndedRun end;
  end.run = number;
  end.plan.owner = "a";
  end.error = error;
  return end;
}

}  // namespace

BOOST_AUTO_TEST_CASE(records_hold_the_last_runs_and_failures) {
  const EngineOptions options;
  RunLog log(options);
  log.add(ended_run(1, "failed"), true);
  for (std::uint64_t i = 2; i < 2 + RunLog::kRecent; ++i) log.add(ended_run(i), false);
  BOOST_TEST(log.recent().size() == RunLog::kRecent);
  BOOST_TEST(log.recent().front().run == RunLog::kRecent + 1);
  BOOST_TEST(log.recent().back().run == 2u);
  BOOST_TEST(log.errors().size() == 1u);
  BOOST_TEST(log.errors()[0].run == 1u);
  for (std::uint64_t i = 0; i < RunLog::kErrors; ++i) log.add(ended_run(100 + i, ""), true);
  BOOST_TEST(log.errors().size() == RunLog::kErrors);
  // A flood of one kind does not push out the only failure of another kind.
  BOOST_TEST(log.errors().back().run == 1u);
  BOOST_TEST(log.errors().front().run == 100u + RunLog::kErrors - 1);
}

BOOST_AUTO_TEST_CASE(failures_beyond_the_limit_of_a_minute_are_counted) {
  std::vector<LogRecord> lines;
  EngineOptions options;
  options.log = [&](const LogRecord& line) { lines.push_back(line); };
  RunLog log(options);
  const RunLog::Time begin(std::chrono::hours(1));
  for (std::uint64_t i = 0; i < EngineOptions::kFailuresLogged + 5; ++i)
    log.log_failure(ended_run(i, "failed"), "a", begin);
  BOOST_TEST(lines.size() == EngineOptions::kFailuresLogged);
  BOOST_TEST(lines.back().run == "a/99");
  log.log_failure(ended_run(777, "failed"), "a", begin + std::chrono::minutes(1));
  BOOST_TEST(lines.size() == EngineOptions::kFailuresLogged + 2);
  BOOST_TEST(lines[lines.size() - 2].text.starts_with("5 more runs have failed since"));
  BOOST_TEST(lines.back().run == "a/777");
}

BOOST_AUTO_TEST_CASE(flights_are_bounded_within_a_minute) {
  EngineOptions options;
  const RunLog::Time begin(std::chrono::hours(1));
  BOOST_TEST(!RunLog(options).may_write_flight(begin));  // there is no folder for them
  options.flight = "somewhere";
  RunLog log(options);
  std::uint64_t written = 0;
  for (std::uint64_t i = 0; i < 2 * EngineOptions::kFlights; ++i)
    written += log.may_write_flight(begin);
  BOOST_TEST(written == EngineOptions::kFlights);
  BOOST_TEST(log.may_write_flight(begin + std::chrono::minutes(1)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
