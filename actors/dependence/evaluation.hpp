// How good a list of dependences is, and three simpler methods to compare with.
//
//   double auc = area_under_curve(scores_of_true, scores_of_others);
//   Retrieval r = retrieval_of(found, truth);              // r.precision, r.recall
//   co_occurrence(input, output, end, window);             // a score: larger is more dependent
//
// The baselines look at one pair at a time: co-occurrence counts outputs soon behind an input, as
// Sherlock does; the pairwise ratio is CT-NOR with that input alone; delay spikes look for a peak
// in the histogram of all delays, as Orion does.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <troupe/actors/dependence/dependence.hpp>

namespace troupe::dependence {

/// Returns the probability that a true pair has a larger score than another; ties count half.
double area_under_curve(const std::vector<double>& of_true, const std::vector<double>& of_others);

using Edges = std::set<std::pair<std::string, std::string>>;  // from, to

Retrieval retrieval_of(const Edges& found, const Edges& truth);
Edges edges_of(const DependenceGraph& graph);
/// Sets `graph.truth` from the true edges between channels of the graph.
void judge(DependenceGraph& graph, const Edges& truth);

/// Returns the number of outputs within `window` seconds behind an input, in standard deviations
/// above its expectation for an output that depends on no time.
double co_occurrence(const Times& input, const Times& output, double end, double window);
/// Returns Λ of the input alone, with an exponential delay.
double pairwise_ratio(const Times& input, const Times& output, double end, double support);
/// Returns the height of the highest of `bins` bins of delays up to `support`, in standard
/// deviations above its expectation.
double delay_spike(const Times& input, const Times& output, double end, double support,
                   std::size_t bins = 20);

/// The baselines as graphs: a pair is an edge if its score is significant at `level` after
/// correction for the number of pairs.
enum class Baseline { co_occurrence, pairwise_ratio, delay_spike };
const char* name_of(Baseline baseline);
Edges edges_by(Baseline baseline, const std::vector<Channel>& channels, double end, double support,
               double level = 0.05);

}  // namespace troupe::dependence
