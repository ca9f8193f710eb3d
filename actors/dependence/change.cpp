#include <troupe/actors/dependence/change.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/dependence/dependence.hpp>
#include <troupe/actors/dependence/simulate.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

/// A model to climb from: no weight is 0, from which EM cannot rise.
CausalModel change_start(CausalModel model, double end) {
  model.leak = std::max(model.leak, 0.1 / end);
  for (Cause& cause : model.channels)
    if (!cause.is_absent) cause.weight = std::max(cause.weight, 1e-3);
  return model;
}

struct ChangeSides {
  double at = 0, statistic = 0;
  CausalModel before, after;
};

ChangeSides change_sides(const Arrivals& arrivals, const Fit& pooled, double at,
                         const FitOptions& options) {
  const CausalModel start = change_start(pooled.model, arrivals.end);
  Fit before = fit_by_em(part_of(arrivals, 0, at), start, options),
      after = fit_by_em(part_of(arrivals, at, arrivals.end), start, options);
  const double gain = before.log_likelihood + after.log_likelihood - pooled.log_likelihood;
  return {at, std::max(0.0, 2 * gain), std::move(before.model), std::move(after.model)};
}

ChangeSides change_search(const Arrivals& arrivals, const Fit& pooled, int grid,
                          const FitOptions& options) {
  ChangeSides best;
  for (int i = 1; i <= grid; ++i) {
    ChangeSides sides = change_sides(arrivals, pooled, arrivals.end * i / (grid + 1), options);
    if (i == 1 || sides.statistic > best.statistic) best = std::move(sides);
  }
  return best;
}

std::string change_of(const char* what, double before, double after, const char* unit) {
  return fmt::format("{} from {:.3g}{} to {:.3g}{}", what, before, unit, after, unit);
}

}  // namespace

double change_statistic(const Arrivals& arrivals, const Fit& pooled, double at,
                        const FitOptions& options) {
  return change_sides(arrivals, pooled, at, options).statistic;
}

std::size_t parameters_of(const CausalModel& model) {
  std::size_t count = 1;
  for (const Cause& cause : model.channels) {
    if (cause.is_absent) continue;
    ++count;
    if (cause.is_delay_fixed) continue;
    const auto of = [](const Delay& d) -> std::size_t {
      return d.kind == Delay::Kind::exponential                                 ? 1
             : d.kind == Delay::Kind::gamma || d.kind == Delay::Kind::lognormal ? 2
             : d.kind == Delay::Kind::histogram && !d.masses.empty() ? d.masses.size() - 1
                                                                     : 0;
    };
    count += of(cause.delay);
    if (cause.delay.kind != Delay::Kind::mixture) continue;
    count += cause.delay.parts.size() - 1;
    for (const Delay& part : cause.delay.parts) count += of(part);
  }
  return count;
}

// The parameter whose logarithm moves most; a weight or a leak counts from a small one on.
std::string difference_text(const CausalModel& before, const CausalModel& after,
                            const std::vector<std::string>& inputs) {
  const auto size = [](double a, double b, double least) {
    return std::abs(std::log((b + least) / (a + least)));
  };
  double largest = size(before.leak, after.leak, 0.01 * (before.leak + after.leak) + 1e-12);
  std::string text = change_of(
      after.leak > before.leak ? "outputs without a cause rise" : "outputs without a cause fall",
      before.leak, after.leak, "/s");
  for (std::size_t j = 0; j < before.channels.size(); ++j) {
    const Cause &a = before.channels[j], &b = after.channels[j];
    const std::string name =
        a.input < inputs.size() ? inputs[a.input] : fmt::format("input {}", a.input);
    if (const double moved = size(a.weight, b.weight, 0.05); moved > largest) {
      largest = moved;
      text = name + ": " +
             change_of(b.weight < a.weight ? "strength falls" : "strength rises", a.weight,
                       b.weight, "");
    }
    if (a.weight < 0.05 || b.weight < 0.05) continue;  // its delay means little
    if (const double moved = size(a.delay.mean(), b.delay.mean(), 0); moved > largest) {
      largest = moved;
      text = name + ": " +
             change_of(b.delay.mean() > a.delay.mean() ? "delay rises" : "delay falls",
                       a.delay.mean(), b.delay.mean(), " s");
    }
  }
  return text;
}

std::string ChangePoint::text(const std::vector<std::string>& inputs) const {
  return fmt::format("at {:.3f} s {}; p = {:.2g}", at, difference_text(before, after, inputs), p);
}

ChangePoint find_change(const Arrivals& arrivals, const CausalModel& start,
                        const ChangeOptions& options) {
  constexpr std::size_t kFewest = 40;
  check_arrivals(arrivals);
  if (arrivals.outputs.size() < kFewest)
    throw Error(Code::failed_precondition,
                fmt::format("an output of {} events is too short for a change point; record {} or "
                            "more",
                            arrivals.outputs.size(), kFewest));
  const FitOptions fitting{options.support, options.most_iterations, 1e-7};
  const Fit pooled = fit_by_em(arrivals, change_start(start, arrivals.end), fitting);
  ChangeSides found = change_search(arrivals, pooled, options.grid, fitting);
  ChangePoint change{found.at, found.statistic,         0,
                     1,        std::move(found.before), std::move(found.after)};
  std::mt19937_64 random(options.seed);
  std::vector<double> null;
  int above = 0;
  for (int b = 0; b < std::max(1, options.bootstraps); ++b) {
    Arrivals drawn{arrivals.inputs, simulate_outputs(arrivals, pooled.model, random), arrivals.end};
    const Fit refit = fit_by_em(drawn, change_start(pooled.model, arrivals.end), fitting);
    null.push_back(change_search(drawn, refit, options.grid, fitting).statistic);
    above += null.back() >= change.statistic;
  }
  std::sort(null.begin(), null.end());
  change.threshold = null[static_cast<std::size_t>(0.95 * static_cast<double>(null.size() - 1))];
  change.p = (1.0 + above) / (1.0 + static_cast<double>(null.size()));
  return change;
}

// A model of each output: its edges, with the weights and delays of the graph.
void find_changes(DependenceGraph& graph, double level) {
  constexpr std::size_t kFewestOutputs = 40;
  graph.changes.clear();
  for (std::size_t to = 0; to < graph.channels.size(); ++to) {
    Arrivals arrivals{{}, graph.channels[to].times, graph.end};
    CausalModel model{0, {}};
    std::vector<std::string> names;
    for (const Dependence& edge : graph.edges) {
      if (edge.to != to) continue;
      model.channels.push_back({arrivals.inputs.size(), edge.weight, edge.delay});
      arrivals.inputs.push_back(graph.channels[edge.from].times);
      names.push_back(graph.channels[edge.from].name);
    }
    if (names.empty() || arrivals.outputs.size() < kFewestOutputs) continue;
    const ChangePoint change =
        find_change(arrivals, model, {.support = graph.support, .grid = 9, .most_iterations = 30});
    if (change.p <= level)
      graph.changes.push_back({to, change.at, change.statistic, change.p,
                               difference_text(change.before, change.after, names)});
  }
  std::stable_sort(graph.changes.begin(), graph.changes.end(),
                   [](const ChannelChange& a, const ChannelChange& b) { return a.p < b.p; });
}

}  // namespace troupe::dependence
