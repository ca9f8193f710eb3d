#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <cmath>

#include <fmt/format.h>

namespace troupe {

/// The weight of each row: weights[label], 0 if the label is `ignore`. weights: [classes], or one
/// number for all; labels: i32 or i64 of any shape, which the result has. The mean of a loss is its
/// sum over the sum of these.
TROUPE_DSL(Expr label_weights(Operand weights, Operand labels, std::int64_t ignore = -100))
/// nll_loss times label_weights: rows whose label is `ignore` yield 0 for any values.
/// log_probabilities: [..., classes]; labels: [...].
TROUPE_DSL(Expr weighted_nll_loss(Operand log_probabilities, Operand labels, Operand weights = 1,
                                  std::int64_t ignore = -100))
/// Cross-entropy of each row with classes that count differently, labels that are ignored, and
/// `smoothing` of the label's probability spread over all classes (Szegedy et al., 2016). logits:
/// [..., classes]; labels, result: [...].
TROUPE_DSL(Expr smoothed_cross_entropy(Operand logits, Operand labels, double smoothing = 0,
                                       Operand weights = 1, std::int64_t ignore = -100))
/// Cross-entropy of each row with a distribution over the classes, -sum(targets
/// log_softmax(logits)): of soft labels, a teacher's for instance. Classes whose target is 0 count
/// nothing, whatever their logit. logits, targets: [..., classes]; result: without the last axis.
TROUPE_DSL(Expr soft_cross_entropy(Operand logits, Operand targets))
/// Cross-entropy of each row against its label and `samples`, i64 [samples], alone, which stand for
/// all classes: scores are corrected by the logarithms of how often each is expected, and a sample
/// that is the row's label is left out (Jean et al., 2015). inputs: [rows, width]; weights:
/// [classes, width]; bias: [classes].
TROUPE_DSL(Expr sampled_softmax_with(Operand inputs, Operand weights, Operand bias, Operand labels,
                                     Operand samples))
/// sampled_softmax_with `count` samples drawn from log_uniform, new ones each run.
TROUPE_DSL(Expr sampled_softmax(Operand inputs, Operand weights, Operand bias, Operand labels,
                                std::int64_t count))
/// `count` classes below `classes`, drawn with probabilities log((c + 2) / (c + 1)) / log(classes +
/// 1): for classes in falling order of how often they occur.
TROUPE_DSL(Expr log_uniform(detail::Reader& in, std::int64_t count, std::int64_t classes,
                            std::source_location at = std::source_location::current()))

namespace {

void require_labels(const Composite& c, std::size_t i, const Shape& rows) {
  c.require(
      (c[i].dtype() == DType::i32 || c[i].dtype() == DType::i64) &&
          rows.is_compatible(c[i].shape()),
      fmt::format("labels must be i32 or i64{}{}, not {}{}", rows.has_rank() ? " " : "",
                  rows.has_rank() ? rows.text() : "", name_of(c[i].dtype()), c[i].shape().text()));
}
// Returns the shape with one number for each row of operand 0, [..., classes].
Shape rows_of_classes(const Composite& c) {
  const int rank = c.rank(0);
  c.require(rank >= 1, "a scalar has no classes");
  return c[0].shape().without(rank - 1);
}
void require_classes(const Composite& c, const Expr& weights) {
  c.require(is_floating(weights.dtype()),
            fmt::format("weights must be floating, not {}", name_of(weights.dtype())));
  c.require(!weights.shape().has_rank() || weights.shape().rank() <= 1,
            "weights must be [classes] or a scalar, not " + weights.shape().text());
}

// The ignored ones stand for class 0, and count nothing.
struct Labels {
  Expr counts, of;
};
Labels kept(const Expr& labels, std::int64_t ignore) {
  Expr counts = labels != ignore;
  return {counts, where(counts, labels, zeros_like(labels))};
}

Expr weight_of(const Expr& weights, const Labels& labels) {
  Expr w = weights.shape().rank() == 0 ? weights + zeros_like(cast(labels.of, weights.dtype()))
                                       : gather(weights, labels.of);
  return where(labels.counts, w, zeros_like(w));
}

// Values of rows with weight 0 are not read, nor by gradients: NaN times 0 would be NaN.
Expr rows_that_count(const Expr& x, const Labels& labels) {
  return where(expand_dims(labels.counts, -1), x, zeros_like(x));
}

Expr chance_of(const Expr& classes, std::int64_t of, DType t) {
  Expr c = cast(classes, DType::f64);
  return cast(log(log1p(1.0 / (c + 1.0)) / std::log(static_cast<double>(of) + 1)), t);
}

}  // namespace

Expr label_weights(Operand weights, Operand labels, std::int64_t ignore) {
  Composite c("label_weights", {labels, weights.as_written()});
  require_labels(c, 0, Shape::unknown());
  Expr w = weights.is_expr() ? c[1] : cast(c[1], DType::f32);
  require_classes(c, w);
  return weight_of(w, kept(c[0], ignore));
}

Expr weighted_nll_loss(Operand log_probabilities, Operand labels, Operand weights,
                       std::int64_t ignore) {
  Composite c("weighted_nll_loss", {log_probabilities, labels, weights});
  require_labels(c, 1, rows_of_classes(c));
  require_classes(c, c[2]);
  const Labels at = kept(c[1], ignore);
  Expr loss = nll_loss(rows_that_count(c[0], at), at.of) * weight_of(c[2], at);
  return where(at.counts, loss, zeros_like(loss));
}

Expr smoothed_cross_entropy(Operand logits, Operand labels, double smoothing, Operand weights,
                            std::int64_t ignore) {
  Composite c("smoothed_cross_entropy", {logits, labels, weights});
  const Shape rows = rows_of_classes(c);
  c.require(smoothing >= 0 && smoothing <= 1,
            fmt::format("smoothing must be in [0, 1], not {}", smoothing));
  require_labels(c, 1, rows);
  require_classes(c, c[2]);
  const Labels at = kept(c[1], ignore);
  Expr log_p = log_softmax(rows_that_count(widened_half(c[0]), at)),
       weights_wide = widened_half(c[2]),
       loss = nll_loss(log_p, at.of) * weight_of(weights_wide, at);
  if (smoothing > 0) loss = (1 - smoothing) * loss - smoothing * mean(log_p * weights_wide, {-1});
  return cast(where(at.counts, loss, zeros_like(loss)), c[0].dtype());
}

Expr soft_cross_entropy(Operand logits, Operand targets) {
  Composite c("soft_cross_entropy", {logits, targets});
  c.require(is_floating(c[0].dtype()) && c[1].dtype() == c[0].dtype(),
            fmt::format("needs logits and targets of one floating dtype, not {} and {}",
                        name_of(c[0].dtype()), name_of(c[1].dtype())));
  c.require(c.rank(0) >= 1, "a scalar has no classes");
  Expr t = widened_half(c.shaped_as(1, 0)), log_p = log_softmax(widened_half(c[0]));
  Expr is_out = logical_and(t == 0.0, is_inf(log_p));  // 0 times an infinite one is no number
  return cast(-sum(t * where(is_out, 0.0, log_p), {-1}), c[0].dtype());
}

Expr sampled_softmax_with(Operand inputs, Operand weights, Operand bias, Operand labels,
                          Operand samples) {
  Composite c("sampled_softmax_with", {inputs, weights, bias, labels, samples});
  c.require(is_floating(c[0].dtype()) && c.rank(0) == 2 && c.rank(1) == 2 && c.rank(2) == 1,
            "needs inputs [rows, width], weights [classes, width] and bias [classes]");
  c.require(c.rank(3) == 1, "labels must be [rows], not " + c[3].shape().text());
  require_labels(c, 3, Shape{kAny});
  c.require(c.rank(4) == 1 && (c[4].dtype() == DType::i32 || c[4].dtype() == DType::i64),
            "samples must be i32 or i64 [samples], not " + c[4].shape().text());
  const std::int64_t classes = c.extent(1, 0), n = c.extent(4, 0);
  c.require(n > 0, "needs at least one sample");
  const DType t = widened_half(c[0]).dtype();
  auto expected = [&](const Expr& which) {
    return chance_of(which, classes, t) + std::log(static_cast<double>(n));
  };
  // One column for the label, then one for each sample.
  auto rows = [&](std::size_t of, std::size_t which) {
    return widened_half(gather(c[of], c[which]));
  };
  Expr x = widened_half(c[0]), own = sum(x * rows(1, 3), {-1}) + rows(2, 3) - expected(c[3]);
  Expr others = matmul(x, rows(1, 4), false, true) + rows(2, 4) - expected(c[4]);
  Expr is_label = expand_dims(cast(c[3], DType::i64), 1) == cast(c[4], DType::i64);
  others = where(is_label, fill_like(others, -1e30), others);
  return cast(cross_entropy(concat({expand_dims(own, 1), others}, 1), zeros_like(c[3])),
              c[0].dtype());
}

Expr sampled_softmax(Operand inputs, Operand weights, Operand bias, Operand labels,
                     std::int64_t count) {
  Composite c("sampled_softmax", {inputs, weights, bias, labels});
  c.require(count > 0, fmt::format("needs at least one sample, not {}", count));
  c.require(c.rank(1) == 2, "weights must be [classes, width], not " + c[1].shape().text());
  return sampled_softmax_with(c[0], c[1], c[2], c[3],
                              log_uniform(c.reader(), count, c.extent(1, 0)));
}

Expr log_uniform(Reader& in, std::int64_t count, std::int64_t classes, std::source_location at) {
  const Composite c("log_uniform", in, at);
  c.require(count >= 0 && classes >= 1,
            fmt::format("there are no {} samples of {} classes", count, classes));
  Expr u = in.random_uniform({count}, DType::f64, at);
  return minimum(cast(floor(expm1(u * std::log(static_cast<double>(classes) + 1))), DType::i64),
                 classes - 1);
}

}  // namespace troupe
