#include <troupe/actors/dependence/simulate.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <troupe/actors/dependence/channel_kernel.hpp>
#include <troupe/actors/dependence/special.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {

Times simulate_outputs(const Arrivals& arrivals, const CausalModel& model,
                       std::mt19937_64& random) {
  Times outputs;
  if (model.leak > 0) {
    std::exponential_distribution<double> gap(model.leak);
    for (double t = gap(random); t <= arrivals.end; t += gap(random)) outputs.push_back(t);
  }
  for (const Cause& cause : model.channels) {
    if (cause.is_absent || !(cause.weight > 0)) continue;
    std::poisson_distribution<int> count(cause.weight);
    for (const double input : arrivals.inputs[cause.input])
      for (int n = count(random); n > 0; --n)
        if (const double at = input + cause.delay.draw(random); at > 0 && at <= arrivals.end)
          outputs.push_back(at);
  }
  std::sort(outputs.begin(), outputs.end());
  return outputs;
}

std::vector<double> expected_outputs(const Arrivals& arrivals, const CausalModel& model,
                                     double support, const Times& times) {
  std::vector<double> all;
  all.reserve(times.size());
  for (const double t : times) all.push_back(model.leak * t);
  for (const Cause& cause : model.channels) {
    if (cause.is_absent || cause.weight == 0) continue;
    const Times& inputs = arrivals.inputs[cause.input];
    const Delay& delay = cause.delay;
    const bool is_box = delay.kind == Delay::Kind::box;
    const double before = is_box ? delay.size : 0,
                 reach = is_box ? delay.size : reach_of(delay, support),
                 whole = delay.kind == Delay::Kind::exponential ? 1 : delay.cumulative(reach);
    std::size_t done = 0, first = 0;  // inputs whose mass is whole, and whose mass begins
    double settled = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      for (; done < inputs.size() && inputs[done] <= times[i] - reach; ++done)
        settled += whole - (is_box ? delay.cumulative(-inputs[done]) : 0);
      double open = 0;
      for (first = done; first < inputs.size() && inputs[first] < times[i] + before; ++first)
        open += delay.cumulative(times[i] - inputs[first]) -
                (is_box ? delay.cumulative(-inputs[first]) : 0);
      all[i] += cause.weight * (settled + open);
    }
  }
  return all;
}

Goodness goodness_of_fit(const Arrivals& arrivals, const CausalModel& model, double support) {
  check_arrivals(arrivals);
  Goodness result;
  std::vector<double> steps = expected_outputs(arrivals, model, support, arrivals.outputs);
  if (steps.empty()) return result;
  for (auto l = steps.size(); l-- > 1;) steps[l] -= steps[l - 1];
  std::sort(steps.begin(), steps.end());
  const auto n = static_cast<double>(steps.size());
  for (std::size_t l = 0; l < steps.size(); ++l) {
    const double at = -std::expm1(-steps[l]);
    result.distance = std::max(
        {result.distance, static_cast<double>(l + 1) / n - at, at - static_cast<double>(l) / n});
  }
  result.p = kolmogorov_tail((std::sqrt(n) + 0.12 + 0.11 / std::sqrt(n)) * result.distance);
  return result;
}

std::vector<double> bin_probabilities(const Arrivals& arrivals, const CausalModel& model,
                                      double support, double width) {
  check_arrivals(arrivals);
  if (!(width > 0))
    throw Error(Code::invalid_argument,
                fmt::format("bins of {} s have no width; give a positive one", width));
  const auto bins = static_cast<std::size_t>(std::ceil(arrivals.end / width));
  const auto bound = [&](std::size_t b) {
    return std::min(static_cast<double>(b) * width, arrivals.end);
  };
  std::vector<double> none(bins);  // probabilities of no output
  for (std::size_t b = 0; b < bins; ++b)
    none[b] = std::exp(-model.leak * (bound(b + 1) - bound(b)));
  for (const Cause& cause : model.channels) {
    if (cause.is_absent || cause.weight == 0) continue;
    const Delay& delay = cause.delay;
    const bool is_box = delay.kind == Delay::Kind::box;
    const double reach = is_box ? delay.size : reach_of(delay, support);
    for (const double input : arrivals.inputs[cause.input]) {
      const double begin = std::max(0.0, is_box ? input - delay.size : input);
      for (auto b = static_cast<std::size_t>(begin / width); b < bins && bound(b) < input + reach;
           ++b) {
        const double from = std::max(begin, bound(b)) - input,
                     to = std::min(bound(b + 1) - input, reach);
        const double q =
            -std::expm1(-cause.weight * (delay.cumulative(to) - delay.cumulative(from)));
        none[b] *= 1 - q;
      }
    }
  }
  for (double& p : none) p = 1 - p;
  return none;
}

}  // namespace troupe::dependence
