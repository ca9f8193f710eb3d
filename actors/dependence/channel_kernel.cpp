#include <troupe/actors/dependence/channel_kernel.hpp>

#include <algorithm>
#include <cmath>

namespace troupe::dependence {
namespace {

/// Sums that no step changes are computed once.
class FixedKernel final : public ChannelKernel {
 public:
  FixedKernel(const Times& inputs, const Arrivals& arrivals, double reach, const Delay& delay)
      : ChannelKernel(inputs, arrivals, reach), sums_(outputs_.size()) {
    const bool is_box = delay.kind == Delay::Kind::box;
    const double after = is_box ? delay.size : 0, before = is_box ? delay.size : reach;
    std::size_t first = 0;
    for (std::size_t l = 0; l < outputs_.size(); ++l) {
      while (first < inputs_.size() && inputs_[first] <= outputs_[l] - before) ++first;
      for (std::size_t k = first; k < inputs_.size() && inputs_[k] < outputs_[l] + after; ++k)
        sums_[l] += delay.density(outputs_[l] - inputs_[k]);
    }
  }
  void density(const Delay&, std::vector<double>& sums) override { sums = sums_; }
  void update(Cause&, const std::vector<double>&, const std::vector<double>&) override {}

 private:
  std::vector<double> sums_;
};

}  // namespace

double reach_of(const Delay& delay, double support) {
  // an exponential delay alone is not cut at the support
  if (delay.kind == Delay::Kind::exponential) return kFarInRates / delay.rate;
  if (delay.kind == Delay::Kind::uniform || delay.kind == Delay::Kind::histogram)
    return std::min(delay.size, support);
  return support;
}

double ChannelKernel::mass(const Delay& delay) const {
  double mass = 0;
  const bool is_box = delay.kind == Delay::Kind::box;
  const double reach = is_box ? INFINITY : reach_of(delay, support_),
               whole = delay.kind == Delay::Kind::exponential ? 1 : delay.cumulative(reach);
  for (auto k = inputs_.size(); k-- > 0;) {
    const double rest = end_ - inputs_[k];
    if (rest > reach) return mass + static_cast<double>(k + 1) * whole;
    // a box also loses the part before the beginning
    mass += delay.cumulative(rest) - (is_box ? delay.cumulative(-inputs_[k]) : 0);
  }
  return mass;
}

std::unique_ptr<ChannelKernel> make_kernel(const Cause& cause, const Arrivals& arrivals,
                                           double support) {
  using Kind = Delay::Kind;
  const Times& inputs = arrivals.inputs[cause.input];
  const Delay& delay = cause.delay;
  // the support of a uniform density cannot move
  if (cause.is_delay_fixed || delay.kind == Kind::box || delay.kind == Kind::uniform)
    return std::make_unique<FixedKernel>(inputs, arrivals, reach_of(delay, support), delay);
  if (delay.kind == Kind::exponential) return make_exponential_kernel(inputs, arrivals, support);
  if (delay.kind == Kind::histogram) return make_histogram_kernel(inputs, arrivals, delay);
  return make_pair_kernel(inputs, arrivals, support, delay);
}

}  // namespace troupe::dependence
