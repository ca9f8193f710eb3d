// Not under tsan: it has one thread; running_query_test has several.
// Patterns on the case rows P and R4; selection, consumption, conditions, errors and bounds.
#include <troupe/actors/events/pattern.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <map>

#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(event_pattern_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;

const Schema kMachine{{"m", Type::text}, {"v", Type::integer}};
const std::initializer_list<Time> kA{1, 4}, kB{2, 6}, kC{3, 9};

using Times = std::map<std::string, std::vector<Time>>;
using Build = std::function<Pattern(const std::map<std::string, Pattern>&)>;

/// Point events of the types at their times, in an order that has late ones; the contributors of
/// all matches.
std::string matched(const Times& times, const Build& build, bool is_reversed = false) {
  Query q;
  std::map<std::string, Pattern> events;
  std::vector<std::pair<std::size_t, Time>> all;
  std::size_t source = 0;
  for (const auto& [name, begins] : times) {
    events.emplace(name, event(q.source(name, kMachine), name));
    for (const Time begin : begins) all.emplace_back(source, begin);
    ++source;
  }
  q.output("out", match(build(events), {.output = {{"c", field("contributors")}}}));
  Ran ran(q);
  if (is_reversed) std::reverse(all.begin(), all.end());
  Key key = 0;
  for (const auto& [to, begin] : all) ran.insert(to, ++key, begin, begin + 1, {tx("m"), in(begin)});
  ran.run.finish();
  return text_of(ran.table());
}

/// As `matched`, in two orders of arrival.
std::string matches(const Times& times, const Build& build) {
  const std::string forwards = matched(times, build);
  BOOST_TEST(matched(times, build, true) == forwards);
  return forwards;
}

const Times kAbc{{"a", kA}, {"b", kB}, {"c", kC}};
}  // namespace

BOOST_AUTO_TEST_CASE(sequence_of_two) {  // P1
  BOOST_TEST(matches(kAbc, [](auto e) {
               return sequence({e.at("a"), e.at("b")}, 10);
             }) == R"([2,11):("a@1 b@2") [6,11):("a@1 b@6") [6,14):("a@4 b@6"))");
}

BOOST_AUTO_TEST_CASE(sequence_of_three) {  // P2
  BOOST_TEST(matches(kAbc, [](auto e) {
               return sequence({e.at("a"), e.at("b"), e.at("c")}, 6);
             }) == R"([3,7):("a@1 b@2 c@3") [9,10):("a@4 b@6 c@9"))");
}

BOOST_AUTO_TEST_CASE(at_least_two_of_three) {  // P3
  BOOST_TEST(matches(kAbc,
                     [](auto e) {
                       return at_least(2, {e.at("a"), e.at("b"), e.at("c")}, 3);
                     }) ==
             R"([2,4):("a@1 b@2") [3,4):("a@1 c@3") [3,5):("b@2 c@3") [4,5):("b@2 a@4") )"
             R"([4,6):("c@3 a@4") [6,7):("a@4 b@6"))");
}

BOOST_AUTO_TEST_CASE(unless_nothing_follows) {  // P4
  const auto unless_b = [](Time within) {
    return matches(kAbc, [=](auto e) { return unless(e.at("a"), e.at("b"), within); });
  };
  BOOST_TEST(unless_b(3) == "");
  BOOST_TEST(unless_b(2) == R"([6,7):("a@4"))");
}

BOOST_AUTO_TEST_CASE(sequence_with_nothing_between) {  // P5
  Times times = kAbc;
  times["n"] = {5};
  BOOST_TEST(matches(times, [](auto e) {
               return without(e.at("n"), sequence({e.at("a"), e.at("b")}, 10));
             }) == R"([2,11):("a@1 b@2"))");
}

BOOST_AUTO_TEST_CASE(all_in_any_order) {  // P6
  BOOST_TEST(matches({{"a", {5}}, {"b", {1}}, {"c", {3}}}, [](auto e) {
               return all({e.at("a"), e.at("b"), e.at("c")}, 5);
             }) == R"([5,6):("b@1 c@3 a@5"))");
  BOOST_TEST(matches({{"a", {5}}, {"b", {1}}}, [](auto e) {
               return any({e.at("a"), e.at("b")});
             }) == R"([1,2):("b@1") [5,6):("a@5"))");
}

