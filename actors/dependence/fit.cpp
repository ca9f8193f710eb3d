#include <troupe/actors/dependence/fit.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include <troupe/actors/dependence/channel_kernel.hpp>
#include <troupe/actors/dependence/exponentials.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

/// A model, its channels' kernels, and the intensity at each output.
class EmState {
 public:
  EmState(const Arrivals& arrivals, CausalModel model, double support)
      : arrivals_(arrivals), model_(std::move(model)), intensity_(arrivals.outputs.size()) {
    for (const Cause& cause : model_.channels) {
      kernels_.push_back(make_kernel(cause, arrivals, support));
      sums_.emplace_back(arrivals.outputs.size());
      masses_.push_back(-1);
    }
  }

  /// Sets the intensities, and returns the log likelihood.
  double expect() {
    std::fill(intensity_.begin(), intensity_.end(), model_.leak);
    double lost = model_.leak * arrivals_.end;
    for (std::size_t j = 0; j < kernels_.size(); ++j) {
      const Cause& cause = model_.channels[j];
      if (cause.is_absent || cause.weight == 0) continue;
      kernels_[j]->density(cause.delay, sums_[j]);
      for (std::size_t l = 0; l < intensity_.size(); ++l)
        intensity_[l] += cause.weight * sums_[j][l];
      if (masses_[j] < 0 || !cause.is_delay_fixed) masses_[j] = kernels_[j]->mass(cause.delay);
      lost += cause.weight * masses_[j];
    }
    return sum_of_logs(intensity_) - lost;
  }

  void maximise() {
    odds_.resize(intensity_.size());
    const double leak = model_.leak;
    for (std::size_t l = 0; l < intensity_.size(); ++l)
      odds_[l] = 1 / std::max(intensity_[l], 1e-300);
    model_.leak = leak * std::accumulate(odds_.begin(), odds_.end(), 0.0) / arrivals_.end;
    scaled_.resize(odds_.size());
    for (std::size_t j = 0; j < kernels_.size(); ++j) {
      Cause& cause = model_.channels[j];
      if (cause.is_absent || cause.weight == 0) continue;
      for (std::size_t l = 0; l < odds_.size(); ++l) scaled_[l] = cause.weight * odds_[l];
      const double outputs = sum_of_products(scaled_.data(), sums_[j].data(), odds_.size());
      cause.weight = masses_[j] > 0 ? outputs / masses_[j] : 0;
      if (!cause.is_delay_fixed) kernels_[j]->update(cause, sums_[j], scaled_);
    }
  }

  /// After `expect`.
  Score score(std::size_t j) {
    kernels_[j]->density(model_.channels[j].delay, sums_[j]);
    double ratio = 0, squares = 0, with_leak = 0, leaks = 0;
    for (std::size_t l = 0; l < intensity_.size(); ++l) {
      const double odds = 1 / std::max(intensity_[l], 1e-300), x = sums_[j][l] * odds;
      ratio += x;
      squares += x * x;
      with_leak += x * odds;
      leaks += odds * odds;
    }
    // the leak is fitted too, and takes its part of the variance
    const double taken = model_.leak > 0 && leaks > 0 ? with_leak * with_leak / leaks : 0;
    return {ratio - kernels_[j]->mass(model_.channels[j].delay),
            std::sqrt(std::max(squares - taken, 0.0))};
  }

  const CausalModel& model() const { return model_; }

 private:
  const Arrivals& arrivals_;
  CausalModel model_;
  std::vector<std::unique_ptr<ChannelKernel>> kernels_;
  std::vector<double> masses_;             // by channel; negative: not known
  std::vector<std::vector<double>> sums_;  // by channel and output
  std::vector<double> intensity_, odds_, scaled_;
};

void fit_check_times(const Times& times, double end, const std::string& name) {
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (!(times[i] > 0 && times[i] <= end))
      throw Error(Code::invalid_argument,
                  fmt::format("{} has an event at {} s, outside of (0, {}]; give the span of all "
                              "events",
                              name, times[i], end));
    if (i > 0 && times[i] < times[i - 1])
      throw Error(Code::invalid_argument,
                  fmt::format("{} goes back from {} s to {} s; sort its events", name, times[i - 1],
                              times[i]));
  }
}

}  // namespace

void check_arrivals(const Arrivals& arrivals) {
  if (!(arrivals.end > 0) || !std::isfinite(arrivals.end))
    throw Error(Code::invalid_argument,
                fmt::format("a recording of {} s has no length; give its end", arrivals.end));
  fit_check_times(arrivals.outputs, arrivals.end, "the output");
  for (std::size_t j = 0; j < arrivals.inputs.size(); ++j)
    fit_check_times(arrivals.inputs[j], arrivals.end, fmt::format("input {}", j));
}

