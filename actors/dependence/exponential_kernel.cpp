// A = sum of exp(-rate d) and B = sum of d exp(-rate d) over the inputs before each output. Over a
// gap g: B becomes exp(-rate g) (B + g A), and A exp(-rate g) A. The gaps between the events of
// both channels never change, so their exponentials are computed a block at a time.
#include <troupe/actors/dependence/channel_kernel.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <troupe/actors/dependence/exponentials.hpp>

namespace troupe::dependence {
namespace {

class ExponentialKernel final : public ChannelKernel {
 public:
  ExponentialKernel(const Times& inputs, const Arrivals& arrivals, double support)
      : ChannelKernel(inputs, arrivals, support), moments_(outputs_.size()) {
    double at = 0;
    std::size_t k = 0;
    const auto add = [&](double time, double starts, std::uint8_t is_output) {
      gaps_.push_back(time - at);
      starts_.push_back(starts);
      outputs_before_.push_back(is_output);
      at = time;
    };
    gaps_.reserve(inputs_.size() + outputs_.size() + kExpBlock);
    starts_.reserve(gaps_.capacity());
    outputs_before_.reserve(gaps_.capacity());
    for (const double output : outputs_) {
      for (; k < inputs_.size() && inputs_[k] < output; ++k) add(inputs_[k], 1, 0);
      // instead of nothing a little, so that no sum becomes subnormal, which is slow
      add(output, 1e-200, 1);
    }
    events_ = gaps_.size();
    while (gaps_.size() % kExpBlock != 0) gaps_.push_back(0);
  }

  void density(const Delay& delay, std::vector<double>& sums) override {
    const double rate = delay.rate;
    double a = 0, b = 0;
    std::size_t l = 0;
    for (std::size_t begin = 0; begin < events_; begin += kExpBlock) {
      double decays[kExpBlock];
      for (std::size_t i = 0; i < kExpBlock; ++i)
        decays[i] = std::max(-rate * gaps_[begin + i], -2 * kFarInRates);
      exponentials(decays, decays);
      const std::size_t count = std::min(kExpBlock, events_ - begin);
      for (std::size_t i = 0; i < count; ++i) {
        b = decays[i] * (b + gaps_[begin + i] * a);
        a *= decays[i];
        // at an input too: the next output overwrites it
        sums[l] = rate * a;
        moments_[l] = rate * b;
        l += outputs_before_[begin + i];
        a += starts_[begin + i];
      }
    }
  }

  // The edge makes the mass N depend on the rate. The tangent of that convex term bounds it from
  // below, so the likelihood does not fall.
  void update(Cause& cause, const std::vector<double>& sums,
              const std::vector<double>& odds) override {
    Delay& delay = cause.delay;
    double outputs = 0, delays = 0;
    for (std::size_t l = 0; l < outputs_.size(); ++l) {
      outputs += odds[l] * sums[l];
      delays += odds[l] * moments_[l];
    }
    for (auto k = inputs_.size(); k-- > 0;) {
      const double rest = end_ - inputs_[k];
      if (rest * delay.rate > kFarInRates) break;
      delays += cause.weight * rest * std::exp(-delay.rate * rest);
    }
    if (outputs <= 0 || delays <= 0) return;
    delay.rate = std::clamp(outputs / delays, 1 / (kLongestMean * support_), 1e6 / support_);
  }

 private:
  // by event of either channel, up to the last output
  std::vector<double> gaps_, starts_;
  std::vector<std::uint8_t> outputs_before_;  // 1 at an output
  std::size_t events_ = 0;
  std::vector<double> moments_;  // by output, times the rate
};

}  // namespace

std::unique_ptr<ChannelKernel> make_exponential_kernel(const Times& inputs,
                                                       const Arrivals& arrivals, double support) {
  return std::make_unique<ExponentialKernel>(inputs, arrivals, support);
}

}  // namespace troupe::dependence
