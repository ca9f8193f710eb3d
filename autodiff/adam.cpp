#include <troupe/autodiff/adam.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/rate.hpp>
#include <troupe/autodiff/rows.hpp>

namespace troupe {

void Adam::check(const Variable& v) const { require_adam(v, options_); }

Expr Adam::update(const Variable& v, const Expr& gradient) const {
  Variable m = slot(v, "m"), s = slot(v, "v");
  Expr new_m = m.assign(first_moment(options_, m.read(), gradient));
  Expr new_s = s.assign(second_moment(options_, s.read(), gradient));
  return descend(v,
                 adam_change(options_, v, slot(v, "step", DType::i64, Shape{}, 0), new_m, new_s));
}

Expr Adam::update_rows(const Variable& v, const Expr& indices, const Expr& rows) const {
  Variable m = slot(v, "m"), s = slot(v, "v");
  Expr sums = row_sums(indices, rows, v);
  Expr new_m = first_moment(options_, gather(m, indices), sums);
  Expr new_s = second_moment(options_, gather(s, indices), sums);
  return group({m.scatter_update(indices, new_m), s.scatter_update(indices, new_s),
                descend_rows(v, indices,
                             adam_change(options_, v, slot(v, "step", DType::i64, Shape{}, 0),
                                         new_m, new_s))});
}

}  // namespace troupe
