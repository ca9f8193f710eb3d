// Dynamic loss scaling (Micikevicius et al., ICLR 2018): gradients too small for f16 are made
// larger on their way through it.
//
//   LossScale scale(g, "loss_scale");
//   Expr step = scale.minimize(Adam({.learning_rate = 1e-3}), loss, {w, b});
//   Function f = engine.compile(g, {x}, {step, loss}, {.mixed_precision = DType::f16});
//
// The loss is multiplied by a scale before it is differentiated, and the gradients are divided by
// it. A step whose gradients are not all finite changes no variable and no optimizer's slot, and
// the scale backs off; after `interval` good steps in a row it grows. Scale and count are
// variables, `<name>/scale` and `<name>/good_steps`, which checkpoints save.
#pragma once

#include <string>
#include <vector>

#include <troupe/autodiff/optimizer.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

struct LossScaleOptions {
  double initial = 65536;
  double growth = 2, backoff = 0.5;
  std::int64_t interval = 2000;  // good steps in a row until it grows
  double least = 1, most = 0x1p24;
};

class LossScale {
 public:
  using At = std::source_location;
  /// Throws invalid_argument unless 0 < least <= initial <= most, growth >= 1, 0 < backoff <= 1 and
  /// interval >= 1.
  LossScale(Graph& graph, const std::string& name, const LossScaleOptions& options = {},
            At at = At::current());

  /// One step of `optimizer`, skipped if a gradient overflowed: returns an expression to fetch,
  /// true if the step was taken.
  Expr minimize(const Optimizer& optimizer, const Expr& loss,
                const std::vector<Variable>& variables, At at = At::current()) const;
  const Variable& scale() const { return scale_; }

 private:
  LossScaleOptions options_;
  Variable scale_, good_steps_;
};

}  // namespace troupe
