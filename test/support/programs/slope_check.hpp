// Checks the gradients inside a random recipe: compares the engine's values with a program that the
// oracle runs, in which central differences replace the gradients.
#pragma once

#include <fmt/format.h>

#include <troupe/test/support/programs/compare.hpp>

namespace troupe::test {

/// Returns the error in the real numbers that a program with slopes yields, if any. Throws Unfit if
/// it has no slopes, or if differences cannot decide.
inline std::optional<std::string> slope_difference(const Recipe& r, const Way& way) {
  constexpr double kStep = 1e-3, kClose = 2e-2;
  if (!has_slopes(r)) throw Unfit("there are no slopes");
  const auto expected_with = [&](double step) {
    Graph g;
    const Kitchen k(r, g, Devices::none, {step});
    Oracle oracle;
    try {
      std::vector<OracleValue> out = oracle.run(g, oracle_feeds(r, k, 0), k.fetches());
      if (oracle.margin() < kClose) throw Unfit("a comparison is close");
      return out;
    } catch (const std::runtime_error& e) { throw Unfit(e.what()); }
  };
  const std::vector<OracleValue> fine = expected_with(kStep), coarse = expected_with(2 * kStep);
  const auto is_near = [](double a, double b, double room) {
    return std::abs(a - b) <= room * std::max({1.0, std::abs(a), std::abs(b)});
  };
  for (std::size_t f = 0; f < fine.size(); ++f)
    for (std::size_t i = 0; i < fine[f].array.v.size(); ++i)
      if (fine[f].array.shape != coarse[f].array.shape ||
          !is_near(fine[f].array.v[i], coarse[f].array.v[i], 1e-6))
        throw Unfit("a kink");

  Graph g;
  ProgramOutcome o;
  try {
    const Kitchen k(r, g, way.devices);
    run_program(r, way, g, k, k.fetches(), 1, o);
  } catch (const Error& e) { return std::string("building the gradients: ") + e.what(); }
  if (o.hangs) return "it hangs";
  if (!o.error.empty()) return "an error: " + o.error;
  for (std::size_t f = 0; f < fine.size(); ++f) {
    const Tensor& got = o.fetched[0][f];
    if (got.shape() != fine[f].array.shape) return fmt::format("fetch {} has another shape", f);
    for (std::size_t i = 0; i < fine[f].array.v.size(); ++i) {
      const double is = got.at(static_cast<std::int64_t>(i)), wanted = fine[f].array.v[i];
      if (!is_near(is, wanted, 1e-5))
        return fmt::format("fetch {} is {} at {}, expected {}", f, is, i, wanted);
    }
  }
  return std::nullopt;
}

}  // namespace troupe::test
