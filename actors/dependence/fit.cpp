#include <troupe/actors/dependence/fit.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include <troupe/actors/dependence/channel_kernel.hpp>
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
      lost += cause.weight * kernels_[j]->mass(cause.delay);
    }
    double sum = 0;
    for (const double at : intensity_) sum += std::log(std::max(at, 1e-300));
    return sum - lost;
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
      double outputs = 0;
      for (std::size_t l = 0; l < odds_.size(); ++l) {
        scaled_[l] = cause.weight * odds_[l];
        outputs += scaled_[l] * sums_[j][l];
      }
      const double mass = kernels_[j]->mass(cause.delay);
      cause.weight = mass > 0 ? outputs / mass : 0;
      if (!cause.is_delay_fixed) kernels_[j]->update(cause.delay, sums_[j], scaled_, cause.weight);
    }
  }

  /// After `expect`.
  Score score(std::size_t j) {
    kernels_[j]->density(model_.channels[j].delay, sums_[j]);
    double ratio = 0, squares = 0;
    for (std::size_t l = 0; l < intensity_.size(); ++l) {
      const double x = sums_[j][l] / std::max(intensity_[l], 1e-300);
      ratio += x;
      squares += x * x;
    }
    return {ratio - kernels_[j]->mass(model_.channels[j].delay), std::sqrt(squares)};
  }

  const CausalModel& model() const { return model_; }

 private:
  const Arrivals& arrivals_;
  CausalModel model_;
  std::vector<std::unique_ptr<ChannelKernel>> kernels_;
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

double log_likelihood(const Arrivals& arrivals, const CausalModel& model, double support) {
  check_arrivals(arrivals);
  return EmState(arrivals, model, support).expect();
}

Score score_of(const Arrivals& arrivals, const CausalModel& model, std::size_t channel,
               double support) {
  EmState state(arrivals, model, support);
  state.expect();
  return state.score(channel);
}

Fit fit_by_em(const Arrivals& arrivals, CausalModel start, const FitOptions& options) {
  check_arrivals(arrivals);
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
        cause.delay.rate = cause.delay.shape * part / options.support;
    Fit fit = fit_by_em(arrivals, std::move(start), options);
    if (best.course.empty() || fit.log_likelihood > best.log_likelihood) best = std::move(fit);
  }
  return best;
}

}  // namespace troupe::dependence
