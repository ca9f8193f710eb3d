#include <troupe/autodiff/optimizer.hpp>

#include <troupe/autodiff/rate.hpp>
#include <troupe/functions.hpp>

namespace troupe {

void Sgd::check(const Variable& v) const { require_rate(v, options_.learning_rate); }

Expr Sgd::update(const Variable& v, const Expr& gradient) const {
  return descend(v, gradient * rate_for(v, options_.learning_rate));
}

Expr Sgd::update_rows(const Variable& v, const Expr& indices, const Expr& rows) const {
  return v.scatter_sub(indices, cast(rows * rate_for(v, options_.learning_rate), v.dtype()));
}

}  // namespace troupe
