// Exponentials and logarithms of many values, some times as fast as those of the library. Lanes of
// AVX2 are used where there are any, without fused operations, so results are equal on all
// processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::dependence {

/// Values that `exponentials` takes at a time; buffers are padded to a multiple of it.
inline constexpr std::size_t kExpBlock = 64;

/// Sets y[i] to exp(x[i]) for i < kExpBlock, to a relative 1e-14. x is cut to [-700, 700].
void exponentials(const double* x, double* y);

/// Sets y[i] to exp(constant + a x[i] + b t[i]) for i < n, a multiple of kExpBlock.
void exponentials_of(double constant, double a, const double* x, double b, const double* t,
                     double* y, std::size_t n);

/// Sums over i of w, w x[i] and w t[i], with w = z[i] factors[of[i]].
struct WeightedSums {
  double weights = 0, xs = 0, ts = 0;
};
WeightedSums weighted_sums(const double* z, const std::uint32_t* of, const double* factors,
                           const double* x, const double* t, std::size_t n);

/// Returns the sum of x[i] y[i].
double sum_of_products(const double* x, const double* y, std::size_t n);

/// Returns the sum of the logarithms; values are 1e-300 at least.
double sum_of_logs(const std::vector<double>& values);

}  // namespace troupe::dependence
