// One channel's part in an EM step: the sum of its delay density at each output, and the update of
// its delay. Three ways: a recurrence for exponential delays, stored sums for fixed ones, pairs for
// the others. Internal to fit.cpp.
#pragma once

#include <memory>
#include <vector>

#include <troupe/actors/dependence/fit.hpp>

namespace troupe::dependence {

class ChannelKernel {
 public:
  ChannelKernel(const Times& inputs, const Arrivals& arrivals, double support)
      : inputs_(inputs), outputs_(arrivals.outputs), end_(arrivals.end), support_(support) {}
  virtual ~ChannelKernel() = default;
  /// Sets `sums[l]` to the sum over inputs of the density at output l, for the delay as it is.
  virtual void density(const Delay& delay, std::vector<double>& sums) = 0;
  /// Moves the delay, after `density`: output l is this channel's with the probability `odds[l]`
  /// times `sums[l]`. `weight` is the new weight.
  virtual void update(Delay& delay, const std::vector<double>& sums,
                      const std::vector<double>& odds, double weight) = 0;
  /// Returns N, the inputs' mass before the end.
  double mass(const Delay& delay) const;

 protected:
  const Times& inputs_;
  const Times& outputs_;
  const double end_, support_;
};

/// `cause` decides which; arrivals must outlive the result.
std::unique_ptr<ChannelKernel> make_kernel(const Cause& cause, const Arrivals& arrivals,
                                           double support);

}  // namespace troupe::dependence
