// Dense linear algebra on batches of matrices, f32 and f64: arguments of the primitive.
#pragma once

#include <array>

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

enum class Algebra : std::uint8_t {
  cholesky,  // a = l l^T: out[0] is l, lower triangular; a's upper half is not read
  // a [m, n] = q r with k = min(m, n): out[0] is q [m, k], out[1] r [k, n]; r's diagonal is not
  // negative
  qr,
  // a [m, n] = u s v^T: out[0] is u [m, k], out[1] s [k] falling, out[2] v [n, k]
  svd,
  // a is symmetric, only its lower half is read: out[0] [n] rising, out[1] vectors as columns
  eigh,
  solve,             // out[0] = a^-1 b, or a^-T b
  triangular_solve,  // as solve, with a triangle, `lower` or upper; the other half is not read
  // out[0]: sign or 0, out[1]: log |det|, -inf where it is 0; one number a matrix
  determinant,
  cofactors,  // out[0]: the derivative of a's determinant by each element
};

struct AlgebraArgs {
  Algebra what;
  ConstView a, b;  // [batch, m, n]; solve, triangular_solve: b [batch, n, right]
  std::array<View, 3> out;
  std::int64_t batch, m, n, right = 0;
  bool transposed = false, lower = true;
};

}  // namespace troupe::detail
