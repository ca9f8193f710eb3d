// Not under tsan: it has one thread; running_query_test has several.
// The query language: what it builds, places of errors, and texts that are hostile.
#include <troupe/actors/events/language.hpp>

#include <boost/test/unit_test.hpp>

#include <random>

#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(event_language_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;

const Schema kHost{{"Machine_Id", Type::text}, {"v", Type::integer}};
const std::vector<EventType> kTypes{{"INSTALL", kHost}, {"SHUTDOWN", kHost}, {"RESTART", kHost}};

std::string refused(const std::string& text) {
  return refusal([&] { parse_query(text, kTypes); }, Code::invalid_argument);
}

/// The output over point events of the types, at seconds.
std::string answer(const std::string& text,
                   const std::vector<std::tuple<std::string, Time, const char*>>& events) {
  const Query q = parse_query(text, kTypes);
  Ran ran(q);
  Key key = 0;
  for (const auto& [type, at, machine] : events)
    for (std::size_t s = 0; s < q.sources().size(); ++s)
      if (q.sources()[s].name == type) ran.insert(s, ++key, at, at + 1, {tx(machine), in(at)});
  ran.run.finish();
  return ran.coalesced();
}
}  // namespace

BOOST_AUTO_TEST_CASE(missed_restart_as_text) {  // P7
  for (const char* where :
       {"{x.Machine_Id = y.Machine_Id} AND {x.Machine_Id = z.Machine_Id}",
        "CorrelationKey(Machine_Id, EQUAL)", "{CorrelationKey(Machine_Id, EQUAL)} AND x.v >= 0",
        "(x.Machine_Id = y.Machine_Id AND NOT x.v < 0) AND z.Machine_Id == y.Machine_Id"}) {
    const std::string text = std::string(R"(
EVENT MissedRestart  -- a machine that does not come back
WHEN  UNLESS(SEQUENCE(INSTALL x, SHUTDOWN AS y, 12 hours), RESTART AS z, 5 minutes)
WHERE )") + where + "\nOUTPUT x.Machine_Id, root, contributors AS who";
    const auto at = [&](Time restart, const char* machine) {
      return answer(text, {{"RESTART", restart, machine},
                           {"INSTALL", 0, "m1"},
                           {"INSTALL", 7200, "m2"},
                           {"SHUTDOWN", 21600, "m1"},
                           {"SHUTDOWN", 72000, "m2"}});
    };
    const std::string missed = R"([21900,43200):("m1", 0, "x@0 y@21600"))";
    BOOST_TEST(at(21700, "m1") == "");
    BOOST_TEST(at(21900, "m1") == missed);
    BOOST_TEST(at(21700, "m2") == missed);
  }
}

BOOST_AUTO_TEST_CASE(all_operators_as_text) {
  const std::vector<std::tuple<std::string, Time, const char*>> events{
      {"INSTALL", 1, "a"}, {"SHUTDOWN", 2, "a"}, {"RESTART", 3, "b"}, {"INSTALL", 4, "a"}};
  for (const auto& [pattern, expected] :
       {std::pair("ALL(INSTALL x, SHUTDOWN y, RESTART z, 5)",
                  R"([3,6):("x@1 y@2 z@3") [4,7):("y@2 z@3 x@4"))"),
        {"ANY(SHUTDOWN y, RESTART z)", R"([2,3):("y@2") [3,4):("z@3"))"},
        {"atleast(2, SHUTDOWN y, RESTART z, 2)", R"([3,4):("y@2 z@3"))"},
        {"NOT(SHUTDOWN n, SEQUENCE(INSTALL x, RESTART z, 5))", ""},
        {"CANCEL-WHEN(SEQUENCE(INSTALL x, RESTART z, 5), SHUTDOWN n)", ""},
        {"SEQUENCE(INSTALL x FIRST CONSUME, RESTART z EACH REUSE, 1 minute)",
         R"([3,61):("x@1 z@3"))"},
        {"UNLESS(SEQUENCE(INSTALL x, RESTART z, 5), SHUTDOWN n, 1, 2)", ""},
        {"UNLESS(SEQUENCE(INSTALL x, RESTART z, 5), SHUTDOWN n, 2, 2)", R"([5,6):("x@1 z@3"))"},
        {"SEQUENCE(ATMOST(1, INSTALL, SHUTDOWN, 2) AS f, RESTART z, 5)", R"([3,6):("f@1 z@3"))"},
        {"RESTART z", R"([3,4):("z@3"))"}})
    BOOST_TEST(
        answer(std::string("EVENT e WHEN ") + pattern + " OUTPUT contributors", events) == expected,
        pattern);
  BOOST_TEST(answer("EVENT e WHEN ANY(INSTALL x, SHUTDOWN y) WHERE x.v > 1 OR x.v = 0 "
                    "OUTPUT x.v * 2 - -1 AS n, x.Machine_Id AS m #[3, 1 minute)",
                    events) == R"([4,5):(9, "a"))");
}

