#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace troupe {

// One number for each element or row, of which the caller takes the mean, but for mse_loss. cross_entropy and ctc_loss are ops of their own.

/// The mean of squared differences over all elements: a scalar.
TROUPE_DSL(Expr mse_loss(Operand prediction, Operand target))
/// Of each element d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d the difference (Huber, 1964).
TROUPE_DSL(Expr huber_loss(Operand prediction, Operand target, double delta = 1))
/// Of each element d^2 / (2 beta) where |d| < beta, else |d| - beta / 2 (Girshick, 2015): huber_loss over its delta; |d| where beta is 0.
TROUPE_DSL(Expr smooth_l1_loss(Operand prediction, Operand target, double beta = 1))
/// Of each element -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)), of logits x and targets t in [0, 1]; never infinite for finite x.
TROUPE_DSL(Expr binary_cross_entropy(Operand logits, Operand targets))
/// -log_probabilities[label] of each row. log_probabilities: [rows, classes]; labels: i32 or i64 [rows]; result: [rows].
TROUPE_DSL(Expr nll_loss(Operand log_probabilities, Operand labels))

namespace {

struct Pair {
  Expr x, target;
};

// Of one shape, but that a target may be one for all.
Pair alike(const Composite& c) {
  c.require_floating(0);
  return {widened_half(c[0]), widened_half(c.shaped_as(1, 0))};
}

// d, or the nearest number in [-limit, limit]. Losses that are squares near 0 are made with it, not with |d|, whose second derivative at 0 is 0.
Expr kept_near(const Expr& d, double limit) { return minimum(maximum(d, -limit), limit); }

}  // namespace

Expr mse_loss(Operand prediction, Operand target) {
  Composite c("mse_loss", {prediction, target});
  const auto [x, t] = alike(c);
  return cast(mean(squared_difference(x, t)), c[0].dtype());
}

Expr huber_loss(Operand prediction, Operand target, double delta) {
  Composite c("huber_loss", {prediction, target});
  const auto [x, t] = alike(c);
  c.require(delta > 0, fmt::format("delta must be above 0, not {}", delta));
  Expr d = x - t, near = kept_near(d, delta);
  return cast(near * (d - 0.5 * near), c[0].dtype());
}

Expr smooth_l1_loss(Operand prediction, Operand target, double beta) {
  Composite c("smooth_l1_loss", {prediction, target});
  const auto [x, t] = alike(c);
  c.require(beta >= 0 && std::isfinite(beta), fmt::format("beta must be finite and at least 0, not {}", beta));
  Expr d = x - t;
  if (beta < std::numeric_limits<float>::min()) return cast(abs(d), c[0].dtype());  // next to 0, and what f32 has no digits for
  Expr near = kept_near(d, beta);
  return cast(near / beta * (d - 0.5 * near), c[0].dtype());
}

Expr binary_cross_entropy(Operand logits, Operand targets) {
  Composite c("binary_cross_entropy", {logits, targets});
  const auto [x, t] = alike(c);
  return cast(t * softplus(-x) + (1.0 - t) * softplus(x), c[0].dtype());  // softplus(x) - x t keeps no digit where the two are close
}

Expr nll_loss(Operand log_probabilities, Operand labels) {
  Composite c("nll_loss", {log_probabilities, labels});
  c.require(c.rank(0) == 2 && c.rank(1) == 1, fmt::format("needs [rows, classes] and [rows], not {} and {}", c[0].shape().text(), c[1].shape().text()));
  return -squeeze(take_along(c[0], expand_dims(c[1], -1)), -1);
}

}  // namespace troupe
