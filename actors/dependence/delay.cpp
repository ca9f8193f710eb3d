#include <troupe/actors/dependence/delay.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/dependence/special.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

void delay_normalise(std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (sum > 0)
    for (double& value : values) value /= sum;
}

[[noreturn]] void delay_refuse(const Delay& delay, const std::string& why) {
  throw Error(Code::invalid_argument,
              fmt::format("the delay '{}' is no density: {}", delay.text(), why));
}

bool delay_is_positive(double value) { return value > 0 && std::isfinite(value); }

void delay_check_parts(const Delay& delay) {
  if (delay.parts.empty() || delay.parts.size() != delay.shares.size())
    delay_refuse(delay, fmt::format("it has {} parts and {} shares; give one share a part",
                                    delay.parts.size(), delay.shares.size()));
  for (const Delay& part : delay.parts) {
    if (part.kind == Delay::Kind::mixture || part.kind == Delay::Kind::histogram ||
        part.kind == Delay::Kind::box)
      delay_refuse(delay,
                   "a part is a box, histogram or mixture; use exponential, gamma, "
                   "lognormal or uniform parts");
    check_delay(part);
  }
}

std::size_t delay_pick(const std::vector<double>& masses, std::mt19937_64& random) {
  double left = std::uniform_real_distribution<double>()(random);
  for (std::size_t i = 0; i + 1 < masses.size(); ++i)
    if ((left -= masses[i]) < 0) return i;
  return masses.size() - 1;
}

}  // namespace

Delay Delay::lognormal(double mean, double spread) {
  Delay d{Kind::lognormal};
  d.location = std::log(mean) - spread * spread / 2;
  d.spread = spread;
  return d;
}

Delay Delay::uniform(double from, double to) {
  Delay d{Kind::uniform};
  d.from = from;
  d.size = to;
  return d;
}

Delay Delay::histogram(double size, std::vector<double> masses) {
  Delay d{Kind::histogram};
  d.size = size;
  d.masses = std::move(masses);
  delay_normalise(d.masses);
  return d;
}

Delay Delay::mixture(std::vector<double> shares, std::vector<Delay> parts) {
  Delay d{Kind::mixture};
  d.shares = std::move(shares);
  d.parts = std::move(parts);
  delay_normalise(d.shares);
  return d;
}

std::size_t Delay::bin_of(double d) const {
  const auto bin = static_cast<std::size_t>(d / size * static_cast<double>(masses.size()));
  return std::min(bin, masses.size() - 1);
}

double Delay::density(double d) const {
  if (kind == Kind::box) return d > -size && d < size ? 0.5 / size : 0;
  if (d <= 0) return 0;
  switch (kind) {
    case Kind::exponential: return rate * std::exp(-rate * d);
    case Kind::gamma:
      return std::exp(shape * std::log(rate) - std::lgamma(shape) + (shape - 1) * std::log(d) -
                      rate * d);
    case Kind::lognormal: {
      const double z = (std::log(d) - location) / spread;
      return std::exp(-z * z / 2) / (d * spread * std::sqrt(2 * std::numbers::pi));
    }
    case Kind::uniform: return d >= from && d < size ? 1 / (size - from) : 0;
    case Kind::histogram: {
      const auto bins = static_cast<double>(masses.size());
      return d < size ? masses[bin_of(d)] * bins / size : 0;
    }
    default: break;
  }
  double sum = 0;
  for (std::size_t c = 0; c < parts.size(); ++c) sum += shares[c] * parts[c].density(d);
  return sum;
}

double Delay::cumulative(double d) const {
  if (kind == Kind::box) return std::clamp((d + size) / (2 * size), 0.0, 1.0);
  if (d <= 0) return 0;
  switch (kind) {
    case Kind::exponential: return -std::expm1(-rate * d);
    case Kind::gamma: return gamma_cumulative(shape, rate * d);
    case Kind::lognormal:
      return 0.5 * std::erfc((location - std::log(d)) / (spread * std::numbers::sqrt2));
    case Kind::uniform: return std::clamp((d - from) / (size - from), 0.0, 1.0);
    case Kind::histogram: {
      const double at = d / size * static_cast<double>(masses.size());
      double sum = 0;
      for (std::size_t b = 0; b < masses.size() && static_cast<double>(b) < at; ++b)
        sum += masses[b] * std::min(1.0, at - static_cast<double>(b));
      return sum;
    }
    default: break;
  }
  double sum = 0;
  for (std::size_t c = 0; c < parts.size(); ++c) sum += shares[c] * parts[c].cumulative(d);
  return sum;
}

double Delay::mean() const {
  double sum = 0;
  switch (kind) {
    case Kind::box: return 0;
    case Kind::exponential: return 1 / rate;
    case Kind::gamma: return shape / rate;
    case Kind::lognormal: return std::exp(location + spread * spread / 2);
    case Kind::uniform: return (from + size) / 2;
    case Kind::histogram:
      for (std::size_t b = 0; b < masses.size(); ++b)
        sum += masses[b] * (static_cast<double>(b) + 0.5);
      return sum * size / static_cast<double>(masses.size());
    case Kind::mixture:
      for (std::size_t c = 0; c < parts.size(); ++c) sum += shares[c] * parts[c].mean();
  }
  return sum;
}