BOOST_AUTO_TEST_CASE(missed_restart_of_a_machine) {  // P7
  for (const auto& [restart, machine, expected] :
       {std::tuple(Time{8}, "m1", ""), std::tuple(Time{12}, "m1", R"([11,12):("m1", 0))"),
        std::tuple(Time{8}, "m2", R"([11,12):("m1", 0))")}) {
    for (const bool is_keyed : {true, false}) {
      Query q;
      const Stream install = q.source("INSTALL", kMachine),
                   shutdown = q.source("SHUTDOWN", kMachine),
                   restarts = q.source("RESTART", kMachine);
      const Pattern missed = unless(sequence({event(install, "x"), event(shutdown, "y")}, 12),
                                    event(restarts, "z"), 5);
      MatchOptions options;
      options.output = {{"m", field("x.m")}, {"root", field("root")}};
      if (is_keyed) options.equal = {"m"};
      else
        options.where = field("x.m") == field("y.m") && field("x.m") <= field("z.m") &&
                        field("z.m") <= field("x.m");  // no equation: no key
      q.output("out", match(missed, options));
      Ran ran(q);
      ran.insert(2, 1, restart, restart + 1, {tx(machine), in(0)});
      ran.insert(1, 1, 6, 7, {tx("m1"), in(0)});
      ran.insert(1, 2, 20, 21, {tx("m2"), in(0)});
      ran.insert(0, 1, 0, 1, {tx("m1"), in(0)});
      ran.insert(0, 2, 2, 3, {tx("m2"), in(0)});
      ran.run.finish();
      BOOST_TEST(text_of(ran.table()) == expected);
      BOOST_TEST((q.explain().find("by (x.m)") != std::string::npos) == is_keyed);
    }
  }
}

BOOST_AUTO_TEST_CASE(equal_times_are_no_sequence) {  // P8
  BOOST_TEST(matches({{"a", {3}}, {"b", {3, 4}}}, [](auto e) {
               return sequence({e.at("a"), e.at("b")}, 5);
             }) == R"([4,8):("a@3 b@4"))");
}

BOOST_AUTO_TEST_CASE(span_of_the_window_gives_no_output) {  // P9
  const auto of = [](Time within) {
    return matches({{"a", {0}}, {"b", {5}}}, [=](auto e) {
      return sequence({e.at("a"), e.at("b")}, within);
    });
  };
  BOOST_TEST(of(5) == "");
  BOOST_TEST(of(6) == R"([5,6):("a@0 b@5"))");
}

BOOST_AUTO_TEST_CASE(cancelled_between_root_time_and_end) {  // P10
  Times times = kAbc;
  times["x"] = {3};
  BOOST_TEST(matches(times, [](auto e) {
               return cancel_when(sequence({e.at("a"), e.at("b")}, 10), e.at("x"));
             }) == R"([2,11):("a@1 b@2") [6,14):("a@4 b@6"))");
}

BOOST_AUTO_TEST_CASE(late_events_revise_matches) {  // R4
  Query q;
  const Stream a = q.source("a", kMachine), b = q.source("b", kMachine);
  const MatchOptions names{.output = {{"c", field("contributors")}}};
  q.output("sequence", match(sequence({event(a, "a"), event(b, "b")}, 10), names));
  q.output("unless", match(unless(event(a, "a"), event(b, "b"), 3), names));
  std::map<std::size_t, std::string> sent;
  DirectRun run(q, [&](std::size_t output, const Batch& batch) { sent[output] += text_of(batch); });
  const auto feed = [&](std::size_t source, Key key, Time begin, Time end) {
    Batch batch(kMachine);
    if (end > begin) batch.insert(key, begin, end, {tx("m"), in(0)});
    else batch.retract(key, end);
    run.feed(source, std::move(batch));
    return std::exchange(sent, {});
  };
  const auto keyless = [](std::string text) {
    const auto from = text.find('(') + 1;
    return std::pair(text.erase(from, text.find(',') - from), text);
  };
  BOOST_TEST(feed(0, 1, 1, 2).empty());
  const std::string first = feed(1, 8, 4, 5)[1];  // time passes 4, the limit of the scope
  BOOST_TEST(keyless(first).first == "I(,[4,5):(\"a@1\"))\n");
  const auto late = feed(1, 9, 2, 3);
  BOOST_TEST(keyless(late.at(0)).first == "I(,[2,11):(\"a@1 b@2\"))\n");
  BOOST_TEST(keyless(late.at(1)).first == "R(,4)\n");
  const auto back = feed(1, 9, 2, 2);
  BOOST_TEST(keyless(back.at(0)).first == "R(,2)\n");
  BOOST_TEST(keyless(back.at(1)).first == keyless(first).first);
  BOOST_TEST(back.at(1) != first);  // under another key
}

