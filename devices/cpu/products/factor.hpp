// Factors of matrices by blocks, f32 and f64: all but the work within a block is products, which
// run at the CPU's level.
//
//   std::vector<std::int64_t> from(n);
//   factor_lu(a, n, from.data());                    // rows from[i] of a are l u
//   solve_triangle<T>({a, n, n, 1, true, true}, x, right);
//   solve_triangle<T>({a, n, n, 1, false}, x, right);
#pragma once

#include <cstdint>

namespace troupe::cpu {

/// A triangle of n rows with element (i, j) at a[i * rs + j * cs], one of rs and cs being 1. The
/// other half is not read, nor the diagonal of a unit triangle, which is of ones.
template <class T>
struct Triangle {
  const T* a;
  std::int64_t n, rs, cs;
  bool lower, unit = false;

  Triangle transposed() const { return {a, n, cs, rs, !lower, unit}; }
};

/// x [n, right] becomes what, multiplied by the triangle, is x.
template <class T>
void solve_triangle(const Triangle<T>& t, T* x, std::int64_t right);

/// The lower half of a symmetric a [n, n] becomes l with a = l l^T; the upper half holds anything
/// then. False if there is no such l.
template <class T>
bool factor_cholesky(T* a, std::int64_t n);

/// a [n, n] becomes l and u, l's diagonal of ones left out, with l u the rows `from` of a: the
/// largest of each column leads, or a NaN. The sign of the permutation.
template <class T>
int factor_lu(T* a, std::int64_t n, std::int64_t* from);

}  // namespace troupe::cpu
