// Decisions from two looks at comparisons, and their consequences for a predicate.
#include <boost/test/unit_test.hpp>

#include <limits>
#include <optional>
#include <vector>

#include <troupe/actors/observe/decision.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(decision_test, TROUPE_ONE_THREAD)

namespace {

using Relation = Comparison::Relation;
using Course = Comparison::Course;
using Kind = Decision::Term::Kind;

Comparison seen(Relation relation, Course course, std::int64_t at, double left, double right,
                std::optional<double> left_step = {}, double right_step = 0) {
  Comparison c;
  c.relation = relation, c.course = course, c.at = at, c.left = left, c.right = right;
  if (course == Course::exact) c.whole_below = 0x1p31;
  if (left_step) c.has_step = true, c.left_step = *left_step, c.right_step = right_step;
  return c;
}

Truth of_line(Relation relation, double left, double step, double right, double right_step = 0) {
  return is_decided(seen(relation, Course::exact, 10, left, right),
                    seen(relation, Course::exact, 20, left + 10 * step, right + 10 * right_step,
                         step, right_step));
}

Truth of_float(Relation relation, double then, double now, double right) {
  return is_decided(seen(relation, Course::one_way, 10, then, right),
                    seen(relation, Course::one_way, 20, now, right, (now - then) / 10));
}

}  // namespace

BOOST_AUTO_TEST_CASE(integers_on_a_line) {
  using enum Relation;
  // Away from where it would change, towards it, and alongside.
  struct Row {
    Relation relation;
    double left, step;
    Truth expected;
  };
  const Row rows[] = {
      {lt, 0, -1, Truth::yes},       {lt, 0, 1, Truth::unknown},    {lt, 0, 0, Truth::yes},
      {lt, 200, 1, Truth::no},       {lt, 200, -1, Truth::unknown}, {lt, 100, 0, Truth::no},
      {le, 0, -1, Truth::yes},       {le, 0, 1, Truth::unknown},    {le, 100, 0, Truth::yes},
      {le, 200, 1, Truth::no},       {le, 200, -1, Truth::unknown}, {gt, 200, 1, Truth::yes},
      {gt, 200, -1, Truth::unknown}, {gt, 200, 0, Truth::yes},      {gt, 0, -1, Truth::no},
      {gt, 0, 1, Truth::unknown},    {gt, 100, 0, Truth::no},       {ge, 200, 1, Truth::yes},
      {ge, 200, -1, Truth::unknown}, {ge, 100, 0, Truth::yes},      {ge, 0, -1, Truth::no},
      {ge, 0, 1, Truth::unknown},    {eq, 100, 0, Truth::yes},      {eq, 200, 1, Truth::no},
      {eq, 200, -1, Truth::unknown}, {eq, 0, 0, Truth::no},         {ne, 100, 0, Truth::no},
      {ne, 200, 1, Truth::yes},      {ne, 0, -1, Truth::yes},       {ne, 0, 1, Truth::unknown},
      {ne, 0, 0, Truth::yes},
  };
  for (const Row& row : rows)
    BOOST_TEST((of_line(row.relation, row.left, row.step, 100) == row.expected),
               static_cast<int>(row.relation) << ": " << row.left << " by " << row.step);
  BOOST_TEST((of_line(lt, 0, 3, 50, 3) == Truth::yes));
  BOOST_TEST((of_line(lt, 0, 3, 50, 2) == Truth::unknown));
}

