// Powers of e whose exponent is a square, for gradients.
#pragma once

#include <troupe/ops/graph/expr.hpp>

namespace troupe {

/// exp(-x^2), x f32 or f64, at the accuracy of the dtype also where x is large: exp(-square(x)) is
/// off by x^2 roundings. 0 at infinities.
Expr bell(const Expr& x);

}  // namespace troupe
