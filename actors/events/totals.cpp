#include <troupe/actors/events/totals.hpp>

namespace troupe::events {

using TotalsKind = AggregateSpec::Kind;

void Totals::add(const std::vector<AggregateSpec>& specs, const Row& values, int by) {
  events_ += by;
  for (std::size_t a = 0; a < parts_.size(); ++a) {
    Part& part = parts_[a];
    if (specs[a].kind == TotalsKind::count) continue;
    if (specs[a].kind == TotalsKind::min || specs[a].kind == TotalsKind::max) {
      const auto it = part.values.try_emplace(values[a], 0).first;
      if ((it->second += by) == 0) part.values.erase(it);
      continue;
    }
    if (const auto* integer = std::get_if<std::int64_t>(&values[a])) {
      const auto step = static_cast<std::uint64_t>(*integer) * static_cast<std::uint64_t>(by);
      part.integers = static_cast<std::int64_t>(static_cast<std::uint64_t>(part.integers) + step);
    } else {
      part.is_real = true;
      part.reals += std::get<double>(values[a]) * by;
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
      row.emplace_back((part.is_real ? part.reals : static_cast<double>(part.integers)) /
                       static_cast<double>(events_));
    else if (part.is_real) row.emplace_back(part.reals);
    else row.emplace_back(part.integers);
  }
}

}  // namespace troupe::events
