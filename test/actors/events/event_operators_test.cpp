// Operators of event streams on the case rows A and R.
#include <troupe/actors/events/query.hpp>

#include <boost/test/unit_test.hpp>

#include <limits>

#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(event_operators_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;

const Schema kNumber{{"p", Type::integer}};
const Schema kText{{"p", Type::text}};

struct Event3 {
  Time begin, end;
  Row row;
};

/// The coalesced output of a query over one source.
template <class Build>
std::string result(const Schema& schema, std::initializer_list<Event3> events, Build build) {
  Query q;
  q.output("out", build(q.source("s", schema)));
  Ran ran(q);
  Key key = 0;
  for (const Event3& e : events) ran.insert(0, ++key, e.begin, e.end, e.row);
  ran.run.finish();
  return ran.coalesced();
}
}  // namespace

BOOST_AUTO_TEST_CASE(select_keeps_events_of_a_condition) {  // A1
  BOOST_TEST(result(kNumber, {{1, 5, {in(3)}}, {2, 8, {in(7)}}, {4, 6, {in(9)}}},
                    [](Stream s) { return s.select(field("p") > 5); }) == "[2,8):(7) [4,6):(9)");
}

BOOST_AUTO_TEST_CASE(sliding_window_shortens_lifetimes) {  // A2
  BOOST_TEST(result(kText, {{0, 10, {tx("a")}}, {3, 5, {tx("b")}}, {4, kForever, {tx("c")}}},
                    [](Stream s) { return s.sliding(4); }) ==
             R"([0,4):("a") [3,5):("b") [4,8):("c"))");
}

BOOST_AUTO_TEST_CASE(hopping_window_counts_as_sql_does) {  // A3
  Query q;
  q.output("out", q.source("s", kText).hopping(5, 10).count());
  Ran ran(q);
  ran.insert(0, 1, 3, 4, {tx("a")});
  ran.insert(0, 2, 7, 8, {tx("b")});
  ran.run.finish();
  BOOST_TEST(ran.coalesced() == "[0,5):(1) [5,10):(2) [10,15):(1)");
  BOOST_TEST(text_of(per_window(ran.table(), 5, 10)) == "[-5,5):(1) [0,10):(2) [5,15):(1)");
}

BOOST_AUTO_TEST_CASE(join_intersects_lifetimes) {  // A4
  Query q;
  const Stream left = q.source("left", {{"k", Type::text}, {"l", Type::integer}}),
               right = q.source("right", {{"k", Type::text}, {"r", Type::integer}});
  q.output("out", left.join(right, {"k"}));
  Ran ran(q);
  ran.insert(0, 1, 0, 10, {tx("k"), in(1)});
  ran.insert(0, 2, 2, 4, {tx("m"), in(2)});
  ran.insert(1, 1, 5, 15, {tx("k"), in(9)});
  ran.insert(1, 2, 3, 6, {tx("m"), in(8)});
  ran.insert(1, 3, 4, 9, {tx("m"), in(7)});
  ran.run.finish();
  BOOST_TEST(ran.coalesced() == R"([3,4):("m", 2, 8) [5,10):("k", 1, 9))");
}

BOOST_AUTO_TEST_CASE(count_has_a_row_an_interval) {  // A5
  Query q;
  q.output("out", q.source("s", kText).count());
  Ran ran(q);
  ran.insert(0, 1, 1, 5, {tx("x")});
  ran.insert(0, 2, 3, 8, {tx("x")});
  ran.insert(0, 3, 8, 9, {tx("x")});
  BOOST_TEST(text_of(ran.table()) == "[1,3):(1) [3,5):(2) [5,8):(1) [8,9):(1)");
}

BOOST_AUTO_TEST_CASE(sum_mean_min_and_max) {  // A6
  const std::initializer_list<Event3> events{{0, 6, {in(4)}}, {2, 4, {in(10)}}, {3, 9, {in(1)}}};
  BOOST_TEST(result(kNumber, events, [](Stream s) { return s.aggregate({}, {sum("p")}); }) ==
             "[0,2):(4) [2,3):(14) [3,4):(15) [4,6):(5) [6,9):(1)");
  BOOST_TEST(result(kNumber, events, [](Stream s) {
               return s.aggregate({}, {events::max("p")});
             }) == "[0,2):(4) [2,4):(10) [4,6):(4) [6,9):(1)");
  BOOST_TEST(result(kNumber, events, [](Stream s) {
               return s.aggregate({}, {events::min("p"), mean("p")});
             }) == "[0,2):(4, 4) [2,3):(4, 7) [3,4):(1, 5) [4,6):(1, 2.5) [6,9):(1, 1)");
}

