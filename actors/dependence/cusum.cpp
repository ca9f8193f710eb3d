// The on-line half of change.hpp.
#include <troupe/actors/dependence/change.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

double cusum_reach(const CausalModel& model, double support) {
  constexpr double kMeans = 20;  // exp(-20) counts as nothing
  double reach = support;
  for (const Cause& cause : model.channels)
    if (cause.delay.kind == Delay::Kind::exponential)
      reach = std::max(reach, kMeans / cause.delay.rate);
  return reach;
}

}  // namespace

std::vector<CausalModel> alternatives_of(const CausalModel& model) {
  std::vector<CausalModel> all;
  for (std::size_t j = 0; j < model.channels.size(); ++j) {
    const Cause& cause = model.channels[j];
    if (cause.is_absent || cause.delay.kind == Delay::Kind::box || cause.weight < 0.05) continue;
    for (const double factor : {0.5, 0.05}) {
      all.push_back(model);
      all.back().channels[j].weight *= factor;
    }
    all.push_back(model);
    all.back().channels[j].delay = cause.delay.moved_to(1.5 * cause.delay.mean());
  }
  all.push_back(model);
  all.back().leak = std::max(3 * model.leak, 0.01);
  return all;
}

Cusum::Cusum(CausalModel model, std::vector<CausalModel> alternatives, CusumOptions options)
    : model_(std::move(model)), alternatives_(std::move(alternatives)), options_(options),
      now_(options.begin), sums_(alternatives_.size()) {
  std::size_t inputs = 0;
  for (const Cause& cause : model_.channels) {
    if (cause.delay.kind == Delay::Kind::box)
      throw Error(
          Code::invalid_argument,
          fmt::format("input {} has an acausal box, which needs the future; leave boxes out "
                      "of on-line models",
                      cause.input));
    inputs = std::max(inputs, cause.input + 1);
  }
  recent_.resize(inputs);
  reach_ = cusum_reach(model_, options_.support);
  for (const CausalModel& other : alternatives_)
    reach_ = std::max(reach_, cusum_reach(other, options_.support));
}

double Cusum::intensity(const CausalModel& model) const {
  double sum = model.leak;
  for (const Cause& cause : model.channels) {
    if (cause.weight == 0) continue;
    double densities = 0;
    for (const double input : recent_[cause.input]) densities += cause.delay.density(now_ - input);
    sum += cause.weight * densities;
  }
  return std::max(sum, 1e-300);
}

double Cusum::integral(const CausalModel& model, double to) const {
  double sum = model.leak * (to - now_);
  for (const Cause& cause : model.channels) {
    if (cause.weight == 0) continue;
    double mass = 0;
    for (const double input : recent_[cause.input])
      mass += cause.delay.cumulative(to - input) - cause.delay.cumulative(now_ - input);
    sum += cause.weight * mass;
  }
  return sum;
}

void Cusum::advance(double time) {
  if (!(time >= now_))
    throw Error(Code::invalid_argument,
                fmt::format("time goes back from {} s to {} s; give events in order", now_, time));
  if (time == now_) return;
  const double expected = integral(model_, time);
  for (std::size_t a = 0; a < sums_.size(); ++a) {
    double& value = sums_[a].value;
    value = std::max(0.0, value + expected - integral(alternatives_[a], time));
    if (value == 0) sums_[a].since = time;
  }
  now_ = time;
  for (auto& times : recent_)
    while (!times.empty() && times.front() < now_ - reach_) times.pop_front();
}

void Cusum::add_input(std::size_t input, double time) {
  advance(time);
  if (input < recent_.size()) recent_[input].push_back(time);
}

void Cusum::add_output(double time) {
  advance(time);
  const double expected = std::log(intensity(model_));
  for (std::size_t a = 0; a < sums_.size(); ++a) {
    double& value = sums_[a].value;
    value = std::max(0.0, value + std::log(intensity(alternatives_[a])) - expected);
    if (value == 0) sums_[a].since = time;
  }
}

double Cusum::largest() const {
  double largest = 0;
  for (const Sum& sum : sums_) largest = std::max(largest, sum.value);
  return largest;
}

double Cusum::earliest() const {
  double earliest = now_;
  for (const Sum& sum : sums_)
    if (sum.value > 0) earliest = std::min(earliest, sum.since);
  return earliest;
}

Cusum::Alarm Cusum::alarm() const {
  Alarm alarm{0, now_, 0, model_, model_};
  for (std::size_t a = 0; a < sums_.size(); ++a)
    if (sums_[a].value > alarm.sum)
      alarm = {sums_[a].since, now_, sums_[a].value, model_, alternatives_[a]};
  return alarm;
}

std::string Cusum::Alarm::text(const std::vector<std::string>& inputs) const {
  return fmt::format("since {:.3f} s {}; sum {:.1f}", since, difference_text(before, after, inputs),
                     sum);
}

void Cusum::reset() {
  for (Sum& sum : sums_) sum = {0, now_};
}

}  // namespace troupe::dependence
