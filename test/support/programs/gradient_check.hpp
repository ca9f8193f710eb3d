// Gradients of random recipes: what `gradients` builds, run by the engine in f64, against
// differences of what the oracle says, which knows nothing of gradients.
#pragma once

#include <fmt/format.h>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/test/support/programs/compare.hpp>

namespace troupe::test {

/// Programs whose gradients may be compared: smooth, and nothing is written, through which no
/// gradient goes.
inline Tastes smooth_tastes() { return {.variables = Use::reads, .is_smooth = true}; }

/// Describes the error in the gradient of a weighted sum of a recipe's real fetches with respect to
/// its real inputs and its variables. Throws Unfit where finite differences cannot decide.
inline std::optional<std::string> gradient_difference(const Recipe& r, const Way& way) {
  Graph g;
  Kitchen k(r, g, way.devices);
  std::optional<Expr> loss;
  for (std::size_t f = 0; f < r.body.results.size(); ++f) {
    if (!is_real(r.body.results[f].type)) continue;
    Expr part = sum(k.fetches()[f]) * (1.0 / static_cast<double>(f + 1));
    loss = loss ? *loss + part : part;
  }
  auto feeds = oracle_feeds(r, k, 0);
  struct X {
    std::string name;
    std::size_t input, variable;  // the other is none
    Array value;
  };
  constexpr std::size_t kNone = SIZE_MAX;
  std::vector<X> which;
  std::vector<Independent> xs;
  for (std::size_t i = 0; i < r.inputs.size(); ++i)
    if (is_real(r.inputs[i].name.type)) {
      xs.emplace_back(k.inputs()[i]);
      which.push_back(
          {fmt::format("input {}", r.inputs[i].name.id), i, kNone, feeds[i].second.array});
    }
  for (std::size_t v = 0; v < k.variables().size(); ++v) {
    xs.emplace_back(k.variables()[v]);
    which.push_back({"variable " + k.variables()[v].name(), kNone, v,
                     Oracle().variable(g, k.variables()[v].state())});
  }
  if (!loss || xs.empty()) throw Unfit("nothing to differentiate");

  // The oracle first: it may refuse. Fourth-order central differences, beside second-order ones:
  // where the two disagree, something has a kink or a jump.
  constexpr double kStep = 1e-4, kClose = 2e-3;
  std::vector<std::vector<double>> expected;
  auto at = [&](const X& x, std::size_t element, double shift) {
    Array shifted = x.value;
    shifted.v[element] += shift;
    auto moved = feeds;
    Oracle oracle;
    if (x.input != kNone) moved[x.input].second.array = std::move(shifted);
    else oracle.set_variable(g, k.variables()[x.variable].state(), std::move(shifted));
    double y = 0;
    try {
      y = oracle.run(g, moved, {*loss})[0].array.v[0];
    } catch (const std::runtime_error& e) { throw Unfit(e.what()); }
    if (oracle.margin() < kClose) throw Unfit("a comparison is close");
    return y;
  };
  for (const X& x : which) {
    std::vector<double> dx;
    for (std::size_t e = 0; e < x.value.v.size(); ++e) {
      const double one = at(x, e, kStep) - at(x, e, -kStep),
                   two = at(x, e, 2 * kStep) - at(x, e, -2 * kStep);
      dx.push_back((8 * one - two) / (12 * kStep));
      if (std::abs(dx.back() - one / (2 * kStep)) > 1e-5 * std::max(1.0, std::abs(dx.back())))
        throw Unfit("a kink");
    }
    expected.push_back(std::move(dx));
  }

  ProgramOutcome o;
  std::vector<Expr> fetches;
  try {
    fetches = gradients(*loss, xs, {.unconnected = Unconnected::zeros});
  } catch (const Error& e) { return std::string("building the gradient: ") + e.what(); }
  run_program(r, way, g, k, fetches, 1, o);
  if (o.hangs) return "it hangs";
  if (!o.error.empty()) return "an error: " + o.error;
  for (std::size_t i = 0; i < which.size(); ++i)
    for (std::size_t e = 0; e < expected[i].size(); ++e) {
      double got = o.fetched[0][i].at(static_cast<std::int64_t>(e)), wanted = expected[i][e];
      if (!(std::abs(got - wanted) <= 1e-6 * std::max(1.0, std::abs(wanted))))
        return fmt::format("the gradient for {} differs at {}: {}, expected {}", which[i].name, e,
                           got, wanted);
    }
  return std::nullopt;
}

}  // namespace troupe::test
