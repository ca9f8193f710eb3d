#include <troupe/actors/observe/decision.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace troupe::detail {
namespace {

using Relation = Comparison::Relation;
using Course = Comparison::Course;

bool relates(Relation relation, double l, double r) {
  switch (relation) {
    case Relation::lt: return l < r;
    case Relation::le: return l <= r;
    case Relation::gt: return l > r;
    case Relation::ge: return l >= r;
    case Relation::eq: return l == r;
    case Relation::ne: return l != r;
  }
  return false;
}

// Returns true if the comparison keeps its result while the difference left - right, now `d`, rises
// (1), falls (-1) or stays (0).
bool leads_away(Relation relation, double d, int direction) {
  switch (relation) {
    case Relation::lt: return d < 0 ? direction <= 0 : direction >= 0;
    case Relation::le: return d <= 0 ? direction <= 0 : direction >= 0;
    case Relation::gt: return d > 0 ? direction >= 0 : direction <= 0;
    case Relation::ge: return d >= 0 ? direction >= 0 : direction <= 0;
    case Relation::eq:
    case Relation::ne:
      return direction == 0 || (d > 0 && direction > 0) || (d < 0 && direction < 0);
  }
  return false;
}

int sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// An integer that steps evenly, and does so for long yet before its type ends.
bool is_on_line(double then, double now, double step, double iterations, double whole_below) {
  const double ahead = std::max(0x1p20, 1e4 * iterations);
  return now - then == step * iterations && std::abs(now) + ahead * std::abs(step) < whole_below &&
         std::abs(then) < whole_below;
}

bool is_settled(const Comparison& then, const Comparison& now) {
  const double moved_left = now.left - then.left, moved_right = now.right - then.right;
  const auto iterations = static_cast<double>(now.at - then.at);
  if (now.course == Course::exact && now.has_step &&
      is_on_line(then.left, now.left, now.left_step, iterations, now.whole_below) &&
      is_on_line(then.right, now.right, now.right_step, iterations, now.whole_below) &&
      leads_away(now.relation, now.left - now.right, sign(now.left_step - now.right_step)))
    return true;
  const int direction = sign(moved_left) - sign(moved_right);
  return now.course == Course::one_way && now.has_step && (moved_left == 0) != (moved_right == 0) &&
         direction != 0 && direction == sign(now.left_step) - sign(now.right_step) &&
         leads_away(now.relation, now.left - now.right, direction);
}

bool is_same_kind(const Comparison& a, const Comparison& b) {
  return a.relation == b.relation && a.course == b.course && a.is_truth == b.is_truth &&
         a.whole_below == b.whole_below;
}

}  // namespace

void Comparison::see(std::int64_t iteration, double l, double r) {
  has_step = at >= 0 && iteration == at + 1;
  left_step = has_step ? l - left : 0;
  right_step = has_step ? r - right : 0;
  at = iteration, left = l, right = r;
}

bool Comparison::holds() const { return relates(relation, left, right); }

std::string Comparison::text() const {
  constexpr const char* kSigns[] = {"<", "<=", ">", ">=", "==", "!="};
  // whichever sign it has
  const auto number = [](double x) { return std::isnan(x) ? "nan" : fmt::format("{}", x); };
  return fmt::format("{} {} {}{}", number(left), kSigns[static_cast<std::size_t>(relation)],
                     number(right), holds() ? "" : " is not true");
}

void Decision::forget(std::int32_t comparison) {
  for (Term& term : terms) {
    if (term.comparison != comparison) continue;
    // a carried boolean: without it nothing can be proved
    if (term.kind != Term::Kind::compares) return terms.clear();
    term = {};
  }
}

bool Decision::is_observed() const {
  const auto is_missing = [&](const Term& t) {
    if (t.kind != Term::Kind::compares && t.kind != Term::Kind::keeps) return false;
    return t.comparison < 0 || static_cast<std::size_t>(t.comparison) >= comparisons.size() ||
           comparisons[static_cast<std::size_t>(t.comparison)].at < 0;
  };
  return is_followed() && std::none_of(terms.begin(), terms.end(), is_missing);
}