BOOST_AUTO_TEST_CASE(scope_from_the_nth_contributor) {
  const Times times{{"a", {0}}, {"b", {4}}, {"n", {6}}};
  const auto from = [&](std::int64_t contributor, Time within) {
    return matches(times, [=](auto e) {
      return unless(sequence({e.at("a"), e.at("b")}, 10), e.at("n"), contributor, within);
    });
  };
  BOOST_TEST(from(1, 6) == R"([6,10):("a@0 b@4"))");  // n is at the limit
  BOOST_TEST(from(1, 7) == "");
  BOOST_TEST(from(2, 2) == R"([6,10):("a@0 b@4"))");
  BOOST_TEST(from(2, 3) == "");
  BOOST_TEST(from(1, 2) == R"([4,10):("a@0 b@4"))");  // not before the event itself
}

BOOST_AUTO_TEST_CASE(at_most_counts_in_a_span) {
  Query q;
  const Stream a = q.source("a", kMachine), b = q.source("b", kMachine);
  const Stream few = at_most(1, {a, b}, 4);
  q.output("few", few);
  q.output("then", match(sequence({event(few, "f"), event(b, "b")}, 5),
                         {.output = {{"c", field("contributors")}}}));
  History outputs[2];
  DirectRun run(q, [&](std::size_t o, const Batch& batch) { outputs[o].add(batch); });
  for (const auto& [source, begin] : {std::pair(0u, Time{1}), {1u, Time{3}}, {1u, Time{9}}}) {
    Batch batch(kMachine);
    batch.insert(static_cast<Key>(begin), begin, begin + 1, {tx("m"), in(0)});
    run.feed(source, std::move(batch));
  }
  run.finish();
  BOOST_TEST(text_of(canonical(outputs[0])) == "[1,3):(1) [5,7):(1) [9,13):(1)");
  BOOST_TEST(text_of(canonical(outputs[1])) == R"([3,6):("f@1 b@3") [9,10):("f@5 b@9"))");
}

BOOST_AUTO_TEST_CASE(parts_select_and_consume) {
  const Times times{{"a", {1, 2}}, {"b", {3, 4}}};
  const auto of = [&](const std::function<Pattern(Pattern)>& a) {
    return matches(times, [&](auto e) { return sequence({a(e.at("a")), e.at("b")}, 10); });
  };
  BOOST_TEST(of([](Pattern p) { return p.first(); }) == R"([3,11):("a@1 b@3") [4,11):("a@1 b@4"))");
  BOOST_TEST(of([](Pattern p) { return p.last(); }) == R"([3,12):("a@2 b@3") [4,12):("a@2 b@4"))");
  BOOST_TEST(of([](Pattern p) { return p.consume(); }) ==
             R"([3,11):("a@1 b@3") [3,12):("a@2 b@3"))");
  BOOST_TEST(of([](Pattern p) { return p.first().consume(); }) ==
             R"([3,11):("a@1 b@3") [4,12):("a@2 b@4"))");
  BOOST_TEST(of([](Pattern p) { return p.last().consume(); }) ==
             R"([3,12):("a@2 b@3") [4,11):("a@1 b@4"))");
}

BOOST_AUTO_TEST_CASE(unique_fields_differ) {
  Query q;
  const Stream s = q.source("s", kMachine);
  q.output("out", match(sequence({event(s, "x"), event(s, "y")}, 10),
                        {.unique = {"m"}, .output = {{"c", field("contributors")}}}));
  Ran ran(q);
  ran.insert(0, 1, 1, 2, {tx("m1"), in(0)});
  ran.insert(0, 2, 2, 3, {tx("m1"), in(0)});
  ran.insert(0, 3, 3, 4, {tx("m2"), in(0)});
  ran.run.finish();
  BOOST_TEST(ran.coalesced() == R"([3,11):("x@1 y@3") [3,12):("x@2 y@3"))");
}

