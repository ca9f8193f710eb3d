// The tasks of `metg` and what each needs, for Troupe and for its peers alike.
//
//   for (int column : needs({Pattern::nearest, 8}, step, 3)) sum += row[column];
//   next[3] = task(sum / count, iterations);
//
// A row of `width` tasks a step; a task needs tasks of the row before. Task Bench (Slaughter et
// al., 2020) names the patterns. Its kernel is wide multiply-adds. Here a task is one chain of
// dependent ones, so that its time is fine-grained and does not depend on a vector unit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::bench {

enum class Pattern { stencil_1d, nearest, spread, fft };
constexpr const char* kPatternNames[] = {"stencil_1d", "nearest_5", "spread_5", "fft"};

/// Tasks of one step, and how those of a step depend on the row before.
struct TaskGrid {
  Pattern pattern = Pattern::stencil_1d;
  int width = 2;
};

inline std::optional<Pattern> pattern_named(const std::string& name) {
  for (const Pattern p : {Pattern::stencil_1d, Pattern::nearest, Pattern::spread, Pattern::fft})
    if (kPatternNames[static_cast<int>(p)] == name) return p;
  return std::nullopt;
}

/// Steps after which the dependencies repeat.
inline int period(const TaskGrid& grid) {
  int steps = 1;
  if (grid.pattern == Pattern::fft)
    while (1 << steps < grid.width) ++steps;
  return steps;
}

/// The columns of the row before that a task needs: ascending, each once. `width` ≥ 2.
inline std::vector<int> needs(const TaskGrid& grid, int step, int column) {
  constexpr int kRadix = 5;
  std::vector<bool> needed(static_cast<std::size_t>(grid.width));
  const auto need = [&](int c) {
    if (c >= 0 && c < grid.width) needed[static_cast<std::size_t>(c)] = true;
  };
  switch (grid.pattern) {
    case Pattern::stencil_1d:
      for (int d = -1; d <= 1; ++d) need(column + d);
      break;
    case Pattern::nearest:
      for (int d = -kRadix / 2; d <= kRadix / 2; ++d) need(column + d);
      break;
    case Pattern::spread:
      for (int i = 0; i < kRadix; ++i) need((column + i * grid.width / kRadix) % grid.width);
      break;
    case Pattern::fft: {
      const int distance = 1 << step % period(grid);
      for (const int d : {-distance, 0, distance}) need(column + d);
      break;
    }
  }
  std::vector<int> columns;
  for (int c = 0; c < grid.width; ++c)
    if (needed[static_cast<std::size_t>(c)]) columns.push_back(c);
  return columns;
}

/// One task's work.
[[gnu::noinline]] inline double task(double x, std::int64_t iterations) {
  for (std::int64_t i = 0; i < iterations; ++i) x = x * 0.999999 + 1e-6;
  return x;
}

/// The value of a column before the first row.
inline double seed_of(int column) { return 1.0 + 0.125 * column; }

/// The sum of the last row, computed plainly.
inline double expected_sum(const TaskGrid& grid, int steps, std::int64_t iterations) {
  std::vector<double> row, next(static_cast<std::size_t>(grid.width));
  for (int c = 0; c < grid.width; ++c) row.push_back(seed_of(c));
  for (int step = 0; step < steps; ++step, row.swap(next))
    for (int c = 0; c < grid.width; ++c) {
      double sum = 0;
      const std::vector<int> columns = needs(grid, step, c);
      for (const int from : columns) sum += row[static_cast<std::size_t>(from)];
      next[static_cast<std::size_t>(c)] =
          task(sum / static_cast<double>(columns.size()), iterations);
    }
  double sum = 0;
  for (const double x : row) sum += x;
  return sum;
}

}  // namespace troupe::bench
