#include <troupe/actors/dependence/delay.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <troupe/actors/dependence/special.hpp>

namespace troupe::dependence {

double Delay::density(double d) const {
  if (kind == Kind::box) return d > -size && d < size ? 0.5 / size : 0;
  if (d <= 0) return 0;
  if (kind == Kind::exponential) return rate * std::exp(-rate * d);
  return std::exp(shape * std::log(rate) - std::lgamma(shape) + (shape - 1) * std::log(d) -
                  rate * d);
}

double Delay::cumulative(double d) const {
  if (kind == Kind::box) return std::clamp((d + size) / (2 * size), 0.0, 1.0);
  if (d <= 0) return 0;
  return kind == Kind::exponential ? -std::expm1(-rate * d) : gamma_cumulative(shape, rate * d);
}

double Delay::mean() const {
  if (kind == Kind::box) return 0;
  return (kind == Kind::gamma ? shape : 1) / rate;
}

std::string Delay::text() const {
  if (kind == Kind::box) return fmt::format("box of {} s around", size);
  if (kind == Kind::exponential) return fmt::format("exponential, mean {:.4g} s", mean());
  return fmt::format("gamma of shape {:.3g}, mean {:.4g} s", shape, mean());
}

}  // namespace troupe::dependence
