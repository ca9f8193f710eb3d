// Delays by pairs. A density of the families here is exp(c + p log d + q t), with t = d or the
// square of log d, so that one loop serves all, and three weighted sums serve all updates.
#include <troupe/actors/dependence/channel_kernel.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include <fmt/format.h>

#include <troupe/actors/dependence/exponentials.hpp>
#include <troupe/actors/dependence/special.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

struct PairForm {
  double constant, of_log, of_second;
};

PairForm pair_form_of(const Delay& delay) {
  if (delay.kind == Delay::Kind::exponential) return {std::log(delay.rate), 0, -delay.rate};
  if (delay.kind == Delay::Kind::gamma)
    return {delay.shape * std::log(delay.rate) - std::lgamma(delay.shape), delay.shape - 1,
            -delay.rate};
  const double variance = delay.spread * delay.spread;
  return {-std::log(delay.spread * std::sqrt(2 * std::numbers::pi)) -
              delay.location * delay.location / (2 * variance),
          delay.location / variance - 1, -1 / (2 * variance)};
}

/// Sets `sums` to those of `values` by output. With few pairs an output a branch would often miss.
void pair_add_up(const Pairs& pairs, const std::vector<std::uint32_t>& output_of,
                 const std::vector<double>& values, std::vector<double>& sums) {
  constexpr std::size_t kFewPairs = 4;
  if (output_of.size() < kFewPairs * sums.size()) {
    std::fill(sums.begin(), sums.end(), 0);
    for (std::size_t p = 0; p < output_of.size(); ++p) sums[output_of[p]] += values[p];
    return;
  }
  for (std::size_t l = 0; l < sums.size(); ++l) {
    double sum = 0;
    for (std::size_t p = pairs.begin[l]; p < pairs.begin[l + 1]; ++p) sum += values[p];
    sums[l] = sum;
  }
}

std::vector<std::uint32_t> pair_outputs(const std::vector<std::size_t>& begin) {
  std::vector<std::uint32_t> all;
  all.reserve(begin.back());
  for (std::size_t l = 0; l + 1 < begin.size(); ++l)
    all.insert(all.end(), begin[l + 1] - begin[l], static_cast<std::uint32_t>(l));
  return all;
}

constexpr double kLargestShape = 1e4, kLeastSpread = 1e-2;  // if all delays are equal

