#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace troupe {

/// Uniform draws in [0, 1) of x's shape and dtype, new ones each run (as Graph::random_uniform).
TROUPE_DSL(Expr random_uniform_like(Operand x))
/// Normal draws of mean 0 and deviation 1, of x's shape and dtype.
TROUPE_DSL(Expr random_normal_like(Operand x))
/// Normal draws of mean 0 and deviation 1 that lie in [low, high], of x's shape and dtype.
TROUPE_DSL(Expr random_truncated_normal_like(Operand x, double low = -2, double high = 2))
/// true with the probability that stands at each element, which is in [0, 1] or refused when it
/// runs.
TROUPE_DSL(Expr bernoulli(Operand probabilities))
/// A class for each row, drawn with the probabilities softmax(logits) (Gumbel's trick). logits:
/// [..., classes]; result: i64 without the last axis. A row without probabilities, whose largest
/// logit is NaN or infinite, is refused when it runs.
TROUPE_DSL(Expr categorical(Operand logits))
/// Draws with density exp(-x), of x's shape and dtype.
TROUPE_DSL(Expr random_exponential_like(Operand x))
/// Training: each element is 0 with probability `rate`, else x / (1 - rate).
TROUPE_DSL(Expr dropout(Operand x, double rate))

Expr random_uniform_like(Operand x) { return bind1("RandomUniformLike", {x}); }
Expr random_normal_like(Operand x) { return bind1("RandomNormalLike", {x}); }

namespace {
// Draws are made in f32 at least: f16 and bf16 have few numbers in [0, 1).
Expr widened(const Expr& x) { return x.dtype() == DType::f64 ? x : cast(x, DType::f32); }

Expr required(const Expr& x, const Expr& holds, const char* what) {
  return bind1("Require", {x, all(holds)}, Attrs{{"what", std::string(what)}});
}
}  // namespace

Expr random_truncated_normal_like(Operand x, double low, double high) {
  Composite c("random_truncated_normal_like", {x});
  c.require_floating(0);
  c.require(low < high, fmt::format("[{}, {}] is no interval", low, high));
  // The distribution's inverse of a uniform draw, from the side on which it has digits left; beyond
  // 9 there is nothing to draw.
  const bool is_above = low > 0;
  const double from = std::max(is_above ? -high : low, -9.0),
               to = std::min(is_above ? -low : high, 9.0);
  const auto below = [](double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; };
  const double first = below(from), room = below(to) - first;
  c.require(to >= -5 && room > 0,
            fmt::format("[{}, {}] lies where next to nothing is drawn; normal draws lie within 5",
                        low, high));
  Expr p = random_uniform_like(cast(zeros_like(c[0]), DType::f64)) * room + first;
  Expr z = minimum(maximum(std::numbers::sqrt2 * erf_inverse(2.0 * p - 1.0), from), to);
  return cast(is_above ? -z : z, c[0].dtype());
}

Expr bernoulli(Operand probabilities) {
  Composite c("bernoulli", {probabilities});
  c.require_floating(0);
  Expr wide = widened(stop_gradient(c[0]));
  wide = required(wide, logical_and(wide >= 0.0, wide <= 1.0), "a probability is outside [0, 1]");
  return random_uniform_like(wide) < wide;
}

Expr random_exponential_like(Operand x) {
  Composite c("random_exponential_like", {x});
  c.require_floating(0);
  return cast(-log1p(-random_uniform_like(widened(c[0]))), c[0].dtype());
}

Expr categorical(Operand logits) {
  Composite c("categorical", {logits});
  c.require_floating(0);
  const Shape s = c[0].shape();
  c.require(!s.has_rank() || s.rank() >= 1, "a scalar has no classes");
  c.require(!s.has_rank() || s[s.rank() - 1] != 0,
            "there are no classes to draw from: " + s.text());
  // -log of an exponential draw is a Gumbel draw; drawn wide, where rows of many classes meet no
  // ties. A draw of 0 counts as half of the smallest above it: otherwise its class would win with
  // any logit.
  Expr wide = widened(stop_gradient(c[0]));
  wide = required(wide, is_finite(reduce_max(wide, {-1})),
                  "a row of logits has no largest that is finite, and so no probabilities");
  const double least = wide.dtype() == DType::f64 ? 0x1p-54 : 0x1p-25;
  return argmax(wide - log(maximum(random_exponential_like(wide), least)), -1);
}

Expr dropout(Operand x, double rate) {
  Composite c("dropout", {x});
  c.require_floating_or_complex(0);
  c.require(rate >= 0 && rate < 1, fmt::format("the rate must be in [0, 1), not {}", rate));
  if (rate == 0) return c[0];
  Expr draws = random_uniform_like(widened(is_complex(c[0].dtype()) ? real(c[0]) : c[0]));
  return where(draws >= rate, c[0] * (1 / (1 - rate)), 0);
}

namespace {

void define_random_like(OpBuilder& op, Random kind, const char* doc) {
  op.doc(doc);
  op.inputs(1);
  op.shape_only({0});
  op.random();
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require(is_floating(c.dtype(0)), std::string(name_of(c.dtype(0))) + " cannot be drawn so");
    c.output(c.dtype(0), c.shape(0));
  });
  op.calls({Primitive::random});
  op.kernel([kind](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([kind, origin = s.origin](KernelContext& c) {
      Tensor out = c.allocate(c.input(0).dtype(), c.input(0).shape());
      c.primitives().random(c.stream(), kind,
                            RandomKey{c.run().seed, origin, c.run().step, c.tag()}, View(out));
      c.set(0, std::move(out));
    });
  });
}

}  // namespace

TROUPE_OP(RandomUniformLike) {
  define_random_like(op, Random::uniform,
                     "Uniform draws in [0, 1) in the input's shape and dtype.");
}
TROUPE_OP(RandomNormalLike) {
  define_random_like(
      op, Random::normal,
      "Normal draws of mean 0 and standard deviation 1 in the input's shape and dtype.");
}

}  // namespace troupe
