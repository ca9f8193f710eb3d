// The aggregates of one snapshot: count, sum, mean, min, max, quantiles and users' functions. Each
// has the inverse of adding, so that a retraction costs as much as an insert.
//
//   user("price", "spread", Type::real, [](const Values& values) { ... })
//
// Sums of integers wrap around. Sums of reals are those of the order of arrival, up to rounding. A
// quantile is the least value that the share q of all values does not exceed: q = 0 is the least
// value, q = 0.5 the lower median, q = 1 the greatest one. It takes time linear in the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <troupe/actors/events/schema.hpp>

namespace troupe::events {

/// The values of a field in a snapshot in ascending order, and how often each occurs.
using Values = std::map<Value, std::int64_t, ValueOrder>;

struct AggregateSpec {
  enum class Kind : std::uint8_t { count, sum, mean, min, max, quantile, user };
  Kind kind;
  std::string field;    // empty for count
  std::string name;     // the output field's
  double quantile = 0;  // from 0 to 1
  Type type = {};       // a user's function gives it
  /// Called with at least one value. Equal values give equal results.
  std::function<Value(const Values&)> function = {};
};

inline AggregateSpec count(std::string name = "count") {
  return {AggregateSpec::Kind::count, "", std::move(name)};
}
inline AggregateSpec sum(std::string field, std::string name = "sum") {
  return {AggregateSpec::Kind::sum, std::move(field), std::move(name)};
}
inline AggregateSpec mean(std::string field, std::string name = "mean") {
  return {AggregateSpec::Kind::mean, std::move(field), std::move(name)};
}
inline AggregateSpec min(std::string field, std::string name = "min") {
  return {AggregateSpec::Kind::min, std::move(field), std::move(name)};
}
inline AggregateSpec max(std::string field, std::string name = "max") {
  return {AggregateSpec::Kind::max, std::move(field), std::move(name)};
}

inline AggregateSpec quantile(double q, std::string field, std::string name = "quantile") {
  return {AggregateSpec::Kind::quantile, std::move(field), std::move(name), q};
}
/// An aggregate of the user's own. A result of another type than `type` fails the query.
inline AggregateSpec user(std::string field, std::string name, Type type,
                          std::function<Value(const Values&)> function) {
  return {AggregateSpec::Kind::user, std::move(field), std::move(name), 0, type,
          std::move(function)};
}

class Totals {
 public:
  std::int64_t events() const { return events_; }
  /// Adds an event (`by` 1) or takes one back (-1). `values` has a value for each aggregate; that
  /// of a count is ignored, and counts alone need none.
  void add(const std::vector<AggregateSpec>& specs, const Row& values, int by);
  /// Appends a value for each aggregate. There is an event.
  void read(const std::vector<AggregateSpec>& specs, Row& row) const;

 private:
  struct Part {
    bool is_real = false;
    std::int64_t integers = 0;
    double reals = 0;
    Values values = {};  // for aggregates that need them all; of a sum those that are not finite
  };
  std::int64_t events_ = 0;
  std::vector<Part> parts_;  // empty if all aggregates are counts
};

}  // namespace troupe::events