BOOST_AUTO_TEST_CASE(integers_that_are_not_on_a_line_as_far_as_is_known) {
  const auto then = seen(Relation::ge, Course::exact, 10, 100, 0);
  BOOST_TEST((is_decided(then, seen(Relation::ge, Course::exact, 20, 110, 0, 1)) == Truth::yes));
  // no step was seen
  BOOST_TEST((is_decided(then, seen(Relation::ge, Course::exact, 20, 110, 0)) == Truth::unknown));
  // it was another one
  BOOST_TEST(
      (is_decided(then, seen(Relation::ge, Course::exact, 20, 110, 0, 2)) == Truth::unknown));
  // nothing has happened
  BOOST_TEST(
      (is_decided(then, seen(Relation::ge, Course::exact, 10, 100, 0, 1)) == Truth::unknown));
  // it has changed
  BOOST_TEST(
      (is_decided(then, seen(Relation::ge, Course::exact, 20, -10, 0, -11)) == Truth::unknown));
  const auto far = seen(Relation::ge, Course::exact, 10, 2e9, 0);
  BOOST_TEST(
      (is_decided(far, seen(Relation::ge, Course::exact, 20, 2e9 + 10, 0, 1)) == Truth::yes));
  // wraps around before long
  BOOST_TEST((is_decided(far, seen(Relation::ge, Course::exact, 20, 2e9 + 10'000, 0, 1000)) ==
              Truth::unknown));
}

BOOST_AUTO_TEST_CASE(floats_that_never_turn_round) {
  using enum Relation;
  BOOST_TEST((of_float(gt, 1, 2, 0) == Truth::yes));
  BOOST_TEST((of_float(gt, 2, 1, 0) == Truth::unknown));
  BOOST_TEST((of_float(lt, 1, 2, 0) == Truth::no));
  BOOST_TEST((of_float(gt, 1, 1, 0) == Truth::unknown));  // it may move later
  BOOST_TEST((of_float(ne, 1, 2, 0) == Truth::yes));
  BOOST_TEST((of_float(ne, -1, -0.5, 0) == Truth::unknown));
  // no step was seen
  BOOST_TEST((is_decided(seen(gt, Course::one_way, 10, 1, 0),
                         seen(gt, Course::one_way, 20, 2, 0)) == Truth::unknown));
  // or one the other way
  BOOST_TEST((is_decided(seen(gt, Course::one_way, 10, 1, 0),
                         seen(gt, Course::one_way, 20, 2, 0, -0.5)) == Truth::unknown));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  BOOST_TEST((of_float(gt, 1, nan, 0) == Truth::unknown));
  BOOST_TEST((of_float(lt, nan, nan, 0) == Truth::unknown));
}

// Whatever they did so far.
BOOST_AUTO_TEST_CASE(other_numbers_settle_nothing) {
  for (const double then : {3.0, 7.0})
    for (const double now : {3.0, 2.0, 7.0, 8.0})
      BOOST_TEST((is_decided(seen(Relation::lt, Course::any, 10, then, 5),
                             seen(Relation::lt, Course::any, 1'000'000, now, 5,
                                  (now - then) / 10)) == Truth::unknown));
}

BOOST_AUTO_TEST_CASE(steps_are_of_iterations_that_follow_each_other) {
  Comparison c = seen(Relation::lt, Course::exact, -1, 0, 0);
  c.see(4, 10, 50);
  BOOST_TEST(!c.has_step);
  c.see(5, 13, 49);
  BOOST_TEST(c.has_step);
  BOOST_TEST(c.left_step == 3);
  BOOST_TEST(c.right_step == -1);
  c.see(7, 19, 47);
  BOOST_TEST(!c.has_step);
  BOOST_TEST((c.at == 7 && c.left == 19 && c.right == 47));
}

namespace {

Decision of(std::vector<Decision::Term> terms, std::vector<Comparison> comparisons) {
  return {std::move(terms), std::move(comparisons)};
}

/// A comparison that is settled to be so; or that is not.
Comparison stays(bool truth) { return seen(Relation::lt, Course::same, 3, truth ? 0 : 9, 5); }
Comparison moves() { return seen(Relation::lt, Course::any, 3, 0, 5); }

bool is_true_for_ever(const Decision& d) { return is_always_true(d, d); }

}  // namespace

BOOST_AUTO_TEST_CASE(logic_of_three_values) {
  const std::vector<Comparison> three{stays(false), stays(true), moves()};
  const Truth values[] = {Truth::no, Truth::yes, Truth::unknown};
  for (int a = 0; a < 3; ++a) {
    BOOST_TEST(is_true_for_ever(of({{Kind::compares, a}}, three)) == (values[a] == Truth::yes));
    BOOST_TEST(is_true_for_ever(of({{Kind::compares, a}, {Kind::negates, -1}}, three)) ==
               (values[a] == Truth::no));
    for (int b = 0; b < 3; ++b) {
      BOOST_TEST(is_true_for_ever(
                     of({{Kind::compares, a}, {Kind::compares, b}, {Kind::both, -1}}, three)) ==
                 (values[a] == Truth::yes && values[b] == Truth::yes));
      BOOST_TEST(is_true_for_ever(
                     of({{Kind::compares, a}, {Kind::compares, b}, {Kind::either, -1}}, three)) ==
                 (values[a] == Truth::yes || values[b] == Truth::yes));
      BOOST_TEST(
          is_true_for_ever(
              of({{Kind::compares, a}, {Kind::compares, b}, {Kind::both, -1}, {Kind::negates, -1}},
                 three)) == (values[a] == Truth::no || values[b] == Truth::no));
    }
  }
  BOOST_TEST(
      is_true_for_ever(of({{Kind::unknown, -1}, {Kind::compares, 1}, {Kind::either, -1}}, three)));
  BOOST_TEST(!is_true_for_ever(of({{Kind::unknown, -1}}, three)));
}

BOOST_AUTO_TEST_CASE(carried_truths_by_induction) {
  Comparison flag = seen(Relation::ne, Course::carried, 8, 1, 0);
  const auto kept_if = [&](const Comparison& other) {
    return is_true_for_ever(
        of({{Kind::before, 0}, {Kind::compares, 1}, {Kind::both, -1}, {Kind::keeps, 0}},
           {flag, other}));
  };
  BOOST_TEST(kept_if(stays(true)));
  BOOST_TEST(!kept_if(stays(false)));
  BOOST_TEST(!kept_if(moves()));
  // Set once, it is for ever, whatever else is gathered.
  BOOST_TEST(is_true_for_ever(
      of({{Kind::before, 0}, {Kind::compares, 1}, {Kind::either, -1}, {Kind::keeps, 0}},
         {flag, moves()})));
  flag.left = 0;
  BOOST_TEST(!is_true_for_ever(
      of({{Kind::before, 0}, {Kind::compares, 1}, {Kind::either, -1}, {Kind::keeps, 0}},
         {flag, stays(false)})));
  BOOST_TEST(is_true_for_ever(of({{Kind::before, 0},
                                  {Kind::compares, 1},
                                  {Kind::either, -1},
                                  {Kind::keeps, 0},
                                  {Kind::negates, -1}},
                                 {flag, stays(false)})));
  BOOST_TEST(!is_true_for_ever(of({{Kind::before, 0},
                                   {Kind::compares, 1},
                                   {Kind::either, -1},
                                   {Kind::keeps, 0},
                                   {Kind::negates, -1}},
                                  {flag, moves()})));

  // A comparison that is decided from an iteration on proves nothing about a truth seen before it.
  const std::vector<Decision::Term> gathers{
      {Kind::before, 0}, {Kind::compares, 1}, {Kind::both, -1}, {Kind::keeps, 0}};
  flag.left = 1;
  const Comparison then = seen(Relation::ge, Course::exact, 10, 0, 0),
                   now = seen(Relation::ge, Course::exact, 20, 10, 0, 1);
  flag.at = 9;
  BOOST_TEST(!is_always_true(of(gathers, {flag, then}), of(gathers, {flag, now})));
  flag.at = 10;
  BOOST_TEST(is_always_true(of(gathers, {flag, then}), of(gathers, {flag, now})));
  flag.at = -1;
  BOOST_TEST(!is_always_true(of(gathers, {flag, then}), of(gathers, {flag, now})));
}

// They may come from a peer.
BOOST_AUTO_TEST_CASE(malformed_formula_is_not_true) {
  const std::vector<Comparison> one{stays(true)};
  BOOST_TEST(!is_true_for_ever({}));
  for (const std::vector<Decision::Term>& terms :
       std::initializer_list<std::vector<Decision::Term>>{
           {{Kind::negates, -1}},
           {{Kind::both, -1}},
           {{Kind::compares, 0}, {Kind::either, -1}},
           {{Kind::compares, 0}, {Kind::compares, 0}},
           {{Kind::compares, 1}},
           {{Kind::compares, -1}},
           {{Kind::keeps, 0}},
           {{Kind::before, 7}},
           {{static_cast<Kind>(99), 0}}})
    BOOST_TEST(!is_true_for_ever(of(terms, one)));
  const Decision good = of({{Kind::compares, 0}}, one);
  BOOST_TEST(is_true_for_ever(good));
  BOOST_TEST(!is_always_true({}, good));
  BOOST_TEST(!is_always_true(of({{Kind::compares, 0}}, {}), good));
  BOOST_TEST(!of({{Kind::compares, 3}}, one).is_observed());
}

BOOST_AUTO_TEST_CASE(unobserved_values_are_dropped) {
  Decision d = of({{Kind::compares, 0}, {Kind::compares, 1}, {Kind::either, -1}},
                  {seen(Relation::lt, Course::any, -1, 0, 0), stays(true)});
  BOOST_TEST(!d.is_observed());
  d.forget(0);
  BOOST_TEST(d.is_observed());
  BOOST_TEST(is_true_for_ever(d));
  Decision carries =
      of({{Kind::before, 0}, {Kind::keeps, 0}}, {seen(Relation::ne, Course::carried, -1, 0, 0)});
  carries.forget(0);
  BOOST_TEST(!carries.is_followed());
}

BOOST_AUTO_TEST_CASE(people_read_numbers) {
  Comparison truth = stays(true);
  truth.is_truth = true;
  const Comparison unseen = seen(Relation::lt, Course::any, -1, 0, 0);
  BOOST_TEST(of({}, {seen(Relation::ge, Course::any, 4, 12, 0), truth, unseen,
                     seen(Relation::lt, Course::any, 4, 3, 2.5)})
                 .text() == "12 >= 0, 3 < 2.5 is not true");
  BOOST_TEST(of({}, std::vector<Comparison>(5, stays(true))).text() ==
             "0 < 5, 0 < 5, 0 < 5, 0 < 5, ...");
  BOOST_TEST(of({}, {truth}).text() == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
