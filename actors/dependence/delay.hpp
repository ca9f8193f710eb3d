// Delay densities: how long after an input its outputs come.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::dependence {

/// A density over delays d > 0; of kind `box` over -size < d < size, which is no cause: it stands
/// for load that two channels share.
struct Delay {
  enum class Kind : std::uint8_t { exponential, gamma, box };
  Kind kind = Kind::exponential;
  double rate = 1;   ///< 1/s, of exponential and gamma
  double shape = 1;  ///< for gamma
  double size = 1;   ///< s, of box

  static Delay exponential(double mean) { return {Kind::exponential, 1 / mean}; }
  static Delay gamma(double shape, double mean) { return {Kind::gamma, shape / mean, shape}; }
  static Delay box(double size) { return {Kind::box, 0, 1, size}; }

  double density(double d) const;
  /// Returns the mass of delays below d.
  double cumulative(double d) const;
  double mean() const;
  /// Returns `exponential, mean 0.05 s`.
  std::string text() const;
};

}  // namespace troupe::dependence