/// Weighted maximum likelihood. A gamma density has Minka's start, then Newton's steps.
void pair_refit(Delay& delay, const WeightedSums& sums, double longest) {
  if (sums.weights <= 0) return;
  const double log = sums.xs / sums.weights, second = sums.ts / sums.weights;
  if (delay.kind == Delay::Kind::exponential && second > 0)
    delay.rate = 1 / std::min(second, longest);
  if (delay.kind == Delay::Kind::lognormal) {
    delay.spread = std::sqrt(std::max(second - log * log, kLeastSpread * kLeastSpread));
    delay.location = std::min(log, std::log(longest) - delay.spread * delay.spread / 2);
  }
  if (delay.kind != Delay::Kind::gamma || !(second > 0)) return;
  const double s = std::log(second) - log;
  if (!(s > 1e-9)) return;  // all delays are equal
  double a = (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
  for (int n = 0; n < 5; ++n) {
    const double next = a - (std::log(a) - digamma(a) - s) / (1 / a - trigamma(a));
    a = next > 0 ? next : a / 2;
  }
  delay.shape = std::min(a, kLargestShape);
  delay.rate = delay.shape / std::min(second, longest);
}

class PairKernel final : public ChannelKernel {
 public:
  PairKernel(const Times& inputs, const Arrivals& arrivals, double support, const Delay& delay)
      : ChannelKernel(inputs, arrivals, support), pairs_(inputs, outputs_, support) {
    output_of_ = pair_outputs(pairs_.begin);
    const std::size_t blocks = (pairs_.delays.size() + kExpBlock - 1) / kExpBlock;
    pairs_.delays.resize(blocks * kExpBlock, 1);
    const std::vector<Delay> one{delay};
    for (const Delay& part : delay.kind == Delay::Kind::mixture ? delay.parts : one) {
      parts_.emplace_back();
      parts_.back().sums.resize(outputs_.size());
      if (part.kind == Delay::Kind::uniform) count(part, parts_.back());
      else parts_.back().densities.resize(pairs_.delays.size());
    }
    logs_.reserve(pairs_.delays.size());
    for (const double d : pairs_.delays) logs_.push_back(std::log(d));
    squares_.reserve(logs_.size());
    for (const double log : logs_) squares_.push_back(log * log);
  }

  void density(const Delay& delay, std::vector<double>& sums) override {
    if (delay.kind != Delay::Kind::mixture) return compute(delay, parts_[0], sums);
    std::fill(sums.begin(), sums.end(), 0);
    for (std::size_t c = 0; c < parts_.size(); ++c) {
      if (delay.parts[c].kind != Delay::Kind::uniform)
        compute(delay.parts[c], parts_[c], parts_[c].sums);
      for (std::size_t l = 0; l < sums.size(); ++l) sums[l] += delay.shares[c] * parts_[c].sums[l];
    }
  }

  void update(Cause& cause, const std::vector<double>&, const std::vector<double>& odds) override {
    Delay& delay = cause.delay;
    const double longest = kLongestMean * support_;
    if (delay.kind != Delay::Kind::mixture)
      return pair_refit(delay, weighted(delay, parts_[0], odds), longest);
    double all = 0;
    std::vector<double> shares;
    for (std::size_t c = 0; c < parts_.size(); ++c) {
      const WeightedSums of_part = weighted(delay.parts[c], parts_[c], odds);
      shares.push_back(delay.shares[c] * of_part.weights);
      all += shares.back();
      pair_refit(delay.parts[c], of_part, longest);
    }
    if (all <= 0) return;
    for (std::size_t c = 0; c < parts_.size(); ++c) delay.shares[c] = shares[c] / all;
  }

 private:
  struct Part {
    std::vector<double> sums;       // by output, of a part of a mixture
    std::vector<double> densities;  // by pair; none of a uniform part
  };

  /// A uniform part never changes: its sums are counts.
  void count(const Delay& delay, Part& part) const {
    for (std::size_t p = 0; p < output_of_.size(); ++p)
      part.sums[output_of_[p]] += delay.density(pairs_.delays[p]);
  }
  const double* seconds_of(const Delay& delay) const {
    return (delay.kind == Delay::Kind::lognormal ? squares_ : pairs_.delays).data();
  }
  void compute(const Delay& delay, Part& part, std::vector<double>& sums) {
    const auto [constant, of_log, of_second] = pair_form_of(delay);
    exponentials_of(constant, of_log, logs_.data(), of_second, seconds_of(delay),
                    part.densities.data(), part.densities.size());
    pair_add_up(pairs_, output_of_, part.densities, sums);
  }
  /// Returns the sums over pairs of the odds z, of z log d and of z t.
  WeightedSums weighted(const Delay& delay, const Part& part,
                        const std::vector<double>& odds) const {
    if (delay.kind != Delay::Kind::uniform)
      return weighted_sums(part.densities.data(), output_of_.data(), odds.data(), logs_.data(),
                           seconds_of(delay), output_of_.size());
    WeightedSums all;
    for (std::size_t l = 0; l < odds.size(); ++l) all.weights += odds[l] * part.sums[l];
    return all;
  }

  Pairs pairs_;                           // delays are padded to whole blocks with 1
  std::vector<std::uint32_t> output_of_;  // by pair
  std::vector<Part> parts_;
  std::vector<double> logs_, squares_;  // by pair, padded
};

/// Bins of pairs (Lewis and Mohler). The exposure of a bin is the number of inputs whose delays in
/// it end before the recording does, so the step is exact also at the edge.
class HistogramKernel final : public ChannelKernel {
 public:
  HistogramKernel(const Times& inputs, const Arrivals& arrivals, const Delay& delay)
      : ChannelKernel(inputs, arrivals, delay.size), exposures_(delay.masses.size()) {
    const Pairs pairs(inputs, outputs_, delay.size);
    begin_ = pairs.begin;
    output_of_ = pair_outputs(begin_);
    bins_.reserve(pairs.delays.size());
    for (const double d : pairs.delays)
      bins_.push_back(static_cast<std::uint32_t>(delay.bin_of(d)));
    const double width = delay.size / static_cast<double>(exposures_.size());
    for (std::size_t b = 0; b < exposures_.size(); ++b)
      for (const double input : inputs_)
        exposures_[b] += std::clamp((end_ - input) / width - static_cast<double>(b), 0.0, 1.0);
  }

  void density(const Delay& delay, std::vector<double>& sums) override {
    const double per_width = static_cast<double>(delay.masses.size()) / delay.size;
    for (std::size_t l = 0; l < sums.size(); ++l) {
      double sum = 0;
      for (std::size_t p = begin_[l]; p < begin_[l + 1]; ++p) sum += delay.masses[bins_[p]];
      sums[l] = sum * per_width;
    }
  }

  void update(Cause& cause, const std::vector<double>&, const std::vector<double>& odds) override {
    Delay& delay = cause.delay;
    // in turns, because a bin that comes again at once would wait for its last addition
    constexpr std::size_t kTurns = 4;
    std::vector<double> turns(kTurns * exposures_.size());
    for (std::size_t p = 0; p < bins_.size(); ++p)
      turns[kTurns * bins_[p] + p % kTurns] += odds[output_of_[p]];
    std::vector<double> outputs(exposures_.size());
    for (std::size_t b = 0; b < turns.size(); ++b) outputs[b / kTurns] += turns[b];
    const double per_width = static_cast<double>(delay.masses.size()) / delay.size;
    double weight = 0;
    for (std::size_t b = 0; b < outputs.size(); ++b) {
      // an exposure below one input would let one output at the edge be all there is
      outputs[b] *= delay.masses[b] * per_width / std::max(exposures_[b], 1.0);
      weight += outputs[b];
    }
    if (weight <= 0) return;
    cause.weight = weight;
    for (std::size_t b = 0; b < outputs.size(); ++b) delay.masses[b] = outputs[b] / weight;
  }

 private:
  std::vector<double> exposures_;                // inputs, by bin
  std::vector<std::uint32_t> bins_, output_of_;  // by pair
  std::vector<std::size_t> begin_;               // by output, of bins_
};

}  // namespace

Pairs::Pairs(const Times& inputs, const Times& outputs, double support) : begin{0} {
  constexpr std::size_t kMost = std::size_t{1} << 27;
  std::size_t first = 0;
  for (const double output : outputs) {
    while (first < inputs.size() && inputs[first] <= output - support) ++first;
    for (std::size_t k = first; k < inputs.size() && inputs[k] < output; ++k)
      delays.push_back(output - inputs[k]);
    if (delays.size() > kMost)
      throw Error(Code::resource_exhausted,
                  fmt::format("a channel has over {} pairs within the support of {} s; use a "
                              "shorter support, or exponential delays",
                              kMost, support));
    begin.push_back(delays.size());
  }
}

std::unique_ptr<ChannelKernel> make_pair_kernel(const Times& inputs, const Arrivals& arrivals,
                                                double support, const Delay& delay) {
  return std::make_unique<PairKernel>(inputs, arrivals, support, delay);
}

std::unique_ptr<ChannelKernel> make_histogram_kernel(const Times& inputs, const Arrivals& arrivals,
                                                     const Delay& delay) {
  return std::make_unique<HistogramKernel>(inputs, arrivals, delay);
}

}  // namespace troupe::dependence
