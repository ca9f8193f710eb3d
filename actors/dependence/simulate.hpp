// Outputs drawn from a model, and its intensity integrated: for bootstraps, and to check a model.
//
//   std::mt19937_64 random(seed);
//   Times outputs = simulate_outputs(arrivals, model, random);
//   Goodness fit = goodness_of_fit(arrivals, model, support);     // fit.p is small if it is wrong
#pragma once

#include <random>
#include <vector>

#include <troupe/actors/dependence/fit.hpp>

namespace troupe::dependence {

/// Draws the outputs that the inputs of `arrivals` and the leak cause in (0, end].
Times simulate_outputs(const Arrivals& arrivals, const CausalModel& model, std::mt19937_64& random);

/// Returns the integral of the intensity from 0 to each of the ascending times.
std::vector<double> expected_outputs(const Arrivals& arrivals, const CausalModel& model,
                                     double support, const Times& times);

struct Goodness {
  double distance = 0;  ///< Kolmogorov and Smirnov, from the exponential distribution
  double p = 1;
};
/// Tests whether the outputs are of the model: under it the integrals of the intensity between
/// outputs are exponential of mean 1. A model that is fitted to the outputs has a p that is
/// somewhat too large.
Goodness goodness_of_fit(const Arrivals& arrivals, const CausalModel& model, double support);

/// Returns for each bin of `width` seconds the probability of one output or more, as a noisy-or:
/// an input causes none with the probability exp(-w times its mass in the bin). The last bin ends
/// with the recording.
std::vector<double> bin_probabilities(const Arrivals& arrivals, const CausalModel& model,
                                      double support, double width);

}  // namespace troupe::dependence
