// CT-NOR: fits, to the times of one output channel, how many outputs each input causes and when.
//
//   Arrivals arrivals{.inputs = {a, b}, .outputs = o, .end = 600};          // seconds
//   Fit fit = fit_by_em(arrivals, model_of(arrivals, 1.0), {.support = 1.0});
//   fit.model.channels[0].weight;                       // expected outputs an input
//
// Each input at i starts a Poisson process of outputs with the intensity w f(t - i), f a density of
// delays; the leak is a process of constant rate. After Simma et al., "CT-NOR" (UAI 2008). The log
// likelihood of the outputs o_l in (0, T], with N_j the inputs' mass of f_j before T, is
//
//   sum_l log( leak + sum_j w_j sum_k f_j(o_l - i_jk) )  -  leak T  -  sum_j w_j N_j
//
// EM never lowers it. Exponential delays cost time linear in the events, without truncation; other
// delays cost time linear in the pairs of an input and an output within the support. EM moves each
// family by its weighted maximum likelihood, a mixture by part; it does not move a uniform support.
//
// Invariants
// 1. Times are ascending, and lie in (0, end]; `check_arrivals` refuses others.
// 2. Weights and the leak are not negative and finite, also for empty channels: nothing is NaN.
#pragma once

#include <cstddef>
#include <vector>

#include <troupe/actors/dependence/delay.hpp>

namespace troupe::dependence {

using Times = std::vector<double>;  // seconds, ascending

struct Arrivals {
  std::vector<Times> inputs;
  Times outputs;
  double end = 0;  ///< T: times are in (0, T]
};

/// Throws Error (invalid_argument) that names the channel unless invariant 1 holds.
void check_arrivals(const Arrivals& arrivals);

/// Returns the events of (from, to], with times from `from`.
Arrivals part_of(const Arrivals& all, double from, double to);

struct Cause {
  std::size_t input = 0;  ///< whose times they are
  double weight = 0;      ///< expected outputs an input
  Delay delay = {};
  bool is_delay_fixed = false;
  bool is_absent = false;  ///< the weight stays 0: the null hypothesis
};

struct CausalModel {
  double leak = 0;  ///< outputs a second without a cause
  std::vector<Cause> channels;
};

struct FitOptions {
  double support = 1;  ///< s; delays but exponential ones are below, means at most a quarter
  int most_iterations = 500;
  double tolerance = 1e-8;  ///< ends when the log likelihood rises by less, relatively
};

struct Fit {
  CausalModel model;
  double log_likelihood = 0;
  int iterations = 0;
  bool has_converged = false;
  std::vector<double> course;  ///< log likelihood before each iteration
};

/// Returns a model to start from: an exponential cause of that mean delay for each input.
CausalModel model_of(const Arrivals& arrivals, double mean_delay);

/// Throws Error (not_found) for a channel of an input that is not there, and (invalid_argument) for
/// a delay that is no density.
void check_model(const Arrivals& arrivals, const CausalModel& model);

double log_likelihood(const Arrivals& arrivals, const CausalModel& model, double support);

/// Returns the slope of the log likelihood in the weight of a channel at weight 0, and its standard
/// error: z = slope / error is the score test of the channel's absence.
struct Score {
  double slope = 0, error = 0;
};
Score score_of(const Arrivals& arrivals, const CausalModel& model, std::size_t channel,
               double support);

/// Climbs from `start`. Its weights must be positive where they may be.
Fit fit_by_em(const Arrivals& arrivals, CausalModel start, const FitOptions& options);

/// Returns the best of fits with each of the delays in a channel: EM cannot move the support of a
/// uniform density.
Fit fit_over_delays(const Arrivals& arrivals, const CausalModel& shape, std::size_t channel,
                    const std::vector<Delay>& delays, const FitOptions& options);
/// Returns all uniform delays between two of `steps` + 1 equidistant bounds.
std::vector<Delay> uniform_delays(double from, double to, std::size_t steps);

/// Returns the best of fits that start from mean delays of support / 100, / 16 and / 5.
Fit fit_from_scales(const Arrivals& arrivals, const CausalModel& shape, const FitOptions& options);

}  // namespace troupe::dependence