BOOST_AUTO_TEST_CASE(statements_name_events_of_others) {
  const Query q = parse_query(
      "EVENT up WHEN INSTALL x OUTPUT x.Machine_Id AS m;"
      "EVENT twice WHEN SEQUENCE(up x, up y, 9) WHERE CorrelationKey(m, UNIQUE);",
      kTypes);
  BOOST_TEST(q.outputs().size() == 2u);
  BOOST_TEST(q.sources().size() == 1u);
  BOOST_TEST(q.explain().find("SEQUENCE(x, y, 9)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(slices_cut_occurrence_and_validity) {  // A12
  const std::vector<EventType> types{{"s", {{"p", Type::integer}, {"occurrence", Type::integer}}}};
  for (const char* output : {"", "OUTPUT x.p AS p, occurrence", "OUTPUT x.p AS p"}) {
    const Query q =
        parse_query(std::string("EVENT e WHEN s x ") + output + " @[2, 4) #[1, 3)", types);
    Ran ran(q);
    const std::pair<Time, Time> valid[] = {{0, 2}, {2, 5}, {1, 9}, {0, 3}};
    for (int o = 1; o <= 4; ++o)
      ran.insert(0, static_cast<Key>(o), valid[o - 1].first, valid[o - 1].second, {in(o), in(o)});
    ran.run.finish();
    std::vector<std::tuple<Time, Time, std::int64_t>> rows;
    for (const Lived& row : ran.table())
      rows.emplace_back(row.begin, row.end, std::get<std::int64_t>(row.payload[0]));
    BOOST_TEST((rows == decltype(rows){{1, 3, 3}, {2, 3, 2}}), output);
  }
}

BOOST_AUTO_TEST_CASE(errors_name_line_column_and_expectation) {
  BOOST_TEST(refused("EVENT e\nWHEN SEQUENCE(INSTALL x SHUTDOWN y, 5)") ==
             "line 2, column 25: found 'SHUTDOWN'; expected ',' and the time that the pattern "
             "spans");
  BOOST_TEST(refused("EVENT e WHEN START x") ==
             "line 1, column 14: found 'START'; expected one of the events INSTALL, SHUTDOWN, "
             "RESTART");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x WHERE y.v = 1") ==
             "line 1, column 30: found 'y'; expected one of the variables x");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x WHERE x.w = 1") ==
             "line 1, column 32: found 'w'; expected one of the fields (Machine_Id text, v "
             "integer)");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x WHERE x.v = ") ==
             "line 1, column 36: found the end; expected a value, such as x.field or 5");
  BOOST_TEST(refused("WHEN INSTALL x") == "line 1, column 1: found 'WHEN'; expected EVENT");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x WHERE CorrelationKey(v, SAME)") ==
             "line 1, column 48: found 'SAME'; expected EQUAL or UNIQUE");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x WHERE CorrelationKey(v, EQUAL) AND x.v = 1 OR x.v = "
                     "2")
                 .starts_with("line 1, column 67: found 'OR'; expected AND, because"));
  BOOST_TEST(refused("EVENT e WHEN SEQUENCE(INSTALL x, INSTALL x, 5)") ==
             "line 1, column 42: two events are 'x'; give them variables");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x WHERE x.v = 'a") ==
             "line 1, column 36: a text is not closed; end it with '");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x WHERE x.v = 'a'")
                 .starts_with("line 1, column 14: '==' takes no integer and text"));
  BOOST_TEST(refused("EVENT e WHEN SEQUENCE(INSTALL x, RESTART y, 1 millisecond)") ==
             "line 1, column 45: a time is 0.001 units, of which a second has 1; give a whole "
             "number");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x #[5, 2)") ==
             "line 1, column 25: a slice is empty; let it end after its begin");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x ?") ==
             "line 1, column 24: the language has no character '?'; remove it");
  BOOST_TEST(refused("EVENT INSTALL WHEN INSTALL x") ==
             "line 1, column 7: the event 'INSTALL' is a source; name another");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x; EVENT e WHEN RESTART y") ==
             "line 1, column 31: two events are 'e'; rename one");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x OUTPUT x.v + 1") ==
             "line 1, column 38: found the end; expected AS and a name for the value");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x OUTPUT x.v, x.v + 1 AS v") ==
             "line 1, column 47: OUTPUT has two fields 'v'; rename one with AS");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x FIRST") ==
             "line 1, column 24: found 'FIRST'; expected ';' or the end");
  BOOST_TEST(refused("EVENT e WHEN INSTALL x @[1, 2)").starts_with("line 1, column 14: field "));
}

