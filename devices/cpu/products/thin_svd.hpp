// Singular values in a translation unit of its own: Eigen's divide and conquer takes as long to
// compile as all other decompositions together.
#pragma once

#include <cstdint>

namespace troupe::cpu {

/// a [m, n] = u [m, k] diag(s [k]) v [n, k]ᵀ with k = min(m, n), s falling; all row by row. a must
/// be finite.
void thin_svd(const double* a, std::int64_t m, std::int64_t n, double* u, double* s, double* v);

}  // namespace troupe::cpu
