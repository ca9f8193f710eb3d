#include <troupe/actors/dependence/dependence.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include <troupe/actors/dependence/special.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

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

/// The uniform delay with the best score, among those between nine bounds.
Delay dependence_uniform(const Arrivals& arrivals, std::size_t input, double support) {
  Delay best = Delay::uniform(0, support);
  double most = -1e300;
  CausalModel model = model_of(arrivals, support);
  model.leak = static_cast<double>(arrivals.outputs.size()) / arrivals.end;
  for (Cause& cause : model.channels) cause.is_absent = true, cause.weight = 0;
  for (const Delay& delay : uniform_delays(0, support, 8)) {
    model.channels[input].delay = delay;
    const Score score = score_of(arrivals, model, input, support);
    if (score.error <= 0 || score.slope / score.error <= most) continue;
    most = score.slope / score.error;
    best = delay;
  }
  return best;
}

/// A model to start from, with delays of the family.
CausalModel dependence_shape(const Arrivals& arrivals, const DependenceOptions& options) {
  CausalModel shape = model_of(arrivals, options.support / 16);
  if (options.family == "exponential") return shape;
  for (Cause& cause : shape.channels)
    cause.delay = options.family == "uniform"
                      ? dependence_uniform(arrivals, cause.input, options.support)
                      : delay_of(options.family, cause.delay.mean(), options.support);
  return shape;
}

/// The input, later by `shift`; the part beyond the end comes at the beginning.
Times dependence_shifted(const Times& times, double shift, double end) {
  Times out;
  out.reserve(times.size());
  for (const double t : times) out.push_back(t + shift > end ? t + shift - end : t + shift);
  std::sort(out.begin(), out.end());
  return out;
}

void dependence_audit(DependenceGraph& graph, const DependenceOptions& options) {
  const FitOptions fitting{options.support, 100, 1e-6};
  for (Dependence& edge : graph.edges) {
    Arrivals arrivals{{graph.channels[edge.from].times}, graph.channels[edge.to].times, graph.end};
    CausalModel model = model_of(arrivals, edge.delay.mean());
    model.channels[0].delay = edge.delay;
    for (const Dependence& other : graph.edges) {  // they explain a part of the output
      if (other.to != edge.to || other.from == edge.from) continue;
      model.channels.push_back({arrivals.inputs.size(), std::max(other.weight, 1e-3), other.delay});
      arrivals.inputs.push_back(graph.channels[other.from].times);
    }
    edge.shifted_p = circular_shift_p(arrivals, model, 0, fitting, options.shifts);
  }
}

}  // namespace

double circular_shift_p(const Arrivals& arrivals, const CausalModel& model, std::size_t channel,
                        const FitOptions& options, int shifts, std::uint64_t seed) {
  CausalModel null = model;
  for (Cause& cause : null.channels) cause.is_delay_fixed = true;
  null.channels[channel].is_absent = true;
  null = fit_by_em(arrivals, null, options).model;
  Arrivals shifted = arrivals;
  Times& input = shifted.inputs[model.channels[channel].input];
  const auto z = [&] {
    const Score score = score_of(shifted, null, channel, options.support);
    return score.error > 0 ? score.slope / score.error : 0;
  };
  const double observed = z();
  const Times original = input;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> any(0, arrivals.end);
  int above = 0;
  for (int i = 0; i < shifts; ++i) {
    input = dependence_shifted(original, any(random), arrivals.end);
    above += z() >= observed;
  }
  return (1.0 + above) / (1.0 + shifts);
}

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
  const Arrivals first = part_of(kept, 0, half), second = part_of(kept, half, arrivals.end);
  CausalModel shape = dependence_shape(first, options);
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
    if (channel.times.size() >= options.fewest && channel.times.front() == channel.times.back()) {
      graph.left_out.push_back(
          fmt::format("channel '{}' has all of its {} events at {} s and takes no part; record "
                      "times of a finer clock",
                      channel.name, channel.times.size(), channel.times.front()));
      continue;
    }
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
  if (options.shifts > 0) dependence_audit(graph, options);
  return graph;
}

}  // namespace troupe::dependence
