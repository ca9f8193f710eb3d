// The ideal table of random queries, by definition, over the whole history: what holds at each
// time, computed anew for each. Shares no code with the operators.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include <troupe/actors/events/table.hpp>

namespace troupe::test {

/// All times of a history are below, and forever begins at its end: nothing changes after it.
inline constexpr events::Time kLast = 60;

/// Rows that hold, counted, at each time from 0 to kLast.
using Holding = std::vector<std::multiset<events::Row>>;

inline Holding holding(const events::Table& table) {
  Holding all(kLast + 1);
  for (const events::Lived& row : table)
    for (events::Time t = std::max<events::Time>(0, row.begin); t <= kLast && t < row.end; ++t)
      all[static_cast<std::size_t>(t)].insert(row.payload);
  return all;
}

using Rows = std::multiset<events::Row>;

/// Applies a function of the rows that hold to each time.
inline Holding at_each_time(const Holding& in, const std::function<Rows(const Rows&)>& f) {
  Holding out;
  for (const Rows& rows : in) out.push_back(f(rows));
  return out;
}

inline Rows grouped(const Rows& rows, std::size_t key,
                    const std::function<events::Row(std::vector<std::int64_t>)>& reduce,
                    std::size_t value) {
  std::map<events::Value, std::vector<std::int64_t>> groups;
  for (const events::Row& row : rows)
    groups[row[key]].push_back(std::get<std::int64_t>(row[value]));
  Rows out;
  for (const auto& [group, values] : groups) {
    events::Row row = reduce(values);
    row.insert(row.begin(), group);
    out.insert(row);
  }
  return out;
}

}  // namespace troupe::test
