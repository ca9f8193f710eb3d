// Patterns of events in time, as CEDR has them (CIDR 2007).
//
//   const Pattern x = event(installs, "x"), y = event(shutdowns, "y"), z = event(restarts, "z");
//   Stream missed = match(unless(sequence({x, y}, 12 * hour), z, 5 * minute),
//                         {.equal = {"machine"}, .output = {{"machine", field("x.machine")}}});
//
// Only begins count: b(x) is the begin of x. All comparisons of begins are strict.
//
//   sequence({E1..Ek}, w)    e1 < ... < ek within w                  [b(ek), b(e1) + w)
//   at_least(n, {E1..Ek}, w) any n of the parts, in any order         as sequence
//   all, any                 n = k; n = 1, with w = 1 unless given
//   unless(E1, E2, w)        no e2 in (b(e1), b(e1) + w)              from b(e1) + w
//   unless(E1, E2, n, w)     the scope begins at the n-th contributor of e1
//   without(E, P)            no e between the first and the last part of P   that of P
//   cancel_when(E1, E2)      no e2 between the root time of e1 and b(e1)     that of e1
//
// An output has **contributors**, its events in order of time, and a **root time**, their least
// begin. Its payload has fields `x.name` of its variables, 0 and "" for one without an event.
// `output` may use `contributors` (text, `x@0 y@6`), `root`, and `occurrence`, the greatest of its
// contributors if all have such a field. STREAMS.md describes selection and consumption.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <troupe/actors/events/query.hpp>

namespace troupe::events {

enum class Selection : std::uint8_t { each, first, last };

class Pattern {
 public:
  enum class Kind : std::uint8_t { event, sequence, at_least, unless, without, cancel_when };
  struct Node {
    Kind kind;
    std::vector<Pattern> parts = {};  // a negation has the present and the absent one
    Time within = 0;
    std::int64_t count = 0;  // at_least: n; unless: the contributor, 0: the event itself
    std::optional<Stream> stream = {};
    std::string variable = {};
  };

  explicit Pattern(Node node) : node_(std::make_shared<const Node>(std::move(node))) {}
  Pattern first() const { return with(Selection::first); }
  Pattern last() const { return with(Selection::last); }
  Pattern consume() const;

  const Node& node() const { return *node_; }
  Selection selection() const { return selection_; }
  bool is_consumed() const { return is_consumed_; }
  /// Returns `UNLESS(SEQUENCE(x, y FIRST, 12), z, 5)`.
  std::string text() const;

 private:
  Pattern with(Selection selection) const;

  std::shared_ptr<const Node> node_;
  Selection selection_ = Selection::each;
  bool is_consumed_ = false;
};

/// An event of a stream; the variable names it in conditions and outputs.
Pattern event(const Stream& stream, std::string variable);
Pattern sequence(std::vector<Pattern> parts, Time within);
Pattern at_least(std::int64_t count, std::vector<Pattern> parts, Time within);
Pattern all(std::vector<Pattern> parts, Time within);
Pattern any(std::vector<Pattern> parts, Time within = 1);
Pattern unless(Pattern present, Pattern absent, Time within);
Pattern unless(Pattern present, Pattern absent, std::int64_t contributor, Time within);
Pattern without(Pattern absent, Pattern present);
Pattern cancel_when(Pattern present, Pattern absent);

struct MatchOptions {
  /// Over fields `x.name`. A part that names an absent event is a condition on that event. Equal
  /// fields that connect all events are the correlation key, by which state is divided.
  std::optional<Formula> where = {};
  std::vector<std::string> equal = {};   ///< fields that all events have in common
  std::vector<std::string> unique = {};  ///< fields that differ for each two events
  Projection output = {};                ///< empty: all there are
};

/// Returns the matches of a pattern. Throws Error that names the part of the pattern for one that
/// makes no sense. State is bounded by the windows.
Stream match(const Pattern& pattern, const MatchOptions& options = {});

/// Returns the times at which from 1 to `most` events began in the last `within`, with their number
/// `count`; a stream, so that it may stand in a pattern as an event. `keys`: fields of all streams.
Stream at_most(std::int64_t most, const std::vector<Stream>& streams, Time within,
               const std::vector<std::string>& keys = {});

}  // namespace troupe::events
