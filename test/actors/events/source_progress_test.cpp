// Idle sources: guarantees that follow those of other sources, and messages that come too late.
#include <troupe/actors/events/running_query.hpp>

#include <boost/test/unit_test.hpp>

#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(source_progress_test)

namespace {
using namespace troupe::test;

const Schema kNumber{{"n", Type::integer}};

Query union_of_two(Time idle_after) {
  Query q;
  const Stream left = q.source("left", kNumber),
               right = q.source("right", kNumber, {.idle_after = idle_after});
  q.output("out", left.unite(right).count());
  q.set_consistency(Consistency::strong());
  return q;
}
}  // namespace

BOOST_AUTO_TEST_CASE(a_query_waits_for_a_source_that_is_never_idle) {
  Ran ran(union_of_two(kForever));
  ran.insert(0, 1, 3, 5, {in(1)});
  ran.guarantee(0, 1000);
  BOOST_TEST(ran.sent() == "");
}

BOOST_AUTO_TEST_CASE(an_idle_source_follows_the_others) {
  Ran ran(union_of_two(10));
  ran.insert(0, 1, 3, 5, {in(1)});
  ran.guarantee(0, 12);
  BOOST_TEST(ran.sent().find("G(2)") != std::string::npos);
  ran.guarantee(0, 15);
  const std::string sent = ran.sent();
  BOOST_TEST(sent.find("[3,5):(1)") != std::string::npos, sent);
  BOOST_TEST(sent.find("G(5)") != std::string::npos, sent);
}

BOOST_AUTO_TEST_CASE(a_source_that_returns_counts_again) {
  Ran ran(union_of_two(10));
  ran.guarantee(0, 30);
  ran.insert(1, 1, 20, 25, {in(1)});  // by the guarantee 20 that was given in its place
  ran.insert(1, 2, 21, 25, {in(1)});
  BOOST_TEST(ran.of("right.align").refused == 1u);
  BOOST_TEST(
      ran.of("right.align")
          .complaints.at(0)
          .starts_with(
              "right.align: time goes backwards: key 1 comes with sync 20 after the guarantee 20"));
  ran.guarantee(1, 28);
  ran.guarantee(0, 31);
  BOOST_TEST(ran.sent().find("G(28)") != std::string::npos);
  ran.run.finish();
  BOOST_TEST(ran.coalesced() == "[21,25):(1)");
}

BOOST_AUTO_TEST_CASE(source_that_returns_may_give_earlier_guarantees) {
  Ran ran(union_of_two(10));
  ran.guarantee(0, 30);
  ran.guarantee(1, 12);  // its own first one
  BOOST_TEST(ran.of("right.align").refused == 0u);
  ran.guarantee(1, 11);
  BOOST_TEST(ran.of("right.align").refused == 1u);
  ran.insert(1, 1, 22, 25, {in(1)});
  ran.guarantee(1, 24);
  BOOST_TEST(ran.sent().find("G(24)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_source_without_room_follows_when_it_has_room_again) {
  SourceProgress progress(union_of_two(10));
  std::vector<Time> fed;
  bool has_room = false;
  const auto feed = [&](std::size_t source, Time g) {
    if (!has_room) return false;
    BOOST_TEST(source == 1u);
    fed.push_back(g);
    return true;
  };
  progress.note(0, 30, feed);
  BOOST_TEST(fed.empty());
  has_room = true;
  progress.note(0, kForever, feed);
  BOOST_TEST(fed == std::vector<Time>{20}, boost::test_tools::per_element());
  progress.note(0, kForever, feed);
  BOOST_TEST(fed.size() == 1u);
  BOOST_TEST(progress.carried(1, 15) == 20);
}

BOOST_AUTO_TEST_CASE(a_source_that_ends_makes_no_other_idle) {
  Ran ran(union_of_two(10));
  ran.guarantee(0, kForever);
  ran.insert(1, 1, 20, 25, {in(1)});
  BOOST_TEST(ran.of("right.align").refused == 0u);
  ran.run.finish();
  BOOST_TEST(ran.coalesced() == "[20,25):(1)");
}

BOOST_AUTO_TEST_CASE(a_running_query_goes_on_without_an_idle_source) {
  std::string text;
  WorkerPool pool(Deterministic{1});
  RunningQuery run(union_of_two(10),
                   [&](std::size_t, const Batch& batch) { text += text_of(batch); },
                   {.pool = &pool});
  Batch batch(kNumber);
  batch.insert(1, 3, 5, {in(1)});
  batch.guarantee = 20;
  run.feed("left", std::move(batch));
  pool.run_all();
  BOOST_TEST(text.find("[3,5):(1)") != std::string::npos, text);
  run.finish();
}

BOOST_AUTO_TEST_CASE(no_source_is_idle_at_once) {
  BOOST_TEST(refusal([] { union_of_two(0); }, Code::invalid_argument) ==
             "source 'right' is idle after 0; give 1 or more");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