BOOST_AUTO_TEST_CASE(difference_takes_equal_rows_away) {  // A7
  Query q;
  q.output("out", q.source("left", kText).subtract(q.source("right", kText)));
  Ran ran(q);
  ran.insert(0, 1, 0, 10, {tx("a")});
  ran.insert(0, 2, 2, 6, {tx("b")});
  ran.insert(1, 1, 4, 7, {tx("a")});
  ran.run.finish();
  BOOST_TEST(ran.coalesced() == R"([0,4):("a") [2,6):("b") [7,10):("a"))");
}

BOOST_AUTO_TEST_CASE(sessions_end_after_a_gap) {
  const std::initializer_list<Event3> events{
      {0, 1, {in(1)}}, {3, 4, {in(2)}}, {8, 9, {in(3)}}, {12, 13, {in(4)}}};
  BOOST_TEST(result(kNumber, events, [](Stream s) { return s.session(5); }) ==
             "[0,8):(1) [0,8):(2) [8,17):(3) [8,17):(4)");
}

BOOST_AUTO_TEST_CASE(top_quantiles_and_functions_of_users) {
  const std::initializer_list<Event3> events{{0, 6, {in(4)}}, {2, 4, {in(10)}}, {3, 9, {in(1)}}};
  BOOST_TEST(result(kNumber, events, [](Stream s) { return s.top(2, "p"); }) ==
             "[0,6):(4) [2,4):(10) [4,9):(1)");
  BOOST_TEST(result(kNumber, events,
                    [](Stream s) {
                      return s.aggregate({}, {quantile(0, "p", "least"), quantile(0.5, "p"),
                                              quantile(1, "p", "most")});
                    }) ==
             "[0,2):(4, 4, 4) [2,3):(4, 4, 10) [3,4):(1, 4, 10) [4,6):(1, 1, 4) "
             "[6,9):(1, 1, 1)");
  BOOST_TEST(result(kNumber, events, [](Stream s) {
               const auto spread = [](const Values& values) {
                 return Value(std::get<std::int64_t>(values.rbegin()->first) -
                              std::get<std::int64_t>(values.begin()->first));
               };
               return s.aggregate({}, {user("p", "spread", Type::integer, spread)});
             }) == "[0,2):(0) [2,3):(6) [3,4):(9) [4,6):(3) [6,9):(0)");
}

BOOST_AUTO_TEST_CASE(slices_clip_lifetimes) {
  const std::initializer_list<Event3> events{{0, 2, {in(1)}}, {2, kForever, {in(2)}}};
  BOOST_TEST(result(kNumber, events, [](Stream s) { return s.slice(1, 5); }) ==
             "[1,2):(1) [2,5):(2)");
}

BOOST_AUTO_TEST_CASE(window_then_count) {  // A8
  const auto got =
      result(kText, {{0, kForever, {tx("x")}}, {2, kForever, {tx("x")}}, {7, kForever, {tx("x")}}},
             [](Stream s) { return s.sliding(5).count(); });
  BOOST_TEST(got == "[0,2):(1) [2,5):(2) [5,12):(1)");
}

BOOST_AUTO_TEST_CASE(groups_are_counted_apart) {
  const Schema schema{{"k", Type::text}, {"n", Type::integer}};
  BOOST_TEST(
      result(schema, {{0, 4, {tx("a"), in(1)}}, {2, 6, {tx("b"), in(2)}}, {3, 5, {tx("a"), in(3)}}},
             [](Stream s) {
               return s.aggregate({"k"}, {count("n"), sum("n", "s")});
             }) == R"([0,3):("a", 1, 1) [2,6):("b", 1, 2) [3,4):("a", 2, 4) [4,5):("a", 1, 3))");
}

BOOST_AUTO_TEST_CASE(project_and_other_lifetimes) {
  const std::initializer_list<Event3> events{{0, 6, {in(4)}}, {2, kForever, {in(10)}}};
  BOOST_TEST(result(kNumber, events, [](Stream s) {
               return s.project({{"twice", field("p") * 2}, {"half", field("p") / 2}});
             }) == "[0,6):(8, 2) [2,inf):(20, 5)");
  BOOST_TEST(result(kNumber, events, [](Stream s) {
               return s.alter_lifetime(Lifetimes::extend());
             }) == "[0,inf):(4) [2,inf):(10)");
  BOOST_TEST(result(kNumber, events, [](Stream s) {
               return s.alter_lifetime(Lifetimes::deletes());
             }) == "[6,inf):(4)");
  BOOST_TEST(result(kNumber, events, [](Stream s) { return s.tumbling(5); }) ==
             "[0,5):(4) [0,5):(10)");
}

