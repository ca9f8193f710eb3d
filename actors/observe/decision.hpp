// Decision: the formula of comparisons that decides whether a loop goes on; whether it can change.
//
// `LoopConditionAnalysis` traces a loop's predicate back to comparisons of numbers
// (actors/observe/loop_condition.hpp). A partition records their operands for a while. From two
// such looks at a comparison follows whether its result is settled. The argument depends on the
// course of its operands:
//
//   same     Neither side depends on anything that the loop changes: the result is constant.
//   exact    Both sides are integers with a constant step, so their difference is on a line. The
//            result is settled if the difference moves away from its change of sign. Both looks
//            and the step of one iteration must agree to the last digit, which excludes a value
//            that has wrapped around. A later overflow must be a million iterations away, and
//            10,000 times as many as between the looks (an hour, for looks half a second apart).
//   one_way  One side is a float that is monotonic: it is made from its last value by a monotonic
//            step (a constant summand, a positive factor) and rounded. The other side is constant.
//            It is settled only if the sides are seen to move apart.
//   carried  A boolean that the loop carries. It is constant if it is f now and its update yields f
//            for every value of its undecided inputs (induction).
//   any      The course is unknown. It is never settled here, because any iteration may be the
//            last. actors/observe/recurrence.hpp decides if all values repeat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::detail {

enum class Truth : std::uint8_t { no, yes, unknown };
constexpr Truth truth_of(bool b) { return b ? Truth::yes : Truth::no; }
constexpr Truth negation(Truth t) { return t == Truth::unknown ? t : truth_of(t == Truth::no); }

/// A comparison of two numbers in a loop, with the operands observed in one iteration. A boolean
/// alone is compared with 0.
struct Comparison {
  enum class Relation : std::uint8_t { lt, le, gt, ge, eq, ne };
  enum class Course : std::uint8_t { any, same, exact, one_way, carried };
  Relation relation = Relation::lt;
  Course course = Course::any;
  bool is_truth = false;  // `left` is 0 or 1, and not shown in texts
  // both are integers, which are exact below this limit; 0: not both are integers
  double whole_below = 0;
  std::int64_t at = -1;  // the observed iteration; -1: none yet
  double left = 0, right = 0;
  double left_step = 0, right_step = 0;  // since the iteration before
  bool has_step = false;                 // the iteration before was observed too

  /// Stores the operands of an iteration later than all observed before.
  void see(std::int64_t iteration, double l, double r);
  bool holds() const;
  /// Returns the comparison as text: `3 < 5`, or `3 < 2 is not true`.
  std::string text() const;
  friend bool operator==(const Comparison&, const Comparison&) = default;
};

/// A formula in postfix order over comparisons.
struct Decision {
  struct Term {
    enum class Kind : std::uint8_t {
      unknown,   // a value that is not traced
      compares,  // a comparison
      before,    // the carried boolean `comparison`, as an operand of its own update
      keeps,     // pops the update of the carried boolean, and pushes the boolean
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
  /// Marks a comparison as one that will not be observed.
  void forget(std::int32_t comparison);
  /// True if all comparisons of the formula have been observed.
  bool is_observed() const;
  /// Returns the observed comparisons and their results; empty: all are booleans.
  std::string text() const;
};

/// Returns the comparison's result in all iterations after that of `now`; unknown: it may change.
Truth is_decided(const Comparison& then, const Comparison& now);

/// True if two looks at one execution of a loop prove that the predicate is true for ever. Uses
/// Kleene's three-valued logic. Formulas may come from a peer: an invalid one returns false.
bool is_always_true(const Decision& then, const Decision& now);

}  // namespace troupe::detail