double Delay::draw(std::mt19937_64& random) const {
  std::uniform_real_distribution<double> unit;
  switch (kind) {
    case Kind::box: return (2 * unit(random) - 1) * size;
    case Kind::exponential: return std::exponential_distribution<double>(rate)(random);
    case Kind::gamma: return std::gamma_distribution<double>(shape, 1 / rate)(random);
    case Kind::lognormal: return std::lognormal_distribution<double>(location, spread)(random);
    case Kind::uniform: return from + unit(random) * (size - from);
    case Kind::histogram:
      return (static_cast<double>(delay_pick(masses, random)) + unit(random)) * size /
             static_cast<double>(masses.size());
    case Kind::mixture: break;
  }
  return parts[delay_pick(shares, random)].draw(random);
}

Delay Delay::moved_to(double to) const {
  Delay moved = *this;
  const double factor = to / mean();
  if (kind == Kind::exponential || kind == Kind::gamma) moved.rate = rate / factor;
  if (kind == Kind::lognormal) moved.location = location + std::log(factor);
  if (kind == Kind::mixture)
    for (Delay& part : moved.parts) part = part.moved_to(part.mean() * factor);
  return moved;
}

std::string Delay::text() const {
  switch (kind) {
    case Kind::box: return fmt::format("box of {} s around", size);
    case Kind::exponential: return fmt::format("exponential, mean {:.4g} s", mean());
    case Kind::gamma: return fmt::format("gamma of shape {:.3g}, mean {:.4g} s", shape, mean());
    case Kind::lognormal:
      return fmt::format("lognormal of spread {:.3g}, mean {:.4g} s", spread, mean());
    case Kind::uniform: return fmt::format("uniform from {:.4g} s to {:.4g} s", from, size);
    case Kind::histogram:
      return fmt::format("histogram of {} bins up to {:.4g} s, mean {:.4g} s", masses.size(), size,
                         mean());
    case Kind::mixture: break;
  }
  std::string out = "mixture of";
  for (std::size_t c = 0; c < parts.size(); ++c)
    out += fmt::format("{} {:.3g} ({})", c > 0 ? "," : "", c < shares.size() ? shares[c] : 0,
                       parts[c].text());
  return out;
}

void check_delay(const Delay& delay) {
  using Kind = Delay::Kind;
  const Kind kind = delay.kind;
  if ((kind == Kind::exponential || kind == Kind::gamma) && !delay_is_positive(delay.rate))
    delay_refuse(delay, fmt::format("its rate is {}; give a positive mean", delay.rate));
  if (kind == Kind::gamma && !delay_is_positive(delay.shape))
    delay_refuse(delay, fmt::format("its shape is {}; give a positive one", delay.shape));
  if (kind == Kind::lognormal &&
      !(delay_is_positive(delay.spread) && std::isfinite(delay.location)))
    delay_refuse(delay, "its mean or spread is not positive; give positive ones");
  if (kind == Kind::box || kind == Kind::uniform || kind == Kind::histogram) {
    if (!delay_is_positive(delay.size))
      delay_refuse(delay, fmt::format("its size is {} s; give a positive one", delay.size));
    if (kind == Kind::uniform && !(delay.from >= 0 && delay.from < delay.size))
      delay_refuse(delay, "it ends before it begins; give 0 <= from < to");
  }
  if (kind == Kind::mixture) delay_check_parts(delay);
  const auto& weights = kind == Kind::mixture ? delay.shares : delay.masses;
  if (kind != Kind::mixture && kind != Kind::histogram) return;
  double sum = 0;
  for (const double w : weights) {
    if (!(w >= 0)) delay_refuse(delay, fmt::format("a share is {}; give shares from 0 up", w));
    sum += w;
  }
  if (!(std::abs(sum - 1) < 1e-6))
    delay_refuse(delay, fmt::format("its shares sum to {}; give shares that sum to 1", sum));
}

Delay delay_of(const std::string& family, double mean, double support) {
  if (family == "exponential") return Delay::exponential(mean);
  if (family == "gamma") return Delay::gamma(1.5, mean);
  if (family == "lognormal") return Delay::lognormal(mean, 1);
  if (family == "uniform") return Delay::uniform(0, support);
  if (family == "histogram") return Delay::histogram(support, std::vector<double>(20, 0.05));
  if (family == "mixture")
    return Delay::mixture({0.5, 0.5},
                          {Delay::lognormal(mean / 2, 0.7), Delay::lognormal(1.5 * mean, 0.7)});
  throw Error(Code::not_found,
              fmt::format("there is no delay family '{}'; name one of exponential, gamma, "
                          "lognormal, uniform, histogram, mixture",
                          family));
}

}  // namespace troupe::dependence
