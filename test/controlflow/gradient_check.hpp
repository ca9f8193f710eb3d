// Gradients of random recipes: what `gradients` builds, run by the engine in f64, against differences of
// what the oracle says, which knows nothing of gradients.
#pragma once

#include <troupe/autodiff/gradients.hpp>
#include <troupe/test/controlflow/compare.hpp>

namespace troupe::test {

/// Programs whose gradients may be compared: smooth, without state, through which none goes.
inline Tastes smooth_tastes() { return {.has_state = false, .is_smooth = true}; }

/// What is wrong with the gradient of a weighted sum of a recipe's real fetches with respect to its real
/// inputs; throws Unfit where differences cannot tell.
inline std::optional<std::string> gradient_difference(const Recipe& r, const Way& way) {
  Graph g;
  Kitchen k(r, g, way.devices);
  std::optional<Expr> loss;
  for (std::size_t f = 0; f < r.body.results.size(); ++f) {
    if (!is_real(r.body.results[f].type)) continue;
    Expr part = sum(k.fetches()[f]) * (1.0 / static_cast<double>(f + 1));
    loss = loss ? *loss + part : part;
  }
  std::vector<Expr> xs;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < r.inputs.size(); ++i)
    if (is_real(r.inputs[i].name.type)) xs.push_back(k.inputs()[i]), which.push_back(i);
  if (!loss || xs.empty()) throw Unfit("nothing to differentiate");

  // The oracle first: it may refuse. Fourth-order central differences, beside second-order ones: where the
  // two disagree, something has a kink or a jump.
  constexpr double kStep = 1e-4, kClose = 2e-3;
  std::vector<std::vector<double>> expected;
  auto feeds = oracle_feeds(r, k, 0);
  auto at = [&](std::size_t input, std::size_t element, double shift) {
    auto moved = feeds;
    moved[input].second.array.v[element] += shift;
    Oracle oracle;
    double y = 0;
    try {
      y = oracle.run(g, moved, {*loss})[0].array.v[0];
    } catch (const std::runtime_error& e) {
      throw Unfit(e.what());
    }
    if (oracle.margin() < kClose) throw Unfit("a comparison is close");
    return y;
  };
  for (std::size_t i : which) {
    std::vector<double> dx;
    for (std::size_t e = 0; e < feeds[i].second.array.v.size(); ++e) {
      const double one = at(i, e, kStep) - at(i, e, -kStep), two = at(i, e, 2 * kStep) - at(i, e, -2 * kStep);
      dx.push_back((8 * one - two) / (12 * kStep));
      if (std::abs(dx.back() - one / (2 * kStep)) > 1e-5 * std::max(1.0, std::abs(dx.back()))) throw Unfit("a kink");
    }
    expected.push_back(std::move(dx));
  }

  Outcome o;
  std::vector<Expr> fetches;
  try {
    fetches = gradients(*loss, xs);
  } catch (const Error& e) {
    return std::string("building the gradient: ") + e.what();
  }
  run_program(r, way, g, k, fetches, 1, o);
  if (o.hangs) return "it hangs";
  if (!o.error.empty()) return "an error: " + o.error;
  for (std::size_t i = 0; i < which.size(); ++i)
    for (std::size_t e = 0; e < expected[i].size(); ++e) {
      double got = o.fetched[0][i].at(static_cast<std::int64_t>(e)), wanted = expected[i][e];
      if (!(std::abs(got - wanted) <= 1e-6 * std::max(1.0, std::abs(wanted))))
        return fmt::format("the gradient for input {} differs at {}: {}, expected {}", r.inputs[which[i]].name.id, e, got, wanted);
    }
  return std::nullopt;
}

}  // namespace troupe::test
