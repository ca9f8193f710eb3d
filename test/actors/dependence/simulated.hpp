// Point processes with known causes.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include <troupe/actors/dependence/fit.hpp>

namespace troupe::test {

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed, double end) : random_(seed), end_(end) {}

  dependence::Times poisson(double rate) {
    dependence::Times times;
    std::exponential_distribution<double> gap(rate);
    for (double t = gap(random_); t <= end_; t += gap(random_)) times.push_back(t);
    return times;
  }
  /// Keeps each time with the probability `share(t)`.
  template <class F>
  dependence::Times thinned(const dependence::Times& times, F share) {
    dependence::Times out;
    std::uniform_real_distribution<double> u;
    for (const double t : times)
      if (u(random_) < share(t)) out.push_back(t);
    return out;
  }
  /// Outputs of inputs, `weight` an input on average, after delays that `draw` gives.
  template <class Draw>
  dependence::Times caused(const dependence::Times& inputs, double weight, Draw draw) {
    dependence::Times out;
    std::poisson_distribution<int> count(weight);
    for (const double t : inputs)
      for (int n = count(random_); n > 0; --n)
        if (const double at = t + draw(random_); at <= end_) out.push_back(at);
    return sorted(out);
  }
  static dependence::Times sorted(dependence::Times times) {
    std::sort(times.begin(), times.end());
    return times;
  }
  static dependence::Times merged(const std::vector<dependence::Times>& all) {
    dependence::Times out;
    for (const auto& times : all) out.insert(out.end(), times.begin(), times.end());
    return sorted(out);
  }

 private:
  std::mt19937_64 random_;
  const double end_;
};

inline auto exponential_delay(double mean) {
  return [d = std::exponential_distribution<double>(1 / mean)](auto& random) mutable {
    return d(random);
  };
}
inline auto gamma_delay(double shape, double mean) {
  return [d = std::gamma_distribution<double>(shape, mean / shape)](auto& random) mutable {
    return d(random);
  };
}

}  // namespace troupe::test