std::string Decision::text() const {
  constexpr int kNamed = 4;
  std::string all;
  int named = 0;
  for (const Comparison& c : comparisons) {
    if (c.at < 0 || c.is_truth) continue;
    if (named++ == kNamed) return all + ", ...";
    all += (all.empty() ? "" : ", ") + c.text();
  }
  return all;
}

Truth is_decided(const Comparison& then, const Comparison& now) {
  if (!is_same_kind(then, now) || now.at < 0) return Truth::unknown;
  const Truth truth = truth_of(now.holds());
  if (now.course == Course::same) return truth;
  if (now.course == Course::carried || then.at < 0 || then.at >= now.at ||
      then.holds() != now.holds())
    return Truth::unknown;
  return is_settled(then, now) ? truth : Truth::unknown;
}

bool is_always_true(const Decision& then, const Decision& now) {
  if (then.terms != now.terms || then.comparisons.size() != now.comparisons.size()) return false;
  // A settled comparison holds from the earlier look on. A carried boolean holds from the iteration
  // in which it was observed, which must not be before that.
  std::int64_t settled_from = -1;
  for (std::size_t i = 0; i < now.comparisons.size(); ++i)
    if (const Course course = now.comparisons[i].course;
        course != Course::same && course != Course::carried)
      settled_from = std::max(settled_from, then.comparisons[i].at);
  std::vector<Truth> stack;
  const auto pop = [&] {
    if (stack.empty()) return Truth::unknown;
    const Truth t = stack.back();
    stack.pop_back();
    return t;
  };
  for (const Decision::Term& term : now.terms) {
    using Kind = Decision::Term::Kind;
    const bool names_one =
        term.kind == Kind::compares || term.kind == Kind::keeps || term.kind == Kind::before;
    if (names_one && (term.comparison < 0 ||
                      static_cast<std::size_t>(term.comparison) >= now.comparisons.size()))
      return false;
    if (term.kind == Kind::both || term.kind == Kind::either || term.kind == Kind::negates ||
        term.kind == Kind::keeps)
      if (stack.size() < (term.kind == Kind::both || term.kind == Kind::either ? 2u : 1u))
        return false;
    const auto i = static_cast<std::size_t>(names_one ? term.comparison : 0);
    switch (term.kind) {
      case Kind::unknown: stack.push_back(Truth::unknown); break;
      case Kind::compares:
        stack.push_back(is_decided(then.comparisons[i], now.comparisons[i]));
        break;
      case Kind::before:
        stack.push_back(now.comparisons[i].at < 0 ? Truth::unknown
                                                  : truth_of(now.comparisons[i].holds()));
        break;
      case Kind::keeps: {
        const Comparison& c = now.comparisons[i];
        const Truth next = pop();
        const bool is_kept = c.at >= 0 && c.at >= settled_from && next == truth_of(c.holds());
        stack.push_back(is_kept ? next : Truth::unknown);
        break;
      }
      case Kind::negates: stack.push_back(negation(pop())); break;
      case Kind::both: {
        const Truth a = pop(), b = pop();
        stack.push_back(a == Truth::no || b == Truth::no     ? Truth::no
                        : a == Truth::yes && b == Truth::yes ? Truth::yes
                                                             : Truth::unknown);
        break;
      }
      case Kind::either: {
        const Truth a = pop(), b = pop();
        stack.push_back(a == Truth::yes || b == Truth::yes ? Truth::yes
                        : a == Truth::no && b == Truth::no ? Truth::no
                                                           : Truth::unknown);
        break;
      }
      default: return false;
    }
  }
  return stack.size() == 1 && stack[0] == Truth::yes;
}

}  // namespace troupe::detail
