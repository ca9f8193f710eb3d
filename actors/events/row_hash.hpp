// Rows as keys of groups, joins and patterns. As a key a real that is no number equals itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <troupe/actors/events/batch.hpp>

namespace troupe::events {

struct RowHash {
  std::size_t operator()(const Row& row) const {
    std::size_t h = row.size();
    for (const Value& value : row) h = h * 0x100000001B3ULL ^ hash_of(value);
    return h;
  }
};

struct RowEqual {
  bool operator()(const Row& a, const Row& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Value& x, const Value& y) {
      if (x == y) return true;
      const auto *real = std::get_if<double>(&x), *other = std::get_if<double>(&y);
      return real && other && std::isnan(*real) && std::isnan(*other);
    });
  }
};

/// Sets `row` to the values of some columns of a message; its memory is kept.
inline void read_columns(const Batch& batch, const std::vector<std::size_t>& columns, std::size_t i,
                         Row& row) {
  row.resize(columns.size());
  for (std::size_t c = 0; c < columns.size(); ++c)
    std::visit(
        [&](const auto& values) {
          using T = typename std::decay_t<decltype(values)>::value_type;
          if (T* same = std::get_if<T>(&row[c])) *same = values[i];
          else row[c] = values[i];
        },
        batch.columns[columns[c]]);
}

/// Returns the columns of names. Throws Error for one that is not there.
inline std::vector<std::size_t> columns_of(const Schema& schema,
                                           const std::vector<std::string>& names) {
  std::vector<std::size_t> columns;
  for (const std::string& name : names) columns.push_back(schema.index(name));
  return columns;
}

}  // namespace troupe::events
