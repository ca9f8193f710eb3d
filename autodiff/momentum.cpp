#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/rate.hpp>
#include <troupe/autodiff/rows.hpp>

namespace troupe {

void Momentum::check(const Variable& v) const {
  require_rate(v, options_.learning_rate);
  require_option(v, "momentum", options_.momentum, 0);
}

Expr Momentum::change(const Variable& v, const Expr& gradient, const Expr& velocity) const {
  Expr along = options_.nesterov ? gradient + options_.momentum * velocity : velocity;
  return along * rate_for(v, options_.learning_rate);
}

Expr Momentum::update(const Variable& v, const Expr& gradient) const {
  Variable velocity = slot(v, "velocity");
  Expr now = velocity.assign(options_.momentum * velocity.read() + gradient);
  return descend(v, change(v, gradient, now));
}

Expr Momentum::update_rows(const Variable& v, const Expr& indices, const Expr& rows) const {
  Variable velocity = slot(v, "velocity");
  Expr sums = row_sums(indices, rows, v);
  Expr now = options_.momentum * gather(velocity, indices) + sums;
  return group(
      {velocity.scatter_update(indices, now), descend_rows(v, indices, change(v, sums, now))});
}

}  // namespace troupe
