// Scalars of optimizers in the dtype of the variable they change.
#pragma once

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/functions.hpp>

namespace troupe {

/// A number adapts by itself; an expression is cast.
inline Operand rate_for(const Variable& v, const Rate& rate) {
  return rate.is_expr() ? Operand(cast(rate, v.dtype())) : rate;
}

}  // namespace troupe
