// Finds dependences between channels of events: a test for each pair, and the graph of those that
// pass.
//
//   DependenceGraph graph = find_dependences({{"a", times_a}, {"b", times_b}}, 600, {});
//   for (const Dependence& d : graph.edges) ...        // from, to, weight, delay, p, q
//
// For each output, CT-NOR is fitted to the first half of the recording with all inputs together, so
// that one input explains another's echo away. The second half tests the weight of each input with
// its delay fixed: Λ = 2 (log likelihood with the input - without it, refitted). Without dependence
// Λ is 0 in half of the cases and chi-square of one degree in the others, because a weight is not
// negative. Both hypotheses have, for each input, an acausal channel, a box around its events: load
// that channels share lies in it. Benjamini and Hochberg's q corrects for the number of pairs.
//
// The delays and weights of the graph are fitted to the whole recording. If there are more inputs
// than `most_inputs`, a score test leaves the best of them. A uniform delay has the support of the
// best score, by a grid. An audit by circular shifts stands beside the p of each edge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <troupe/actors/dependence/fit.hpp>

namespace troupe::dependence {

struct Channel {
  std::string name;
  Times times;
};

struct DependenceOptions {
  double support = 0;            ///< s, longest delay; 0: a hundredth of the recording, at most 1 s
  double level = 0.05;           ///< edges have q at most
  std::size_t fewest = 20;       ///< events of a channel that takes part
  std::size_t most_inputs = 12;  ///< an output, after the score test
  bool has_acausal = true;       ///< false: for recordings whose load is constant
  std::string family = "exponential";  ///< delays, as delay_of has them
  int shifts = 99;  ///< circular shifts of an edge's input, for the audit; 0: none
};

struct Dependence {
  std::size_t from = 0, to = 0;  ///< channels
  double weight = 0;             ///< expected outputs an input
  Delay delay = {};
  double statistic = 0;  ///< Λ
  double p = 1, q = 1;
  std::optional<double> shifted_p = {};  ///< edges: by circular shifts of the input
};

/// When and how an output's dependence on its inputs changed.
struct ChannelChange {
  std::size_t channel = 0;
  double at = 0;  ///< s
  double statistic = 0, p = 1;
  std::string text;  ///< which parameter moved most
};

/// Found edges against true ones.
struct Retrieval {
  std::size_t right = 0, wrong = 0, missed = 0;
  double precision = 1;  ///< 1 if nothing was found
  double recall = 1;     ///< 1 if there is nothing to find
  std::string text() const;
};

struct DependenceGraph {
  std::vector<Channel> channels;
  double end = 0;
  double support = 0;
  std::vector<Dependence> tested;      ///< all pairs of channels that took part
  std::vector<Dependence> edges;       ///< pairs with q <= level, the least p first
  std::vector<std::string> left_out;   ///< channels with too few events, as sentences
  std::vector<ChannelChange> changes;  ///< by find_changes, the least p first
  std::optional<Retrieval> truth;      ///< if the true edges are known
};

/// Tests all inputs of one output; `from` counts `arrivals.inputs`, `q` is not set. Throws Error
/// (failed_precondition) that says how many events are needed.
std::vector<Dependence> test_inputs(const Arrivals& arrivals, const DependenceOptions& options);

/// Returns the p-value of a channel by circular shifts of its input against the score test: shifts
/// keep the bursts of the input, and break its dependence. `model` has the delays.
double circular_shift_p(const Arrivals& arrivals, const CausalModel& model, std::size_t channel,
                        const FitOptions& options, int shifts, std::uint64_t seed = 1);

/// Λ of a channel with its delay fixed: `model` has the delays, and weights to start from.
double likelihood_ratio(const Arrivals& arrivals, const CausalModel& model, std::size_t channel,
                        const FitOptions& options);

/// Returns the p-value of Λ for a fixed delay.
double p_of(double statistic);
/// Sets q of all; they are in any order.
void set_q(std::vector<Dependence>& all);

DependenceGraph find_dependences(std::vector<Channel> channels, double end,
                                 DependenceOptions options);

/// Sets the changes of `graph` with a p of at most `level`: a search for each output of an edge.
void find_changes(DependenceGraph& graph, double level);

/// Returns the graph for Graphviz, as JSON, or as a table for people.
std::string dot_of(const DependenceGraph& graph);
std::string json_of(const DependenceGraph& graph);
std::string text_of(const DependenceGraph& graph);

}  // namespace troupe::dependence