BOOST_AUTO_TEST_CASE(union_of_a_stream_with_itself_keeps_both) {
  Query q;
  const Stream s = q.source("s", kNumber);
  q.output("out", s.unite(s).count());
  Ran ran(q);
  ran.insert(0, 1, 0, 5, {in(1)});
  ran.retract(0, 1, 3);
  ran.run.finish();
  BOOST_TEST(ran.coalesced() == "[0,3):(2)");
}

BOOST_AUTO_TEST_CASE(empty_streams_give_empty_tables) {  // A10
  for (const auto level : {Consistency::strong(), Consistency::middle(), Consistency::weak(3)}) {
    Query q;
    const Stream a = q.source("a", kNumber), b = q.source("b", kNumber);
    q.output("out", a.select(field("p") > 1).sliding(3).join(b).count());
    q.set_consistency(level);
    Ran ran(q);
    ran.run.finish();
    BOOST_TEST(ran.table().empty());
    BOOST_TEST(ran.output.guarantee() == kForever);
  }
}

BOOST_AUTO_TEST_CASE(empty_lifetime_is_refused) {  // A10
  for (const bool inserts_only : {false, true}) {
    Query q;
    q.output("out", q.source("s", kNumber, {inserts_only}));
    Ran ran(q);
    ran.insert(0, 1, 4, 4, {in(1)});
    ran.insert(0, 2, 4, 5, {in(2)});
    BOOST_TEST(ran.coalesced() == "[4,5):(2)");
    const Counters c = ran.of("s.finalize");
    BOOST_TEST(c.refused == 1u);
    BOOST_TEST(c.complaints.at(0) ==
               "s.finalize: key 1 is inserted with the lifetime [4,4), which is empty; let it end "
               "after its begin");
  }
}

BOOST_AUTO_TEST_CASE(retraction_follows_its_event) {  // R1
  Query q;
  q.output("out", q.source("s", kNumber).select(field("p") > 5).project({{"q", field("p") + 1}}));
  Ran ran(q);
  ran.insert(0, 1, 0, 10, {in(7)});
  ran.retract(0, 1, 4);
  BOOST_TEST(ran.coalesced() == "[0,4):(8)");
  ran.retract(0, 1, 0);
  ran.sent();
  ran.insert(0, 2, 0, 10, {in(3)});
  ran.retract(0, 2, 4);
  BOOST_TEST(ran.sent() == "");
  BOOST_TEST(ran.table().empty());
}

BOOST_AUTO_TEST_CASE(count_follows_retractions) {  // R2
  Query q;
  q.output("out", q.source("s", kNumber).count());
  Ran ran(q);
  ran.insert(0, 1, 0, 10, {in(0)});
  ran.insert(0, 2, 5, 20, {in(0)});
  ran.retract(0, 1, 7);
  BOOST_TEST(ran.coalesced() == "[0,5):(1) [5,7):(2) [7,20):(1)");
}

BOOST_AUTO_TEST_CASE(join_follows_retractions) {  // R3
  Query q;
  q.output("out", q.source("l", kText).join(q.source("r", kText), {"p"}));
  Ran ran(q);
  ran.insert(0, 1, 0, 10, {tx("k")});
  ran.insert(1, 2, 4, 12, {tx("k")});
  ran.retract(0, 1, 6);
  BOOST_TEST(ran.coalesced() == R"([4,6):("k"))");
  ran.retract(0, 1, 4);
  BOOST_TEST(ran.table().empty());
}