BOOST_AUTO_TEST_CASE(state_is_bounded_by_windows) {
  Query q;
  const Stream a = q.source("a", kMachine), b = q.source("b", kMachine);
  q.output("out",
           match(unless(sequence({event(a, "x"), event(b, "y").consume()}, 10), event(a, "z"), 5),
                 {.where = field("x.v") == field("y.v")}));
  Ran ran(q);
  for (int t = 0; t < 3000; ++t)
    for (const std::size_t source : {0, 1}) {
      Batch batch = ran.batch(source);
      batch.insert(static_cast<Key>(t), t, t + 1, {tx("m"), in(t / 2)});
      batch.guarantee = t - 1;
      ran.run.feed(source, std::move(batch));
    }
  for (const Counters& c : ran.run.counters()) BOOST_TEST(c.peak_state < 300u, c.name);
}

BOOST_AUTO_TEST_CASE(wrong_patterns_name_their_part) {
  Query q, other;
  const Stream s = q.source("s", kMachine), t = other.source("t", kMachine);
  const Pattern x = event(s, "x"), y = event(s, "y"), z = event(s, "z");
  const auto text = [](const Pattern& pattern, const MatchOptions& options = {}) {
    return refusal([&] { match(pattern, options); }, Code::invalid_argument);
  };
  BOOST_TEST(text(sequence({x, x}, 3)) == "two events of a pattern are 'x'; rename one");
  BOOST_TEST(text(sequence({x, y}, 0)) == "SEQUENCE(x, y) has a window of 0; give 1 or more");
  BOOST_TEST(text(sequence({}, 3)) == "a pattern has no event; give it one at least");
  BOOST_TEST(text(at_least(3, {x, y}, 3)) ==
             "ATLEAST(3, x, y, 3) needs 3 of 2 parts; name a number from 1 to 2");
  BOOST_TEST(text(unless(x.first(), y, 3)) ==
             "UNLESS(x FIRST, y, 3) selects or consumes; SEQUENCE, ATLEAST, ALL and ANY can");
  BOOST_TEST(text(without(x, y)) ==
             "NOT(x, y) guards no sequence; give NOT an event and a SEQUENCE, ATLEAST or ALL");
  BOOST_TEST(
      text(unless(sequence({x, y}, 5), z, 3, 2)) ==
      "UNLESS(SEQUENCE(x, y, 5), z, 3, 2) begins at contributor 3 of 2; name an earlier one");
  BOOST_TEST(text(sequence({x, event(t, "t")}, 5)) ==
             "a pattern has events of two queries; build it of one query's streams");
  BOOST_TEST(text(sequence({unless(x, y, 2), z}, 5), {.where = field("y.v") < field("z.v")}) ==
             "the condition (y.v < z.v) names an absent event and one outside of its negation; "
             "compare it with events that the negation guards");
  BOOST_TEST(text(unless(x, y, 2), {.output = {{"v", field("y.v")}}}) ==
             "the output 'v' uses y.v, which is of an absent event; use fields of events that "
             "occur");
  BOOST_TEST(text(x, {.where = field("x.m")}) ==
             "the condition x.m is text; compare it with a value");
  BOOST_TEST(refusal([&] { match(x, {.where = field("x.n") > 1}); }, Code::not_found)
                 .starts_with("field 'x.n' is not in"));
}

BOOST_AUTO_TEST_CASE(absent_events_connect_no_fields) {
  const auto of = [](const auto& pattern, std::size_t second, const Formula& where) {
    Query q;
    std::vector<Pattern> events;
    for (const char* name : {"x", "y", "z"})
      events.push_back(event(q.source(name, kMachine), name));
    q.output("out",
             match(pattern(events), {.where = where, .output = {{"c", field("contributors")}}}));
    Ran ran(q);
    ran.insert(0, 1, 0, 1, {tx("m1"), in(0)});
    ran.insert(second, 2, 1, 2, {tx("m2"), in(0)});
    ran.run.finish();
    return text_of(ran.table());
  };
  BOOST_TEST(of(
                 [](auto e) {
                   return unless(sequence({e[0], e[1]}, 10), e[2], 5);
                 },
                 1, field("x.m") == field("z.m") && field("y.m") == field("z.m")) ==
             R"([6,10):("x@0 y@1"))");
  BOOST_TEST(of([](auto e) { return at_least(2, e, 10); }, 2,
                field("x.m") == field("y.m") && field("y.m") == field("z.m")) ==
             R"([1,10):("x@0 z@1"))");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