BOOST_AUTO_TEST_CASE(hostile_texts_are_refused) {
  const auto repeated = [](const char* part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += part;
    return out;
  };
  const std::string begin = "EVENT e WHEN INSTALL x WHERE ";
  BOOST_TEST(refused("EVENT e WHEN " + repeated("ANY(", 3000)).find("nested deeper than 64") !=
             std::string::npos);
  for (const char* open : {"(", "{", "- ", "NOT "})
    BOOST_TEST(
        refused(begin + repeated(open, 4000)).find("nested deeper than 64") != std::string::npos,
        open);
  BOOST_TEST(refused(begin + "x.v = 1" + repeated(" + 1", 2000)).find("more than 1000 operators") !=
             std::string::npos);
  BOOST_TEST(refused(begin + "x.v = 1" + repeated(" AND x.v = 1", 1500))
                 .find("more than 1000 operators") != std::string::npos);
  BOOST_TEST(refused(repeated("x ", 20'000)).find("more than 10000 tokens") != std::string::npos);
  std::string many = "EVENT e WHEN ANY(INSTALL x";
  for (int i = 0; i < 80; ++i) many += ", RESTART r" + std::to_string(i);
  BOOST_TEST(refused(many + ")").find("more than 64 events") != std::string::npos);
  BOOST_TEST(refused("EVENT e WHEN SEQUENCE(INSTALL x, 99999999999999999999)") != "");
  BOOST_TEST(refused("EVENT e WHEN SEQUENCE(INSTALL x, 9000000000000000000 weeks)") != "");
}

BOOST_AUTO_TEST_CASE(mutated_texts_parse_or_are_refused) {
  const std::string sound =
      "EVENT M WHEN UNLESS(SEQUENCE(INSTALL x FIRST, SHUTDOWN AS y CONSUME, 12 hours), RESTART "
      "z, 1, 5 minutes) WHERE {x.v = y.v} AND CorrelationKey(Machine_Id, EQUAL) AND NOT (x.v < 3 "
      "OR y.Machine_Id = 'a''b') OUTPUT x.v + 2.5 * y.v AS s, root @[1, 2) #[-3, FOREVER);";
  std::mt19937_64 random(7);
  int refusals = 0;
  for (int n = 0; n < 3000; ++n) {
    std::string text = sound;
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0) text.erase(at, 1 + random() % 9);
      else if (random() % 2 == 0) text[at] = static_cast<char>(random() % 256);
      else text.insert(at, sound.substr(random() % sound.size(), random() % 20));
      if (text.empty()) text = " ";
    }
    try {
      parse_query(text, kTypes);
    } catch (const Error& error) {
      BOOST_TEST(std::string(error.what()).starts_with("line "), error.what());
      ++refusals;
    }
  }
  BOOST_TEST(refusals > 1000);
}

BOOST_AUTO_TEST_CASE(units_are_exact) {
  for (const auto& [second, unit] : {std::pair(Time{1'000}, "millisecond"),
                                     {1'000'000, "microseconds"},
                                     {1'000'000'000, "nanoseconds"}})
    for (int n = 1; n <= 40; ++n) {
      const std::string text = std::to_string(n);
      const Query q = parse_query("EVENT e WHEN INSTALL x WHERE x.v > " + text + " " + unit +
                                      "; EVENT f WHEN SEQUENCE(INSTALL x, RESTART y, " + text +
                                      " " + unit + " 1.5 minutes)",
                                  kTypes, second);
      BOOST_TEST(q.explain().find(", " + std::to_string(n + 90 * second) + ")") !=
                 std::string::npos);
    }
  BOOST_TEST(refused("EVENT e WHEN SEQUENCE(INSTALL x, RESTART y, 1000000.4 seconds)")
                 .starts_with("line 1, column 45: a time is 1000000.4 units"));
}

BOOST_AUTO_TEST_CASE(a_query_keeps_its_text_until_it_changes) {
  const std::string text = "EVENT E WHEN INSTALL x";
  Query q = parse_query(text, kTypes, 60);
  q.set_consistency(Consistency::strong());
  BOOST_REQUIRE(q.text());
  BOOST_TEST(q.text()->text == text);
  BOOST_TEST(q.text()->types.size() == kTypes.size());
  BOOST_TEST(q.text()->second == 60);
  Query more = q;
  more.source("more", kHost);
  BOOST_TEST(!more.text());
  BOOST_TEST((q.text() != nullptr));
  BOOST_TEST(!Query().text());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