BOOST_AUTO_TEST_CASE(retractions_arrive_in_any_order) {  // R5
  for (const auto level : {Consistency::strong(), Consistency::middle()}) {
    Query q;
    q.output("out", q.source("s", kNumber));
    q.set_consistency(level);
    Ran ran(q);
    ran.retract(0, 1, 4);  // before its insert
    ran.insert(0, 1, 0, 10, {in(7)});
    ran.retract(0, 1, 4);  // again
    ran.insert(0, 2, 0, 5, {in(8)});
    ran.retract(0, 2, 9);  // lengthens
    ran.retract(0, 3, 8);  // there is no insert
    ran.insert(0, 4, 3, 4, {in(9)});
    ran.insert(0, 4, 3, 5, {in(9)});  // the key again
    ran.guarantee(0, 20);
    ran.insert(0, 5, 20, 30, {in(1)});  // after the guarantee
    ran.guarantee(0, 15);
    ran.run.finish();
    BOOST_TEST(ran.coalesced() == "[0,4):(7) [0,5):(8) [3,4):(9)");
    const Counters c = ran.of("s.finalize"), a = ran.of("s.align");
    BOOST_TEST(c.refused == 2u);
    BOOST_TEST(c.dropped == 1u);
    BOOST_TEST(a.refused == 2u);
    std::string all;
    for (const std::string& complaint : c.complaints) all += complaint + "\n";
    for (const std::string& complaint : a.complaints) all += complaint + "\n";
    for (const char* part :
         {"s.finalize: the retraction of key 2 to 9 lengthens [0,5)",
          "s.finalize: the retraction of key 3 to 8 has no insert, or a shorter one came first, "
          "and "
          "the guarantee 20 excludes an insert",
          "s.finalize: key 4 is inserted twice",
          "s.align: time goes backwards: key 5 comes with sync 20 after the guarantee 20",
          "s.align: the guarantee 15 comes after 20"})
      BOOST_TEST(all.find(part) != std::string::npos, part << "\n" << all);
  }
}

BOOST_AUTO_TEST_CASE(inserts_only_source_refuses_retractions) {
  Query q;
  q.output("out", q.source("s", kNumber, {.inserts_only = true}));
  Ran ran(q);
  ran.insert(0, 1, 0, 10, {in(7)});
  ran.retract(0, 1, 4);
  BOOST_TEST(ran.coalesced() == "[0,10):(7)");
  BOOST_TEST(ran.of("s.finalize").refused == 1u);
}

BOOST_AUTO_TEST_CASE(state_is_bounded_by_open_lifetimes) {
  Query q;
  const Stream a = q.source("a", kNumber), b = q.source("b", kNumber);
  q.output("join", a.join(b, {"p"}));
  q.output("count", a.count({"p"}));
  Ran ran(q);
  for (int t = 0; t < 3000; ++t) {
    for (const std::size_t side : {0, 1}) {
      Batch batch = ran.batch(side);
      batch.insert(static_cast<Key>(t), t, t + 10, {in(t)});
      batch.guarantee = t - 1;
      ran.run.feed(side, std::move(batch));
    }
  }
  for (const Counters& c : ran.run.counters()) BOOST_TEST(c.peak_state < 200u, c.name);
}

BOOST_AUTO_TEST_CASE(wrong_queries_name_the_operator) {
  Query q;
  const Stream s = q.source("s", {{"k", Type::text}, {"n", Type::integer}});
  const auto text = [](auto f, Code code) { return refusal(f, code); };
  BOOST_TEST(text([&] { s.select(field("k")); }, Code::invalid_argument) ==
             "select#2 has the condition k, which is text; compare it with a value");
  BOOST_TEST(text([&] { s.select(field("x") > 1); }, Code::not_found) ==
             "field 'x' is not in (k text, n integer); name one of these");
  BOOST_TEST(text([&] { s.aggregate({}, {}); }, Code::invalid_argument) ==
             "aggregate#2 computes nothing; name an aggregate");
  BOOST_TEST(text([&] { s.aggregate({}, {sum("k")}); }, Code::invalid_argument) ==
             "aggregate#2 adds up 'k', which is text; name a number");
  BOOST_TEST(text([&] { s.join(s, {"k"}, {"n"}); }, Code::invalid_argument)
                 .starts_with("join#2 compares keys of (k text, n integer)"));
  BOOST_TEST(text([&] { s.aggregate({}, {quantile(1.5, "n")}); }, Code::invalid_argument) ==
             "aggregate#2 computes the quantile 1.5; name one from 0 to 1");
  BOOST_TEST(text([&] { s.top(0, "n"); }, Code::invalid_argument) ==
             "top#2 keeps 0 rows; name 1 or more");
  BOOST_TEST(text([&] { s.session(0); }, Code::invalid_argument) ==
             "session#2 has a gap of 0; give 1 or more");
  BOOST_TEST(text([&] { s.slice(3, 3); }, Code::invalid_argument) ==
             "a slice is [3,3), which is empty; let it end after its begin");
  BOOST_TEST(text([&] { s.sliding(0); }, Code::invalid_argument) ==
             "a window has a size of 0; give 1 or more");
  BOOST_TEST(text(
                 [&] {
                   s.unite(s.project({{"k", field("k")}}));
                 },
                 Code::invalid_argument)
                 .starts_with("union unites streams of"));
  BOOST_TEST(text([&] { q.source("s", kNumber); }, Code::already_exists) ==
             "a query has two operators 's'; rename one");
  BOOST_TEST(text(
                 [&] {
                   q.set_consistency({5, 3});
                 },
                 Code::invalid_argument) ==
             "a query blocks for B = 5 and remembers M = 3; B is from 0 to M");
  BOOST_TEST(text([&] { DirectRun(q, {}); }, Code::failed_precondition) ==
             "a query has 1 sources and 0 outputs; give it one of each at least");
  q.output("out", s);
  DirectRun run(q, [](std::size_t, const Batch&) {});
  Batch other(kNumber);
  other.insert(1, 0, 1, {in(1)});
  BOOST_TEST(text([&] { run.feed("s", other); }, Code::invalid_argument) ==
             "s.align takes events of (k text, n integer) and was given (integer); build batches "
             "with its schema");
  BOOST_TEST(text([&] { run.feed("t", other); }, Code::not_found) ==
             "a query has no source 't'; its sources are s");
}

