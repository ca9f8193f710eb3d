#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/rate.hpp>
#include <troupe/autodiff/rows.hpp>

namespace troupe {

void RmsProp::check(const Variable& v) const {
  require_rate(v, options_.learning_rate);
  require_option(v, "decay", options_.decay, 0, 1);
  require_option(v, "epsilon", options_.epsilon, 0);
  require_option(v, "momentum", options_.momentum, 0);
}

Expr RmsProp::decayed(const Expr& old, const Expr& now) const {
  return options_.decay * old + (1 - options_.decay) * now;
}

Expr RmsProp::scaled(const Expr& gradient, const Expr& of_squares, const Expr& mean) const {
  // A constant gradient has variance 0, which rounding can make negative.
  Expr spread = options_.centered ? maximum(of_squares - square(mean), 0.0) : of_squares;
  return gradient / (sqrt(spread) + options_.epsilon);
}

Expr RmsProp::update(const Variable& v, const Expr& gradient) const {
  Variable of_squares = slot(v, "square");
  Expr now = of_squares.assign(decayed(of_squares.read(), square(gradient))), mean;
  if (options_.centered) {
    Variable of_gradients = slot(v, "mean");
    mean = of_gradients.assign(decayed(of_gradients.read(), gradient));
  }
  Expr step = scaled(gradient, now, mean);
  if (options_.momentum > 0) {
    Variable velocity = slot(v, "velocity");
    step = velocity.assign(options_.momentum * velocity.read() + step);
  }
  return descend(v, step * rate_for(v, options_.learning_rate));
}

Expr RmsProp::update_rows(const Variable& v, const Expr& indices, const Expr& rows) const {
  Variable of_squares = slot(v, "square");
  Expr sums = row_sums(indices, rows, v), now = decayed(gather(of_squares, indices), square(sums)),
       mean;
  Exprs updates{of_squares.scatter_update(indices, now)};
  if (options_.centered) {
    Variable of_gradients = slot(v, "mean");
    mean = decayed(gather(of_gradients, indices), sums);
    updates.push_back(of_gradients.scatter_update(indices, mean));
  }
  Expr step = scaled(sums, now, mean);
  if (options_.momentum > 0) {
    Variable velocity = slot(v, "velocity");
    step = options_.momentum * gather(velocity, indices) + step;
    updates.push_back(velocity.scatter_update(indices, step));
  }
  updates.push_back(descend_rows(v, indices, step * rate_for(v, options_.learning_rate)));
  return group(updates);
}

}  // namespace troupe