Arrivals part_of(const Arrivals& all, double from, double to) {
  const auto cut = [&](const Times& times) {
    Times out(std::upper_bound(times.begin(), times.end(), from),
              std::upper_bound(times.begin(), times.end(), to));
    for (double& t : out) t -= from;
    // a rounded difference may be 0, or beyond the end
    for (double& t : out) t = std::clamp(t, std::numeric_limits<double>::min(), to - from);
    return out;
  };
  Arrivals part{{}, cut(all.outputs), to - from};
  for (const Times& input : all.inputs) part.inputs.push_back(cut(input));
  return part;
}

CausalModel model_of(const Arrivals& arrivals, double mean_delay) {
  CausalModel model;
  const auto outputs = static_cast<double>(arrivals.outputs.size());
  const auto inputs = static_cast<double>(std::max<std::size_t>(1, arrivals.inputs.size()));
  model.leak = outputs / arrivals.end / 2;
  for (std::size_t j = 0; j < arrivals.inputs.size(); ++j) {
    const auto n = static_cast<double>(arrivals.inputs[j].size());
    const double weight = n > 0 ? std::min(0.2, outputs / n / 2 / inputs) : 0;
    model.channels.push_back({j, weight, Delay::exponential(mean_delay)});
  }
  return model;
}

void check_model(const Arrivals& arrivals, const CausalModel& model) {
  for (std::size_t j = 0; j < model.channels.size(); ++j) {
    if (model.channels[j].input >= arrivals.inputs.size())
      throw Error(Code::not_found,
                  fmt::format("channel {} is of input {}, and there are {} inputs; name one from 0 "
                              "up",
                              j, model.channels[j].input, arrivals.inputs.size()));
    check_delay(model.channels[j].delay);
  }
}

double log_likelihood(const Arrivals& arrivals, const CausalModel& model, double support) {
  check_arrivals(arrivals);
  check_model(arrivals, model);
  return EmState(arrivals, model, support).expect();
}

Score score_of(const Arrivals& arrivals, const CausalModel& model, std::size_t channel,
               double support) {
  check_model(arrivals, model);
  if (channel >= model.channels.size())
    throw Error(Code::not_found, fmt::format("there is no channel {}; the model has {}", channel,
                                             model.channels.size()));
  EmState state(arrivals, model, support);
  state.expect();
  return state.score(channel);
}

Fit fit_by_em(const Arrivals& arrivals, CausalModel start, const FitOptions& options) {
  check_arrivals(arrivals);
  check_model(arrivals, start);
  for (Cause& cause : start.channels)
    if (cause.is_absent || arrivals.outputs.empty()) cause.weight = 0;
  if (arrivals.outputs.empty()) start.leak = 0;
  EmState state(arrivals, std::move(start), options.support);
  Fit fit;
  fit.log_likelihood = state.expect();
  while (fit.iterations < options.most_iterations && !fit.has_converged) {
    fit.course.push_back(fit.log_likelihood);
    state.maximise();
    const double next = state.expect();
    ++fit.iterations;
    fit.has_converged = next - fit.log_likelihood <= options.tolerance * (1 + std::abs(next));
    fit.log_likelihood = next;
  }
  fit.model = state.model();
  return fit;
}

Fit fit_from_scales(const Arrivals& arrivals, const CausalModel& shape, const FitOptions& options) {
  Fit best;
  for (const double part : {100.0, 16.0, 5.0}) {
    CausalModel start = shape;
    for (Cause& cause : start.channels)
      if (!cause.is_delay_fixed && cause.delay.kind != Delay::Kind::box)
        cause.delay = cause.delay.moved_to(options.support / part);
    Fit fit = fit_by_em(arrivals, std::move(start), options);
    if (best.course.empty() || fit.log_likelihood > best.log_likelihood) best = std::move(fit);
  }
  return best;
}

Fit fit_over_delays(const Arrivals& arrivals, const CausalModel& shape, std::size_t channel,
                    const std::vector<Delay>& delays, const FitOptions& options) {
  Fit best;
  for (const Delay& delay : delays) {
    CausalModel start = best.course.empty() ? shape : best.model;
    for (Cause& cause : start.channels)
      if (!cause.is_absent) cause.weight = std::max(cause.weight, 1e-3);
    start.leak = std::max(start.leak, 1e-3 / arrivals.end);
    start.channels[channel].delay = delay;
    Fit fit = fit_by_em(arrivals, std::move(start), options);
    if (best.course.empty() || fit.log_likelihood > best.log_likelihood) best = std::move(fit);
  }
  return best;
}

std::vector<Delay> uniform_delays(double from, double to, std::size_t steps) {
  std::vector<Delay> all;
  const double step = (to - from) / static_cast<double>(steps);
  for (std::size_t a = 0; a < steps; ++a)
    for (std::size_t b = a + 1; b <= steps; ++b)
      all.push_back(Delay::uniform(from + static_cast<double>(a) * step,
                                   from + static_cast<double>(b) * step));
  return all;
}

}  // namespace troupe::dependence
