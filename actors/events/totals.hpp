// The aggregates of one snapshot: count, sum, mean, min, max, each with the inverse of adding, so
// that a retraction costs as much as an insert.
//
// Sums of integers wrap around. Sums of reals are those of the order of arrival, up to rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <troupe/actors/events/schema.hpp>

namespace troupe::events {

struct AggregateSpec {
  enum class Kind : std::uint8_t { count, sum, mean, min, max };
  Kind kind;
  std::string field;  // empty for count
  std::string name;   // the output field's
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

class Totals {
 public:
  Totals() = default;
  explicit Totals(std::size_t aggregates) : parts_(aggregates) {}

  std::int64_t events() const { return events_; }
  /// Adds an event (`by` 1) or takes one back (-1). `values` has a value for each aggregate; that
  /// of a count is ignored.
  void add(const std::vector<AggregateSpec>& specs, const Row& values, int by);
  /// Appends a value for each aggregate. There is an event.
  void read(const std::vector<AggregateSpec>& specs, Row& row) const;

 private:
  struct Part {
    bool is_real = false;
    std::int64_t integers = 0;
    double reals = 0;
    std::map<Value, std::int64_t> values;  // for min and max: how often each
  };
  std::int64_t events_ = 0;
  std::vector<Part> parts_;  // empty if all aggregates are counts
};

}  // namespace troupe::events
