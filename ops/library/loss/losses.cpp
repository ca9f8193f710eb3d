#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace troupe {

// One number for each element or row, of which the caller takes the mean, but for mse_loss.
// cross_entropy and ctc_loss are ops of their own.

/// The mean of squared differences over all elements: a scalar.
TROUPE_DSL(Expr mse_loss(Operand prediction, Operand target))
/// For each element d^2 / 2 if |d| <= delta, else delta (|d| - delta / 2), with d the difference
/// (Huber, 1964).
TROUPE_DSL(Expr huber_loss(Operand prediction, Operand target, double delta = 1))
/// For each element d^2 / (2 beta) if |d| < beta, else |d| - beta / 2 (Girshick, 2015): huber_loss
/// over its delta; |d| if beta is 0.
TROUPE_DSL(Expr smooth_l1_loss(Operand prediction, Operand target, double beta = 1))
/// For each element -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)), with logits x and targets t in
/// [0, 1]; never infinite for finite x. The first term is multiplied by `positive_weight`, above 1
/// if positives are rare: one number, or a tensor that broadcasts to x's shape.
TROUPE_DSL(Expr binary_cross_entropy(Operand logits, Operand targets, Operand positive_weight = 1))
/// max(0, margin - t x) of each element, of scores x and targets t that are 1 or -1 (Cortes and
/// Vapnik, 1995).
TROUPE_DSL(Expr hinge_loss(Operand scores, Operand targets, double margin = 1))
/// t (log t - log_prediction) of each element, 0 where t is: its summand of the Kullback-Leibler
/// divergence of a prediction from the targets t. `log_target`: the targets are logarithms too.
TROUPE_DSL(Expr kl_divergence(Operand log_prediction, Operand target, bool log_target = false))
/// The cosine of the angle between x and y along `axis`, which goes: lengths below `epsilon` count
/// as epsilon, so that the result is 0 for a vector of length 0.
TROUPE_DSL(Expr cosine_similarity(Operand x, Operand y, std::int64_t axis = -1,
                                  double epsilon = 1e-8))
/// -log_probabilities[label] of each row. log_probabilities: [..., classes]; labels: i32 or i64
/// [...]; result: [...].
TROUPE_DSL(Expr nll_loss(Operand log_probabilities, Operand labels))

namespace {

struct Pair {
  Expr x, target;
};

// Returns both operands in one shape; the target may be one number for all.
Pair alike(const Composite& c) {
  c.require_floating(0);
  return {widened_half(c[0]), widened_half(c.shaped_as(1, 0))};
}

// d, or the nearest number in [-limit, limit]. Losses that are squares near 0 are made with it, not
// with |d|, whose second derivative at 0 is 0.
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
  c.require(beta >= 0 && std::isfinite(beta),
            fmt::format("beta must be finite and at least 0, not {}", beta));
  Expr d = x - t;
  // beta is 0, or too small for f32
  if (beta < std::numeric_limits<float>::min()) return cast(abs(d), c[0].dtype());
  Expr near = kept_near(d, beta);
  return cast(near / beta * (d - 0.5 * near), c[0].dtype());
}

Expr binary_cross_entropy(Operand logits, Operand targets, Operand positive_weight) {
  Composite c("binary_cross_entropy", {logits, targets, positive_weight});
  const auto [x, t] = alike(c);
  c.require(c[2].dtype() == c[0].dtype(),
            fmt::format("works on one dtype, not {} and {}; cast one of them",
                        name_of(c[0].dtype()), name_of(c[2].dtype())));
  const Expr weight = widened_half(c[2].shape().rank() == 0 ? c[2] : broadcast_like(c[2], c[0]));
  // softplus(x) - x t keeps no digit where the two are close
  return cast(weight * t * softplus(-x) + (1.0 - t) * softplus(x), c[0].dtype());
}

Expr hinge_loss(Operand scores, Operand targets, double margin) {
  Composite c("hinge_loss", {scores, targets});
  const auto [x, t] = alike(c);
  c.require(margin > 0 && std::isfinite(margin),
            fmt::format("the margin must be finite and above 0, not {}", margin));
  return cast(maximum(margin - t * x, 0.0), c[0].dtype());
}

Expr kl_divergence(Operand log_prediction, Operand target, bool log_target) {
  Composite c("kl_divergence", {log_prediction, target});
  const auto [log_p, t] = alike(c);
  if (!log_target) {
    const Expr is_out = t == 0.0;  // 0 times infinity is NaN
    return cast(x_log_y(t, t) - t * where(is_out, 0.0, log_p), c[0].dtype());
  }
  const Expr is_out = t == -std::numeric_limits<double>::infinity();
  return cast(where(is_out, 0.0, exp(t) * (where(is_out, 0.0, t) - where(is_out, 0.0, log_p))),
              c[0].dtype());
}

Expr cosine_similarity(Operand x, Operand y, std::int64_t axis, double epsilon) {
  Composite c("cosine_similarity", {x, y});
  c.require_floating(0);
  c.require(c[1].dtype() == c[0].dtype(),
            fmt::format("works on one dtype, not {} and {}; cast one of them",
                        name_of(c[0].dtype()), name_of(c[1].dtype())));
  c.require(std::isfinite(epsilon) && epsilon >= std::numeric_limits<float>::min(),
            fmt::format("epsilon must be finite and above 0, as f32 holds it, not {}", epsilon));
  c.require(c.rank(0) == c.rank(1),
            fmt::format("{} and {} differ in rank", c[0].shape().text(), c[1].shape().text()));
  const int at = c.axis(0, axis);
  const Expr a = widened_half(c[0]),
             b = widened_half(c.with_extent(c[1], at, c[0], at, "the axis"));
  // Each of length 1 first, so that no product is infinite or lost.
  const auto unit = [&](const Expr& e) { return e / maximum(norm(e, {axis}, 2, true), epsilon); };
  return cast(sum(unit(a) * unit(b), {axis}), c[0].dtype());
}

Expr nll_loss(Operand log_probabilities, Operand labels) {
  Composite c("nll_loss", {log_probabilities, labels});
  c.require(c.rank(0) >= 1 && c.rank(1) == c.rank(0) - 1,
            fmt::format("needs [..., classes] and [...], not {} and {}", c[0].shape().text(),
                        c[1].shape().text()));
  return -squeeze(take_along(c[0], expand_dims(c[1], -1)), -1);
}

}  // namespace troupe
