// One channel's part in an EM step: the sum of its delay density at each output, and the update of
// its weight and delay. Four ways: a recurrence for exponential delays, stored sums for fixed ones,
// pairs for the others, and bins of pairs for histograms. Internal to fit.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <troupe/actors/dependence/fit.hpp>

namespace troupe::dependence {

inline constexpr double kFarInRates = 40;  // exp(-40) counts as nothing

class ChannelKernel {
 public:
  ChannelKernel(const Times& inputs, const Arrivals& arrivals, double support)
      : inputs_(inputs), outputs_(arrivals.outputs), end_(arrivals.end), support_(support) {}
  virtual ~ChannelKernel() = default;
  /// Sets `sums[l]` to the sum over inputs of the density at output l, for the delay as it is.
  virtual void density(const Delay& delay, std::vector<double>& sums) = 0;
  /// Moves the delay, after `density`: output l is this channel's with the probability `odds[l]`
  /// times `sums[l]`. The weight is the new one for the mass before; a kernel may better it.
  virtual void update(Cause& cause, const std::vector<double>& sums,
                      const std::vector<double>& odds) = 0;
  /// Returns N, the inputs' mass before the end.
  double mass(const Delay& delay) const;

 protected:
  const Times& inputs_;
  const Times& outputs_;
  const double end_, support_;
};

/// Returns the delay behind which a density counts as nothing.
double reach_of(const Delay& delay, double support);

/// Pairs of an input and an output behind it within the support, by output.
struct Pairs {
  Pairs(const Times& inputs, const Times& outputs, double support);
  std::vector<double> delays;
  std::vector<std::size_t> begin;  // by output, and the end
};

/// `cause` decides which; arrivals must outlive the result.
std::unique_ptr<ChannelKernel> make_kernel(const Cause& cause, const Arrivals& arrivals,
                                           double support);

/// The mean delay that a fit allows at most, as a part of the support: a longer one imitates the
/// leak.
inline constexpr double kLongestMean = 0.25;

std::unique_ptr<ChannelKernel> make_exponential_kernel(const Times& inputs,
                                                       const Arrivals& arrivals, double support);
/// For gamma, lognormal and mixtures.
std::unique_ptr<ChannelKernel> make_pair_kernel(const Times& inputs, const Arrivals& arrivals,
                                                double support, const Delay& delay);
std::unique_ptr<ChannelKernel> make_histogram_kernel(const Times& inputs, const Arrivals& arrivals,
                                                     const Delay& delay);

}  // namespace troupe::dependence
