#include <troupe/actors/dependence/channel_kernel.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <troupe/actors/dependence/special.hpp>

namespace troupe::dependence {
namespace {

constexpr double kFarInRates = 40;  // exp(-40) counts as nothing

/// A = sum of exp(-rate d) and B = sum of d exp(-rate d) over the inputs before each output. Over a
/// gap g: B becomes exp(-rate g) (B + g A), and A exp(-rate g) A.
class ExponentialKernel final : public ChannelKernel {
 public:
  using ChannelKernel::ChannelKernel;

  void density(const Delay& delay, std::vector<double>& sums) override {
    const double rate = delay.rate;
    moments_.resize(outputs_.size());
    double a = 0, b = 0, at = 0;
    std::size_t k = 0;
    const auto advance = [&](double to) {
      const double gap = to - at, decay = std::exp(-rate * gap);
      b = decay * (b + gap * a);
      a *= decay;
      at = to;
    };
    for (std::size_t l = 0; l < outputs_.size(); ++l) {
      for (; k < inputs_.size() && inputs_[k] < outputs_[l]; ++k) {
        advance(inputs_[k]);
        a += 1;
      }
      advance(outputs_[l]);
      sums[l] = rate * a;
      moments_[l] = rate * b;
    }
  }

  // The edge makes the mass N depend on the rate. The tangent of that convex term bounds it from
  // below, so the likelihood does not fall.
  void update(Delay& delay, const std::vector<double>& sums, const std::vector<double>& odds,
              double weight) override {
    double outputs = 0, delays = 0;
    for (std::size_t l = 0; l < outputs_.size(); ++l) {
      outputs += odds[l] * sums[l];
      delays += odds[l] * moments_[l];
    }
    for (auto k = inputs_.size(); k-- > 0;) {
      const double rest = end_ - inputs_[k];
      if (rest * delay.rate > kFarInRates) break;
      delays += weight * rest * std::exp(-delay.rate * rest);
    }
    if (outputs <= 0 || delays <= 0) return;
    delay.rate = std::clamp(outputs / delays, 4 / support_, 1e6 / support_);
  }

 private:
  std::vector<double> moments_;  // by output, times the rate
};

/// Sums that no step changes are computed once.
class FixedKernel final : public ChannelKernel {
 public:
  FixedKernel(const Times& inputs, const Arrivals& arrivals, double support, const Delay& delay)
      : ChannelKernel(inputs, arrivals, support), sums_(outputs_.size()) {
    const bool is_box = delay.kind == Delay::Kind::box;
    const double after = is_box ? delay.size : 0, before = is_box ? delay.size : support_;
    std::size_t first = 0;
    for (std::size_t l = 0; l < outputs_.size(); ++l) {
      while (first < inputs_.size() && inputs_[first] <= outputs_[l] - before) ++first;
      for (std::size_t k = first; k < inputs_.size() && inputs_[k] < outputs_[l] + after; ++k)
        sums_[l] += delay.density(outputs_[l] - inputs_[k]);
    }
  }
  void density(const Delay&, std::vector<double>& sums) override { sums = sums_; }
  void update(Delay&, const std::vector<double>&, const std::vector<double>&, double) override {}

 private:
  std::vector<double> sums_;
};

/// Pairs within the support, of any delay density.
class PairKernel final : public ChannelKernel {
 public:
  PairKernel(const Times& inputs, const Arrivals& arrivals, double support)
      : ChannelKernel(inputs, arrivals, support) {
    std::size_t first = 0;
    for (std::size_t l = 0; l < outputs_.size(); ++l) {
      while (first < inputs_.size() && inputs_[first] <= outputs_[l] - support_) ++first;
      for (std::size_t k = first; k < inputs_.size() && inputs_[k] < outputs_[l]; ++k)
        pairs_.push_back({outputs_[l] - inputs_[k], 0, static_cast<std::uint32_t>(l)});
    }
    logs_.reserve(pairs_.size());
    for (const Pair& pair : pairs_) logs_.push_back(std::log(pair.delay));
  }

  void density(const Delay& delay, std::vector<double>& sums) override {
    std::fill(sums.begin(), sums.end(), 0);
    const double front = delay.shape * std::log(delay.rate) - std::lgamma(delay.shape);
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      Pair& pair = pairs_[p];
      pair.density = std::exp(front + (delay.shape - 1) * logs_[p] - delay.rate * pair.delay);
      sums[pair.output] += pair.density;
    }
  }

  // Weighted maximum likelihood of a gamma density: Minka's start, then Newton's steps.
  void update(Delay& delay, const std::vector<double>&, const std::vector<double>& odds,
              double) override {
    double outputs = 0, delays = 0, logs = 0;
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      const double z = odds[pairs_[p].output] * pairs_[p].density;
      outputs += z;
      delays += z * pairs_[p].delay;
      logs += z * logs_[p];
    }
    if (outputs <= 0 || delays <= 0) return;
    const double mean = delays / outputs, s = std::log(mean) - logs / outputs;
    if (!(s > 1e-9)) return;  // all delays are equal
    double a = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
    for (int n = 0; n < 5; ++n) {
      const double next = a - (std::log(a) - digamma(a) - s) / (1 / a - trigamma(a));
      a = next > 0 ? next : a / 2;
    }
    delay.shape = a;
    delay.rate = a / std::min(mean, support_ / 4);
  }

 private:
  struct Pair {
    double delay, density;
    std::uint32_t output;
  };
  std::vector<Pair> pairs_;
  std::vector<double> logs_;  // logarithms of the delays
};

}  // namespace

double ChannelKernel::mass(const Delay& delay) const {
  double mass = 0;
  const bool is_cut = delay.kind == Delay::Kind::gamma;
  const double whole = is_cut ? delay.cumulative(support_) : 1;
  for (auto k = inputs_.size(); k-- > 0;) {
    const double rest = end_ - inputs_[k];
    const bool is_whole = delay.kind == Delay::Kind::exponential ? rest * delay.rate > kFarInRates
                          : delay.kind == Delay::Kind::gamma     ? rest > support_
                                                                 : false;
    if (is_whole) return mass + static_cast<double>(k + 1) * whole;
    // a box also loses what lies before the beginning
    mass += delay.cumulative(is_cut ? std::min(rest, support_) : rest) -
            (delay.kind == Delay::Kind::box ? delay.cumulative(-inputs_[k]) : 0);
  }
  return mass;
}

std::unique_ptr<ChannelKernel> make_kernel(const Cause& cause, const Arrivals& arrivals,
                                           double support) {
  const Times& inputs = arrivals.inputs[cause.input];
  if (cause.is_delay_fixed || cause.delay.kind == Delay::Kind::box) {
    // an exponential delay is not cut at the support
    const double reach =
        cause.delay.kind == Delay::Kind::exponential ? kFarInRates / cause.delay.rate : support;
    return std::make_unique<FixedKernel>(inputs, arrivals, reach, cause.delay);
  }
  if (cause.delay.kind == Delay::Kind::exponential)
    return std::make_unique<ExponentialKernel>(inputs, arrivals, support);
  return std::make_unique<PairKernel>(inputs, arrivals, support);
}

}  // namespace troupe::dependence