BOOST_AUTO_TEST_CASE(plans_are_explained) {
  Query q;
  const Stream s = q.source("s", kNumber);
  q.output("out", s.select(field("p") > 5).named("large").hopping(5, 10).count({"p"}));
  BOOST_TEST(q.explain() ==
             "s.align: source (p integer)\ns.finalize <- s.align\n"
             "large <- s.finalize: (p > 5)\nwindow#3 <- large: hopping 10 by 5\n"
             "aggregate#4 <- window#3: count by (p)\nout <- aggregate#4: output\n");
}

BOOST_AUTO_TEST_CASE(boundaries_of_vanished_lifetimes_go) {
  Query q;
  q.output("out", q.source("s", kNumber).count());
  Ran ran(q);
  ran.insert(0, 1, 0, 10, {in(1)});
  ran.insert(0, 2, 5, 8, {in(2)});
  ran.retract(0, 2, 5);
  BOOST_TEST(text_of(ran.table()) == "[0,10):(1)");
  ran.insert(0, 3, 20, kForever, {in(3)});
  for (int t = 21; t < 500; ++t) {
    Batch batch = ran.batch(0);
    batch.insert(static_cast<Key>(t), t, t + 100'000, {in(t)});
    batch.retract(static_cast<Key>(t), t + 1);
    batch.guarantee = t - 1;
    ran.run.feed(0, std::move(batch));
  }
  BOOST_TEST(ran.of("aggregate#2").peak_state < 10u);
}

BOOST_AUTO_TEST_CASE(groups_without_a_number_are_one) {
  Query q;
  const Stream s = q.source("s", {{"r", Type::real}});
  q.output("out", s.project({{"n", field("r") / field("r")}}).count({"n"}));
  Ran ran(q);
  ran.insert(0, 1, 0, 10, {Value(0.0)});
  ran.insert(0, 2, 0, 10, {Value(0.0)});
  ran.retract(0, 1, 0);
  BOOST_REQUIRE(ran.table().size() == 1u);
  BOOST_TEST((ran.table()[0].payload[1] == in(1)), ran.text);
  ran.retract(0, 2, 0);
  BOOST_TEST(ran.table().empty());
}

BOOST_AUTO_TEST_CASE(totals_survive_rounding_and_infinity) {
  Query q;
  const Stream s = q.source("s", {{"r", Type::real}});
  q.output("out", s.aggregate({}, {sum("r"), quantile(0.07, "r"), quantile(0.55, "r", "most")}));
  Ran ran(q);
  ran.insert(0, 200, 0, 1, {Value(std::numeric_limits<double>::infinity())});
  Batch batch = ran.batch(0);
  for (int n = 1; n <= 100; ++n) batch.insert(static_cast<Key>(n), 0, 1, {Value(double(n))});
  ran.run.feed(0, std::move(batch));
  BOOST_TEST(ran.coalesced().starts_with("[0,1):(inf, "));
  ran.retract(0, 200, 0);
  BOOST_TEST(ran.coalesced() == "[0,1):(5050, 7, 55)");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
