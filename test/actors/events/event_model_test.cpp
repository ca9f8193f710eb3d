// The event model: batches, schemas, canonical tables, equivalence, formulas.
#include <troupe/actors/events/formula.hpp>
#include <troupe/actors/events/table.hpp>

#include <boost/test/unit_test.hpp>

#include <fmt/format.h>

#include <troupe/test/actors/events/streams.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::events {

BOOST_AUTO_TEST_SUITE(event_model_test, TROUPE_ONE_THREAD)

namespace {
using namespace troupe::test;
const Schema kOne{{"p", Type::text}};

History history_of(std::initializer_list<Batch> batches) {
  History history;
  for (const Batch& batch : batches) history.add(batch);
  return history;
}
}  // namespace

BOOST_AUTO_TEST_CASE(coalesce_merges_equal_payloads) {  // A9
  const Table table{{0, 3, {tx("a")}}, {3, 5, {tx("a")}}, {7, 9, {tx("a")}}, {4, 6, {tx("b")}}};
  BOOST_TEST(text_of(coalesce(table)) == R"([0,5):("a") [4,6):("b") [7,9):("a"))");
}

BOOST_AUTO_TEST_CASE(normal_form_counts_equal_rows) {
  const Table twice{{0, 5, {in(1)}}, {3, 8, {in(1)}}},
      cut{{0, 3, {in(1)}}, {3, 5, {in(1)}}, {3, 5, {in(1)}}, {5, 8, {in(1)}}};
  BOOST_TEST((normal(twice) == normal(cut)));
  BOOST_TEST((normal(twice) != normal({{0, 8, {in(1)}}})));
  BOOST_TEST((coalesce(twice) == coalesce({{0, 8, {in(1)}}})));
}

BOOST_AUTO_TEST_CASE(canonical_form_forgets_arrival) {
  Batch a(kOne), b(kOne);
  a.insert(1, 0, 10, {tx("x")});
  a.retract(1, 6);
  a.retract(1, 4);
  a.insert(2, 3, 9, {tx("y")});
  a.retract(2, 3);
  b.retract(7, 4);
  b.insert(7, 0, 10, {tx("x")});
  const History one = history_of({a}), other = history_of({b});
  BOOST_TEST(text_of(canonical(one)) == R"([0,4):("x"))");
  BOOST_TEST(is_equivalent_to(one, other));
  BOOST_TEST(text_of(canonical(one, 1)) == R"([0,2):("x"))");
  BOOST_TEST(text_of(canonical_at(one, 3)) == R"([3,4):("x"))");
  BOOST_TEST(text_of(canonical_at(one, 4)).empty());
}

BOOST_AUTO_TEST_CASE(equivalence_is_up_to_a_time_or_at_it) {
  Batch a(kOne), b(kOne);
  a.insert(1, 0, 10, {tx("x")});
  b.insert(1, 2, 10, {tx("x")});
  const History one = history_of({a}), other = history_of({b});
  BOOST_TEST(!is_equivalent_to(one, other, 5));
  BOOST_TEST(is_equivalent_at(one, other, 5));
  BOOST_TEST(!is_equivalent_at(one, other, 1));
}

BOOST_AUTO_TEST_CASE(times_do_not_wrap_around) {
  BOOST_TEST(later(kForever - 1, 5) == kForever);
  BOOST_TEST(earlier(kNever + 1, 5) == kNever);
  BOOST_TEST(earlier(5, kForever) == kNever);
  BOOST_TEST(round_down(-3, 5) == -5);
  BOOST_TEST(round_down(5, 5) == 5);
  BOOST_TEST(!is_settled(kForever, 5));
  BOOST_TEST(is_settled(6, 5));
  BOOST_TEST(!is_settled(7, 5));
}

BOOST_AUTO_TEST_CASE(messages_are_readable) {
  Batch a(Schema{{"n", Type::integer}, {"r", Type::real}});
  a.insert(1, 0, kForever, {in(7), Value(0.5)});
  a.retract(1, 4);
  a.guarantee = 3;
  BOOST_TEST(text_of(a) == "I(1,[0,inf):(7, 0.5))\nR(1,4)\nG(3)\n");
}

BOOST_AUTO_TEST_CASE(schemas_refuse_bad_names) {
  BOOST_TEST(refusal(
                 [] {
                   Schema{{"a", Type::text}, {"a", Type::real}};
                 },
                 Code::already_exists) == "a schema has two fields 'a'; rename one");
  BOOST_TEST(refusal(
                 [] {
                   Schema{{"", Type::text}};
                 },
                 Code::invalid_argument) == "a schema has a field without a name; name it");
  BOOST_TEST(refusal([] { kOne.index("q"); }, Code::not_found) ==
             "field 'q' is not in (p text); name one of these");
  Batch batch(kOne);
  BOOST_TEST(refusal([&] { batch.insert(1, 0, 1, {in(1)}); }, Code::invalid_argument) ==
             "field 0 of an event is integer and the schema has text; convert it");
  BOOST_TEST(refusal([&] { batch.insert(1, 0, 1, {}); }, Code::invalid_argument) ==
             "an event has 0 fields and the schema 1; give one value a field");
}

BOOST_AUTO_TEST_CASE(formulas_compute_columns) {
  const Schema schema{{"n", Type::integer}, {"r", Type::real}, {"s", Type::text}};
  Batch batch(schema);
  batch.insert(1, 0, 1, {in(7), Value(0.5), tx("a")});
  batch.insert(2, 0, 1, {in(-2), Value(4.0), tx("b")});
  const auto row = [&](const Formula& f) {
    const Column column = f.bind(schema).evaluate(batch);
    return text_of(Row{value_at(column, 0), value_at(column, 1)});
  };
  BOOST_TEST(row(field("n") + 1) == "(8, -1)");
  BOOST_TEST(row(field("n") * field("r")) == "(3.5, -8)");
  BOOST_TEST(row(field("n") / 2) == "(3.5, -1)");
  BOOST_TEST(row(field("n") % 0) == "(0, 0)");
  BOOST_TEST(row(field("n") % -1) == "(0, 0)");
  BOOST_TEST(row(field("s") == "a") == "(1, 0)");
  BOOST_TEST(row(field("r") >= 1 || !(field("n") > 0)) == "(0, 1)");
  BOOST_TEST(row(field("n") > 0 && field("s") < "b") == "(1, 0)");
  BOOST_TEST(row(INT64_MAX + field("n")) == fmt::format("({}, {})", INT64_MIN + 6, INT64_MAX - 2));
  BOOST_TEST(row(3) == "(3, 3)");
  BOOST_TEST(row(field("s")) == R"(("a", "b"))");
}

BOOST_AUTO_TEST_CASE(formulas_refuse_mixed_types) {
  const Schema schema{{"n", Type::integer}, {"r", Type::real}, {"s", Type::text}};
  BOOST_TEST(refusal([&] { (field("s") > 1).bind(schema); }, Code::invalid_argument) ==
             "'>' takes no text and integer in (s > 1); convert one");
  BOOST_TEST(refusal([&] { (field("s") + field("s")).bind(schema); }, Code::invalid_argument) ==
             "'+' takes no text and text in (s + s); convert one");
  BOOST_TEST(refusal([&] { (field("r") % 2).bind(schema); }, Code::invalid_argument) ==
             "'%' takes no real and integer in (r % 2); convert one");
  BOOST_TEST(refusal([&] { field("x").bind(schema); }, Code::not_found) ==
             "field 'x' is not in (n integer, r real, s text); name one of these");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::events
