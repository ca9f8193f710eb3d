#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>

#include <fmt/format.h>

namespace troupe {

// One number for each element or row, of which the caller takes the mean, but for mse_loss. cross_entropy and ctc_loss are ops of their own.

/// The mean of squared differences over all elements: a scalar.
TROUPE_DSL(Expr mse_loss(Operand prediction, Operand target))
/// Of each element d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d the difference (Huber, 1964).
TROUPE_DSL(Expr huber_loss(Operand prediction, Operand target, double delta = 1))
/// Of each element -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)), of logits x and targets t in [0, 1]; never infinite for finite x.
TROUPE_DSL(Expr binary_cross_entropy(Operand logits, Operand targets))
/// -log_probabilities[label] of each row. log_probabilities: [rows, classes]; labels: i32 or i64 [rows]; result: [rows].
TROUPE_DSL(Expr nll_loss(Operand log_probabilities, Operand labels))

namespace {

void require_alike(const Composite& c) {
  c.require(is_floating(c[0].dtype()), "needs a floating dtype");
  c.require(c[1].shape().rank() == 0 || c[0].shape().is_compatible(c[1].shape()),
            fmt::format("{} and {} differ in shape", c[0].shape().text(), c[1].shape().text()));
}

}  // namespace

Expr mse_loss(Operand prediction, Operand target) {
  Composite c("mse_loss", {prediction, target});
  require_alike(c);
  return mean(squared_difference(c[0], c[1]));
}

Expr huber_loss(Operand prediction, Operand target, double delta) {
  Composite c("huber_loss", {prediction, target});
  require_alike(c);
  c.require(delta > 0, fmt::format("delta must be above 0, not {}", delta));
  Expr d = abs(c[0] - c[1]), near = minimum(d, delta);
  return near * (d - 0.5 * near);
}

Expr binary_cross_entropy(Operand logits, Operand targets) {
  Composite c("binary_cross_entropy", {logits, targets});
  require_alike(c);
  return softplus(c[0]) - c[0] * c[1];
}

Expr nll_loss(Operand log_probabilities, Operand labels) {
  Composite c("nll_loss", {log_probabilities, labels});
  c.require(c.rank(0) == 2 && c.rank(1) == 1, fmt::format("needs [rows, classes] and [rows], not {} and {}", c[0].shape().text(), c[1].shape().text()));
  return -squeeze(take_along(c[0], expand_dims(c[1], -1)), -1);
}

}  // namespace troupe
