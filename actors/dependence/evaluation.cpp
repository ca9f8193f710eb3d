#include <troupe/actors/dependence/evaluation.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <troupe/actors/dependence/channel_kernel.hpp>
#include <troupe/actors/dependence/special.hpp>

namespace troupe::dependence {

double area_under_curve(const std::vector<double>& of_true, const std::vector<double>& of_others) {
  if (of_true.empty() || of_others.empty()) return 0.5;
  std::vector<double> others = of_others;
  std::sort(others.begin(), others.end());
  double area = 0;
  for (const double score : of_true) {
    const auto [first, last] = std::equal_range(others.begin(), others.end(), score);
    area += static_cast<double>(first - others.begin()) + 0.5 * static_cast<double>(last - first);
  }
  return area / static_cast<double>(of_true.size() * others.size());
}

std::string Retrieval::text() const {
  return fmt::format("precision {:.2f}, recall {:.2f}: {} right, {} wrong, {} missed", precision,
                     recall, right, wrong, missed);
}

Retrieval retrieval_of(const Edges& found, const Edges& truth) {
  Retrieval r;
  for (const auto& edge : found) ++(truth.contains(edge) ? r.right : r.wrong);
  r.missed = truth.size() - r.right;
  if (!found.empty())
    r.precision = static_cast<double>(r.right) / static_cast<double>(found.size());
  if (!truth.empty()) r.recall = static_cast<double>(r.right) / static_cast<double>(truth.size());
  return r;
}

Edges edges_of(const DependenceGraph& graph) {
  Edges edges;
  for (const Dependence& d : graph.edges)
    edges.emplace(graph.channels[d.from].name, graph.channels[d.to].name);
  return edges;
}

void judge(DependenceGraph& graph, const Edges& truth) {
  std::set<std::string> channels;
  for (const Channel& channel : graph.channels) channels.insert(channel.name);
  Edges between;
  for (const auto& edge : truth)
    if (channels.contains(edge.first) && channels.contains(edge.second)) between.insert(edge);
  graph.truth = retrieval_of(edges_of(graph), between);
}

double co_occurrence(const Times& input, const Times& output, double end, double window) {
  double covered = 0, until = 0;  // time behind an input, soon
  for (const double t : input) {
    const double to = std::min(t + window, end);
    covered += std::max(0.0, to - std::max(t, until));
    until = std::max(until, to);
  }
  double soon = 0;
  for (const double t : output) {
    const auto last = std::lower_bound(input.begin(), input.end(), t);
    soon += last != input.begin() && t - *(last - 1) < window;
  }
  const double share = covered / end, n = static_cast<double>(output.size()),
               variance = n * share * (1 - share);
  return variance > 0 ? (soon - n * share) / std::sqrt(variance) : 0;
}

double pairwise_ratio(const Times& input, const Times& output, double end, double support) {
  const Arrivals arrivals{{input}, output, end};
  const Fit full = fit_from_scales(arrivals, model_of(arrivals, support / 16),
                                   {.support = support, .most_iterations = 100, .tolerance = 1e-7});
  const auto n = static_cast<double>(output.size());
  const double without = n > 0 ? n * std::log(n / end) - n : 0;
  return std::max(0.0, 2 * (full.log_likelihood - without));
}

double delay_spike(const Times& input, const Times& output, double end, double support,
                   std::size_t bins) {
  std::vector<double> counts(bins);
  const double width = support / static_cast<double>(bins);
  for (const double d : Pairs(input, output, support).delays)
    ++counts[std::min(bins - 1, static_cast<std::size_t>(d / width))];
  const double expected =
      static_cast<double>(input.size()) * static_cast<double>(output.size()) * width / end;
  const double most = *std::max_element(counts.begin(), counts.end());
  return expected > 0 ? (most - expected) / std::sqrt(expected) : 0;
}

const char* name_of(Baseline baseline) {
  return baseline == Baseline::co_occurrence    ? "co-occurrence"
         : baseline == Baseline::pairwise_ratio ? "pairwise ratio"
                                                : "delay spikes";
}

Edges edges_by(Baseline baseline, const std::vector<Channel>& channels, double end, double support,
               double level) {
  constexpr std::size_t kBins = 20;
  std::vector<Dependence> all;
  for (std::size_t from = 0; from < channels.size(); ++from)
    for (std::size_t to = 0; to < channels.size(); ++to) {
      if (from == to) continue;
      const Times &a = channels[from].times, &b = channels[to].times;
      Dependence d{.from = from, .to = to};
      if (baseline == Baseline::co_occurrence)
        d.p = normal_tail(co_occurrence(a, b, end, support / 4));
      else if (baseline == Baseline::pairwise_ratio)
        // the delay is free, so there are two degrees
        d.p = chi_square_tail(2, pairwise_ratio(a, b, end, support));
      else d.p = std::min(1.0, kBins * normal_tail(delay_spike(a, b, end, support, kBins)));
      all.push_back(d);
    }
  set_q(all);
  Edges edges;
  for (const Dependence& d : all)
    if (d.q <= level) edges.emplace(channels[d.from].name, channels[d.to].name);
  return edges;
}

}  // namespace troupe::dependence
