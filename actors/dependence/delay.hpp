// Delay densities: how long after an input its outputs come.
//
//   Delay::gamma(4, 0.2).text();                            // gamma of shape 4, mean 0.2 s
//   Delay::mixture({0.7, 0.3}, {Delay::exponential(0.01), Delay::lognormal(0.5, 0.3)});
//   delay_of("lognormal", 0.05, 1);                         // one to start a fit from
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace troupe::dependence {

/// A density over delays d > 0; of kind `box` over -size < d < size, which is no cause: it stands
/// for load that two channels share. Fits cut gamma, lognormal and mixtures at the support.
struct Delay {
  enum class Kind : std::uint8_t {
    exponential,
    gamma,
    box,
    lognormal,
    uniform,
    histogram,
    mixture
  };
  Kind kind = Kind::exponential;
  double rate = 1;                  ///< 1/s, of exponential and gamma
  double shape = 1;                 ///< for gamma
  double size = 1;                  ///< s: half of a box; end of uniform and of the last bin
  double from = 0;                  ///< s: begin of uniform
  double location = 0;              ///< mean of the delay's logarithm, of lognormal
  double spread = 1;                ///< its standard deviation
  std::vector<double> masses = {};  ///< for histogram: equal bins of [0, size)
  std::vector<double> shares = {};  ///< for mixture
  std::vector<Delay> parts = {};    ///< for mixture: exponential, gamma, lognormal or uniform

  static Delay exponential(double mean) { return {Kind::exponential, 1 / mean}; }
  static Delay gamma(double shape, double mean) { return {Kind::gamma, shape / mean, shape}; }
  static Delay box(double size) { return {Kind::box, 0, 1, size}; }
  /// `spread` is the standard deviation of the logarithm.
  static Delay lognormal(double mean, double spread);
  static Delay uniform(double from, double to);
  /// Bins of equal width up to `size`; the masses need not sum to 1.
  static Delay histogram(double size, std::vector<double> masses);
  /// The shares need not sum to 1.
  static Delay mixture(std::vector<double> shares, std::vector<Delay> parts);

  double density(double d) const;
  /// Returns the mass of delays below d.
  double cumulative(double d) const;
  double mean() const;
  /// Returns the bin of a delay in [0, size), of histogram.
  std::size_t bin_of(double d) const;
  double draw(std::mt19937_64& random) const;
  /// Returns the density stretched to that mean; box, uniform and histogram stay.
  Delay moved_to(double mean) const;
  /// Returns `exponential, mean 0.05 s`.
  std::string text() const;
};

/// Throws Error (invalid_argument) for parameters that give no density.
void check_delay(const Delay& delay);

/// Returns a delay of a family to start a fit from: exponential, gamma, lognormal, uniform,
/// histogram (20 bins), mixture (of a short and a long lognormal). Throws Error (not_found).
Delay delay_of(const std::string& family, double mean, double support);

}  // namespace troupe::dependence
