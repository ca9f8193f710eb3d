// Exponentials and logarithms of many values, some times as fast as those of the library. They need
// no more than SSE2, so results are equal on all processors.
#pragma once

#include <cstddef>
#include <vector>

namespace troupe::dependence {

/// Values that `exponentials` takes at a time; buffers are padded to a multiple of it.
inline constexpr std::size_t kExpBlock = 64;

/// Sets y[i] to exp(x[i]) for i < kExpBlock, to a relative 1e-14. x is cut to [-700, 700].
void exponentials(const double* x, double* y);

/// Returns the sum of the logarithms; values are 1e-300 at least.
double sum_of_logs(const std::vector<double>& values);

}  // namespace troupe::dependence
