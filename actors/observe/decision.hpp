// What decides whether a loop goes on, and whether it can still change.
//
// The predicate of a loop is followed back to comparisons of numbers (actors/observe/endless.hpp).
// A partition notes for a while what they compare; two such looks tell of each whether it can ever
// come out differently:
//
//   same      neither side depends on anything that the loop changes: it stays as it is
//   exact     both sides are integers that change by the same step in each iteration: their difference is on a line, and stays if it
//             leads away from where it would change. Two looks and a step of one iteration must agree to the last digit: what has
//             wrapped around does not lie on that line. What will is not for ever; but it must be a million iterations away, and ten
//             thousand times as many as passed between the looks (an hour, where these are half a second apart)
//   one_way   one side is a float that never turns round, for it is made from the one before it by what never falls (a step that stays, a
//             positive factor) and rounded; the other stays. It is settled only where they are seen to go away from each other
//   carried   a truth that the loop carries: if it is f now, and its next value is f whatever is not settled of what that depends on,
//             it is f for ever, by induction
//   any       how it goes on is not known: never settled here, whatever it did so far, for any iteration may be its last. Where all that
//             the predicate comes from is again what it was, actors/observe/recurrence.hpp tells
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::detail {

enum class Truth : std::uint8_t { no, yes, unknown };
constexpr Truth truth_of(bool b) { return b ? Truth::yes : Truth::no; }
constexpr Truth negation(Truth t) { return t == Truth::unknown ? t : truth_of(t == Truth::no); }

/// Two numbers that a loop compares in its iterations, as one of them was seen to. A truth by
/// itself is compared with 0.
struct Comparison {
  enum class Relation : std::uint8_t { lt, le, gt, ge, eq, ne };
  enum class Course : std::uint8_t { any, same, exact, one_way, carried };
  Relation relation = Relation::lt;
  Course course = Course::any;
  bool is_truth = false;  // `left` is 0 or 1, and of no interest to people
  // both are integers that count on below this only; 0: they are not both
  double whole_below = 0;
  std::int64_t at = -1;  // the iteration; -1: none was seen yet
  double left = 0, right = 0;
  double left_step = 0, right_step = 0;  // since the iteration before
  bool has_step = false;                 // which was seen too

  /// In an iteration that comes after all that were seen.
  void see(std::int64_t iteration, double l, double r);
  bool holds() const;
  /// As people write it: `3 < 5`, or `3 < 2 is not true`.
  std::string text() const;
  friend bool operator==(const Comparison&, const Comparison&) = default;
};

/// A formula in postfix order over comparisons.
struct Decision {
  struct Term {
    enum class Kind : std::uint8_t {
      unknown,   // what nobody follows
      compares,  // a comparison
      before,    // a carried truth, which is `comparison`, in what makes its next value
      keeps,     // takes that next value: the carried truth
      negates,
      both,
      either,
    };
    Kind kind = Kind::unknown;
    std::int32_t comparison = -1;
    friend bool operator==(const Term&, const Term&) = default;
  };
  std::vector<Term> terms;  // empty: the predicate is not followed
  std::vector<Comparison> comparisons;
  friend bool operator==(const Decision&, const Decision&) = default;

  bool is_followed() const { return !terms.empty(); }
  /// Nobody will see this comparison.
  void forget(std::int32_t comparison);
  /// Have all comparisons of the formula been seen?
  bool is_observed() const;
  /// Those that were, with what they came to; empty: none but truths.
  std::string text() const;
};

/// What is known of the iterations that follow the one of `now`: does the comparison come out as it
/// did, for ever?
Truth settled(const Comparison& then, const Comparison& now);

/// Is the predicate true for ever, as two looks at the same execution of a loop tell? Kleene's
/// logic of three values. Formulas may come from a peer: one that is none is not true.
bool stays_true(const Decision& then, const Decision& now);

}  // namespace troupe::detail
