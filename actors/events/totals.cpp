#include <troupe/actors/events/totals.hpp>

#include <cmath>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::events {

using TotalsKind = AggregateSpec::Kind;

namespace {

bool totals_keep_values(TotalsKind kind) {
  return kind == TotalsKind::min || kind == TotalsKind::max || kind == TotalsKind::quantile ||
         kind == TotalsKind::user;
}

constexpr double kTotalsEpsilon = std::numeric_limits<double>::epsilon();

/// Returns the least value with at least the share `q` of `count` values at or below it. A product
/// that only rounding lifts above a whole number counts as that number.
const Value& totals_quantile(const Values& values, double q, std::int64_t count) {
  auto rest = static_cast<std::int64_t>(
      std::ceil(q * static_cast<double>(count) * (1 - 4 * kTotalsEpsilon)));
  auto it = values.begin();
  while (rest > it->second && std::next(it) != values.end()) {
    rest -= it->second;
    ++it;
  }
  return it->first;
}

/// Returns the sum of reals; those that are not finite were counted apart.
double totals_sum(double finite, const Values& others) {
  double sum = finite;
  for (const auto& [value, times] : others) sum += std::get<double>(value);
  return sum;
}

/// Adds a value `by` times.
void totals_count(Values& values, const Value& value, int by) {
  const auto it = values.try_emplace(value, 0).first;
  if ((it->second += by) == 0) values.erase(it);
}

Value totals_of_user(const AggregateSpec& spec, const Values& values) {
  Value value = spec.function(values);
  if (type_of(value) == spec.type) return value;
  throw Error(
      Code::invalid_argument,
      fmt::format("the function of '{}' returned {}, which is {} and not {}; return one type",
                  spec.name, text_of(value), name_of(type_of(value)), name_of(spec.type)));
}

}  // namespace

void Totals::add(const std::vector<AggregateSpec>& specs, const Row& values, int by) {
  events_ += by;
  if (parts_.size() < values.size()) parts_.resize(values.size());
  for (std::size_t a = 0; a < parts_.size(); ++a) {
    Part& part = parts_[a];
    if (specs[a].kind == TotalsKind::count) continue;
    if (totals_keep_values(specs[a].kind)) {
      totals_count(part.values, values[a], by);
      continue;
    }
    if (const auto* integer = std::get_if<std::int64_t>(&values[a])) {
      const auto step = static_cast<std::uint64_t>(*integer) * static_cast<std::uint64_t>(by);
      part.integers = static_cast<std::int64_t>(static_cast<std::uint64_t>(part.integers) + step);
    } else {
      const double real = std::get<double>(values[a]);
      part.is_real = true;
      if (std::isfinite(real)) part.reals += real * by;
      else totals_count(part.values, values[a], by);  // no step back undoes it in a sum
    }
  }
}

void Totals::read(const std::vector<AggregateSpec>& specs, Row& row) const {
  for (std::size_t a = 0; a < specs.size(); ++a) {
    const TotalsKind kind = specs[a].kind;
    if (kind == TotalsKind::count) {
      row.emplace_back(events_);
      continue;
    }
    const Part& part = parts_[a];
    if (kind == TotalsKind::min) row.push_back(part.values.begin()->first);
    else if (kind == TotalsKind::max) row.push_back(part.values.rbegin()->first);
    else if (kind == TotalsKind::mean)
      row.emplace_back((part.is_real ? totals_sum(part.reals, part.values)
                                     : static_cast<double>(part.integers)) /
                       static_cast<double>(events_));
    else if (kind == TotalsKind::quantile)
      row.push_back(totals_quantile(part.values, specs[a].quantile, events_));
    else if (kind == TotalsKind::user) row.push_back(totals_of_user(specs[a], part.values));
    else if (part.is_real) row.emplace_back(totals_sum(part.reals, part.values));
    else row.emplace_back(part.integers);
  }
}

}  // namespace troupe::events
