#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/rate.hpp>
#include <troupe/autodiff/rows.hpp>

namespace troupe {

void Adam::check(const Variable& v) const {
  require_rate(v, options_.learning_rate);
  require_option(v, "beta1", options_.beta1, 0, 1);
  require_option(v, "beta2", options_.beta2, 0, 1);
  require_option(v, "epsilon", options_.epsilon, 0);
}

Expr Adam::first_moment(const Expr& old, const Expr& gradient) const {
  return options_.beta1 * old + (1 - options_.beta1) * gradient;
}

Expr Adam::second_moment(const Expr& old, const Expr& gradient) const {
  return options_.beta2 * old + (1 - options_.beta2) * square(gradient);
}

// The step counts up first: its new value is the t of the paper.
Expr Adam::change(const Variable& v, const Expr& m, const Expr& s) const {
  Expr t = cast(slot(v, "step", DType::i64, Shape{}, 0).assign_add(1), DType::f64);
  Expr correction1 = cast(1.0 / (1.0 - pow(options_.beta1, t)), computed_in(v));
  Expr correction2 = cast(1.0 / (1.0 - pow(options_.beta2, t)), computed_in(v));
  return m * (correction1 * rate_for(v, options_.learning_rate)) / (sqrt(s * correction2) + options_.epsilon);
}

Expr Adam::update(const Variable& v, const Expr& gradient) const {
  Variable m = slot(v, "m"), s = slot(v, "v");
  Expr new_m = m.assign(first_moment(m.read(), gradient));
  Expr new_s = s.assign(second_moment(s.read(), gradient));
  return descend(v, change(v, new_m, new_s));
}

Expr Adam::update_rows(const Variable& v, const Expr& indices, const Expr& rows) const {
  Variable m = slot(v, "m"), s = slot(v, "v");
  Expr sums = row_sums(indices, rows, v);
  Expr new_m = first_moment(gather(m, indices), sums);
  Expr new_s = second_moment(gather(s, indices), sums);
  return group({m.scatter_update(indices, new_m), s.scatter_update(indices, new_s),
                descend_rows(v, indices, change(v, new_m, new_s))});
}

}  // namespace troupe
