#include <troupe/ops/graph/suggest_name.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {
namespace {

// Levenshtein.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      int up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& names) {
  std::string_view nearest;
  int best = std::min(4, static_cast<int>(name.size()));
  for (std::string_view other : names)
    if (const int d = edit_distance(name, other); d < best) best = d, nearest = other;
  return nearest;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& names) {
  const std::string_view nearest = nearest_name(name, names);
  return nearest.empty() ? std::string() : fmt::format("; did you mean '{}'?", nearest);
}

}  // namespace troupe
