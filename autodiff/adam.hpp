// The moments and the step of Adam and AdamW.
#pragma once

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/autodiff/rate.hpp>

namespace troupe {

inline void require_adam(const Variable& v, const AdamOptions& o) {
  require_rate(v, o.learning_rate);
  require_option(v, "beta1", o.beta1, 0, 1);
  require_option(v, "beta2", o.beta2, 0, 1);
  require_option(v, "epsilon", o.epsilon, 0);
}

inline Expr first_moment(const AdamOptions& o, const Expr& old, const Expr& gradient) {
  return o.beta1 * old + (1 - o.beta1) * gradient;
}

inline Expr second_moment(const AdamOptions& o, const Expr& old, const Expr& gradient) {
  return o.beta2 * old + (1 - o.beta2) * square(gradient);
}

/// The step counts up first: its new value is the t of the paper.
inline Expr adam_change(const AdamOptions& o, const Variable& v, const Variable& step,
                        const Expr& m, const Expr& s) {
  Expr t = cast(step.assign_add(1), DType::f64);
  Expr correction1 = cast(1.0 / (1.0 - pow(o.beta1, t)), computed_in(v));
  Expr correction2 = cast(1.0 / (1.0 - pow(o.beta2, t)), computed_in(v));
  return m * (correction1 * rate_for(v, o.learning_rate)) / (sqrt(s * correction2) + o.epsilon);
}

}  // namespace troupe
