#include <troupe/autodiff/adam.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/rate.hpp>
#include <troupe/autodiff/rows.hpp>

namespace troupe {

void AdamW::check(const Variable& v) const {
  require_adam(v, adam_);
  require_option(v, "weight_decay", weight_decay_, 0);
}

Expr AdamW::decay(const Variable& v, const Expr& old) const {
  return weight_decay_ * cast(old, computed_in(v)) * rate_for(v, adam_.learning_rate);
}

Expr AdamW::update(const Variable& v, const Expr& gradient) const {
  Variable m = slot(v, "m"), s = slot(v, "v");
  Expr new_m = m.assign(first_moment(adam_, m.read(), gradient));
  Expr new_s = s.assign(second_moment(adam_, s.read(), gradient));
  return descend(v, adam_change(adam_, v, slot(v, "step", DType::i64, Shape{}, 0), new_m, new_s) +
                        decay(v, v.read()));
}

Expr AdamW::update_rows(const Variable& v, const Expr& indices, const Expr& rows) const {
  Variable m = slot(v, "m"), s = slot(v, "v");
  Expr sums = row_sums(indices, rows, v);
  Expr new_m = first_moment(adam_, gather(m, indices), sums);
  Expr new_s = second_moment(adam_, gather(s, indices), sums);
  Expr change = adam_change(adam_, v, slot(v, "step", DType::i64, Shape{}, 0), new_m, new_s) +
                decay(v, gather(v, indices));
  return group({m.scatter_update(indices, new_m), s.scatter_update(indices, new_s),
                descend_rows(v, indices, change)});
}

}  // namespace troupe
