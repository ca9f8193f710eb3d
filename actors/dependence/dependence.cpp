#include <troupe/actors/dependence/dependence.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include <troupe/actors/dependence/special.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

/// The events of (from, to], with times from `from`.
Times dependence_cut(const Times& times, double from, double to) {
  Times out;
  for (const double t : times)
    if (t > from && t <= to) out.push_back(t - from);
  return out;
}

Arrivals dependence_part(const Arrivals& all, double from, double to) {
  Arrivals part{{}, dependence_cut(all.outputs, from, to), to - from};
  for (const Times& input : all.inputs) part.inputs.push_back(dependence_cut(input, from, to));
  return part;
}

/// Boxes around the events of the inputs of `model`, behind its channels.
void dependence_add_boxes(CausalModel& model, double support) {
  const std::size_t causes = model.channels.size();
  for (std::size_t j = 0; j < causes; ++j) {
    Cause box = model.channels[j];
    box.weight = std::min(box.weight, 0.05);
    box.delay = Delay::box(support);
    box.is_delay_fixed = true;
    model.channels.push_back(box);
  }
}

/// The inputs with the largest score at any of three scales, at most `most`.
std::vector<std::size_t> dependence_screen(const Arrivals& arrivals, double support,
                                           std::size_t most) {
  std::vector<std::size_t> all(arrivals.inputs.size());
  std::iota(all.begin(), all.end(), 0);
  if (all.size() <= most) return all;
  std::vector<double> best(all.size(), -1e300);
  for (const double part : {100.0, 16.0, 5.0}) {
    CausalModel model = model_of(arrivals, support / part);
    model.leak = static_cast<double>(arrivals.outputs.size()) / arrivals.end;
    for (Cause& cause : model.channels) cause.is_absent = true, cause.weight = 0;
    for (std::size_t j = 0; j < all.size(); ++j) {
      const Score score = score_of(arrivals, model, j, support);
      if (score.error > 0) best[j] = std::max(best[j], score.slope / score.error);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [&](std::size_t a, std::size_t b) { return best[a] > best[b]; });
  all.resize(most);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

double p_of(double statistic) { return statistic <= 0 ? 1 : 0.5 * chi_square_1_tail(statistic); }

double likelihood_ratio(const Arrivals& arrivals, const CausalModel& model, std::size_t channel,
                        const FitOptions& options) {
  CausalModel null = model;
  for (Cause& cause : null.channels) cause.is_delay_fixed = true;
  CausalModel full = null;
  null.channels[channel].is_absent = true;
  const Fit without = fit_by_em(arrivals, null, options);
  // with fixed delays the likelihood is concave, so a slope down at 0 is the best there is
  if (score_of(arrivals, without.model, channel, options.support).slope <= 0) return 0;
  full.channels[channel].weight = std::max(full.channels[channel].weight, 1e-3);
  const Fit with = fit_by_em(arrivals, full, options);
  return std::max(0.0, 2 * (with.log_likelihood - without.log_likelihood));
}

std::vector<Dependence> test_inputs(const Arrivals& arrivals, const DependenceOptions& options) {
  check_arrivals(arrivals);
  if (arrivals.outputs.size() < options.fewest)
    throw Error(Code::failed_precondition,
                fmt::format("an output of {} events is too short to test; record {} or more",
                            arrivals.outputs.size(), options.fewest));
  const FitOptions fitting{options.support, 200, 1e-7};
  const std::vector<std::size_t> inputs =
      dependence_screen(arrivals, options.support, options.most_inputs);
  Arrivals kept{{}, arrivals.outputs, arrivals.end};
  for (const std::size_t input : inputs) kept.inputs.push_back(arrivals.inputs[input]);
  const double half = arrivals.end / 2;
  const Arrivals first = dependence_part(kept, 0, half),
                 second = dependence_part(kept, half, arrivals.end);
  CausalModel shape = model_of(first, options.support / 16);
  if (options.has_acausal) dependence_add_boxes(shape, options.support);
  const Fit learnt = fit_from_scales(first, shape, fitting);
  CausalModel model = learnt.model;
  for (Cause& cause : model.channels) cause.weight = std::max(cause.weight, 1e-3);
  model.leak = std::max(model.leak, 1e-3 / half);
  const Fit whole = fit_by_em(kept, model, fitting);

  std::vector<Dependence> all(arrivals.inputs.size());
  for (std::size_t j = 0; j < all.size(); ++j) all[j].from = j;
  for (Cause& cause : model.channels) cause.is_delay_fixed = true;
  const Fit full = fit_by_em(second, model, fitting);
  for (std::size_t j = 0; j < inputs.size(); ++j) {
    Dependence& d = all[inputs[j]];
    d.weight = whole.model.channels[j].weight;
    d.delay = whole.model.channels[j].delay;
    CausalModel null = full.model;
    for (std::size_t c = 0; c < null.channels.size(); ++c)
      if (c != j) null.channels[c].weight = std::max(null.channels[c].weight, 1e-4);
    null.channels[j].is_absent = true;
    const Fit without = fit_by_em(second, null, fitting);
    const bool is_down = score_of(second, without.model, j, options.support).slope <= 0;
    d.statistic = is_down ? 0 : std::max(0.0, 2 * (full.log_likelihood - without.log_likelihood));
    d.p = p_of(d.statistic);
  }
  return all;
}

void set_q(std::vector<Dependence>& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return all[a].p < all[b].p; });
  double q = 1;
  for (std::size_t rank = all.size(); rank-- > 0;) {
    Dependence& d = all[order[rank]];
    q = std::min(q, d.p * static_cast<double>(all.size()) / static_cast<double>(rank + 1));
    d.q = q;
  }
}

DependenceGraph find_dependences(std::vector<Channel> channels, double end,
                                 DependenceOptions options) {
  DependenceGraph graph;
  if (options.support <= 0) options.support = std::min(1.0, end / 100);
  graph.end = end;
  graph.support = options.support;
  for (Channel& channel : channels) {
    if (channel.times.size() >= options.fewest) {
      graph.channels.push_back(std::move(channel));
      continue;
    }
    graph.left_out.push_back(
        fmt::format("channel '{}' has {} events and takes no part; record {} "
                    "or more",
                    channel.name, channel.times.size(), options.fewest));
  }
  const std::size_t n = graph.channels.size();
  for (std::size_t to = 0; to < n; ++to) {
    Arrivals arrivals{{}, graph.channels[to].times, end};
    std::vector<std::size_t> from;
    for (std::size_t c = 0; c < n; ++c)
      if (c != to) arrivals.inputs.push_back(graph.channels[c].times), from.push_back(c);
    for (Dependence d : test_inputs(arrivals, options)) {
      d.from = from[d.from];
      d.to = to;
      graph.tested.push_back(d);
    }
  }
  set_q(graph.tested);
  for (const Dependence& d : graph.tested)
    if (d.q <= options.level) graph.edges.push_back(d);
  std::stable_sort(graph.edges.begin(), graph.edges.end(),
                   [](const Dependence& a, const Dependence& b) { return a.p < b.p; });
  return graph;
}

}  // namespace troupe::dependence
