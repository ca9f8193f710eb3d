// Whether and when a causal model changed.
//
//   ChangePoint change = find_change(arrivals, model, {.support = 1});
//   if (change.p <= 0.01) ... change.at, change.before, change.after, change.text()
//
//   Cusum cusum(model, alternatives_of(model), {.support = 1});    // on-line
//   cusum.add_input(0, 601.2);  cusum.add_output(601.25);  cusum.advance(610);
//   if (cusum.is_over()) ... cusum.alarm().text();
//
// The generalised likelihood ratio (GLR) is 2 (log likelihood before + after - pooled), each with
// parameters of its own; for a known time it is chi-square with as many degrees as there are
// parameters. For an unknown time the largest over a grid has a threshold by parametric bootstrap:
// outputs drawn from the pooled model, and searched alike. CUSUM adds up log ratios of an
// alternative's likelihood to the model's; silence counts through the integrals of the intensity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <troupe/actors/dependence/fit.hpp>

namespace troupe::dependence {

/// Returns the GLR of a change at `at`. `pooled` is a fit to the whole, from which both begin.
double change_statistic(const Arrivals& arrivals, const Fit& pooled, double at,
                        const FitOptions& options);
/// Returns the number of parameters that a fit moves.
std::size_t parameters_of(const CausalModel& model);

struct ChangeOptions {
  double support = 1;   ///< s
  int grid = 15;        ///< candidate times, equidistant
  int bootstraps = 39;  ///< at least; p is at best 1 / (bootstraps + 1)
  std::uint64_t seed = 1;
  int most_iterations = 60;
};

struct ChangePoint {
  double at = 0;  ///< s
  double statistic = 0;
  double threshold = 0;  ///< statistic that bootstraps exceed in 5 % of the cases
  double p = 1;
  CausalModel before, after;
  /// Returns which parameter changed most, as a sentence: a weight, a delay or the leak.
  std::string text(const std::vector<std::string>& inputs = {}) const;
};
/// Finds the most likely change of the model. Throws Error (failed_precondition) for fewer than 40
/// outputs.
ChangePoint find_change(const Arrivals& arrivals, const CausalModel& start,
                        const ChangeOptions& options);

/// Returns which parameter differs most between two models of one structure, as a sentence.
std::string difference_text(const CausalModel& before, const CausalModel& after,
                            const std::vector<std::string>& inputs);

/// Returns the changes to watch for: each cause half and a twentieth as strong, and half as slow
/// again; three times the leak.
std::vector<CausalModel> alternatives_of(const CausalModel& model);

struct CusumOptions {
  double support = 1;     ///< s
  double threshold = 11;  ///< a sum that alarms; larger: fewer false alarms, later ones
  double begin = 0;       ///< s; no event is before
};

class Cusum {
 public:
  /// The alternatives have the inputs of the model.
  Cusum(CausalModel model, std::vector<CausalModel> alternatives, CusumOptions options);
  /// Events come in order of time, of all channels together. Throws Error (invalid_argument) for
  /// one that goes back.
  void add_input(std::size_t input, double time);
  void add_output(double time);
  /// No event comes before `time` any more.
  void advance(double time);

  bool is_over() const { return largest() >= options_.threshold; }
  /// Returns the largest sum of an alternative.
  double largest() const;
  /// Returns the earliest time since when a sum is not 0; now, if all are.
  double earliest() const;
  struct Alarm {
    double since = 0, at = 0;  ///< s; the sum rises from 0; now
    double sum = 0;
    CausalModel before, after;
    std::string text(const std::vector<std::string>& inputs = {}) const;
  };
  Alarm alarm() const;
  /// Begins anew, after an alarm.
  void reset();

 private:
  struct Sum {
    double value = 0, since = 0;
  };
  double intensity(const CausalModel& model) const;
  double integral(const CausalModel& model, double to) const;

  const CausalModel model_;
  const std::vector<CausalModel> alternatives_;
  const CusumOptions options_;
  std::vector<std::deque<double>> recent_;  // by input, within reach
  double reach_ = 0, now_ = 0;
  std::vector<Sum> sums_;
};

}  // namespace troupe::dependence
