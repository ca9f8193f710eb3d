#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/rate.hpp>
#include <troupe/autodiff/rows.hpp>

namespace troupe {

void Adagrad::check(const Variable& v) const {
  require_rate(v, options_.learning_rate);
  require_option(v, "initial_accumulator", options_.initial_accumulator, 0);
  require_option(v, "epsilon", options_.epsilon, 0);
}

Expr Adagrad::change(const Variable& v, const Expr& gradient, const Expr& accumulator) const {
  return gradient * rate_for(v, options_.learning_rate) / (sqrt(accumulator) + options_.epsilon);
}

Expr Adagrad::update(const Variable& v, const Expr& gradient) const {
  Variable accumulator = slot(v, "accumulator", options_.initial_accumulator);
  return descend(v, change(v, gradient, accumulator.assign_add(square(gradient))));
}

Expr Adagrad::update_rows(const Variable& v, const Expr& indices, const Expr& rows) const {
  Variable accumulator = slot(v, "accumulator", options_.initial_accumulator);
  Expr sums = row_sums(indices, rows, v);
  Expr now = gather(accumulator, indices) + square(sums);
  return group(
      {accumulator.scatter_update(indices, now), descend_rows(v, indices, change(v, sums, now))});
}

}  // namespace troupe
