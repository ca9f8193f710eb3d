// Draws that are made by rejection, with parameters of their own for each element: on the host. An
// element depends on the key, its index and its parameter alone.
#include <troupe/devices/device/philox.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/op.hpp>

#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>

namespace troupe {

/// Draws from the gamma distribution of scale 1 whose shape parameter stands at each element
/// (Marsaglia and Tsang, 2000), which must be above 0.
TROUPE_DSL(Expr random_gamma(Operand alpha))
/// Draws from the beta distribution of the two parameters, which broadcast and must be above 0.
TROUPE_DSL(Expr random_beta(Operand a, Operand b))
/// Draws from Poisson's distribution with the rate at each element: the number of events, in rate's
/// dtype. A rate must be finite and not negative.
TROUPE_DSL(Expr random_poisson(Operand rate))
/// Whole numbers in [low, high), of x's shape; all equally likely but for 2^-53.
TROUPE_DSL(Expr random_integers_like(Operand x, std::int64_t low, std::int64_t high,
                                     DType dtype = DType::i64))
/// `samples` classes for each row, drawn independently with the probabilities softmax(logits).
/// logits: [rows, classes]; result: i64 [rows, samples].
TROUPE_DSL(Expr multinomial(Operand logits, std::int64_t samples))
/// The positions along axis 0 of x in random order: i64 [rows].
TROUPE_DSL(Expr random_permutation_like(Operand x))
/// The rows of x in random order.
TROUPE_DSL(Expr shuffle(Operand x))

Expr random_gamma(Operand alpha) { return bind1("RandomGamma", {alpha}); }
Expr random_poisson(Operand rate) { return bind1("RandomPoisson", {rate}); }

Expr random_beta(Operand a, Operand b) {
  Composite c("random_beta", {a, b});
  c.require_floating(0);
  // x / (x + y) of draws x and y, by their logarithms: of small parameters both draws are too small
  // for any dtype.
  Expr zero = cast(zeros_like(c[0] + c[1]), DType::f64);
  const auto drawn = [&](const Expr& parameter) {
    return bind1("RandomGamma", {cast(stop_gradient(parameter), DType::f64) + zero},
                 Attrs{{"logarithm", true}});
  };
  Expr x = drawn(c[0]), y = drawn(c[1]);
  return cast(sigmoid(x - y), c[0].dtype());
}

Expr random_integers_like(Operand x, std::int64_t low, std::int64_t high, DType dtype) {
  Composite c("random_integers_like", {x});
  c.require(is_integer(dtype), fmt::format("draws integers, not {}", name_of(dtype)));
  c.require(low < high, fmt::format("[{}, {}) is empty", low, high));
  auto is_held = [&](std::int64_t n) {
    return visit_dtype(dtype, [&]<class T>(type_tag<T>) {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return std::in_range<T>(n);
      else return false;
    });
  };
  c.require(is_held(low) && is_held(high - 1),
            fmt::format("{} does not hold all of [{}, {})", name_of(dtype), low, high));
  c.require(
      static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) <= std::uint64_t{1} << 40,
      "draws from at most 2^40 numbers");
  Expr u = random_uniform_like(cast(zeros_like(c[0]), DType::f64));
  // a literal would go by way of a double
  return cast(
      cast(floor(u * static_cast<double>(high - low)), DType::i64) + c.reader().constant(low),
      dtype);
}

Expr multinomial(Operand logits, std::int64_t samples) {
  Composite c("multinomial", {logits});
  c.require_floating(0);
  c.require(c.rank(0) == 2, "needs [rows, classes], not " + c[0].shape().text());
  c.require(samples >= 0, fmt::format("there cannot be {} samples", samples));
  c.require(c[0].shape()[1] != 0, "there are no classes to draw from: " + c[0].shape().text());
  return categorical(expand_dims(c[0], 1) + c.reader().zeros(c[0].dtype(), {samples, 1}));
}

Expr random_permutation_like(Operand x) {
  Composite c("random_permutation_like", {x});
  c.require(c.rank(0) >= 1, "a scalar has no rows");
  // One draw a row: 2^53 of them meet no ties to speak of.
  std::vector<std::int64_t> others;
  for (int i = 1; i < c.rank(0); ++i) others.push_back(i);
  Expr row = cast(stop_gradient(c[0]), DType::f64);
  if (!others.empty()) row = sum(row, others);
  return argsort(random_uniform_like(row));
}

Expr shuffle(Operand x) {
  Composite c("shuffle", {x});
  return gather(c[0], random_permutation_like(c[0]));
}

namespace {

// ln k!, without the sign that std::lgamma leaves in a variable of the whole process.
double log_factorial(double k) {
  int sign = 0;
  return lgamma_r(k + 1, &sign);
}

/// Uniform and normal draws of one element, each attempt with words of its own.
class Attempts {
 public:
  Attempts(const Generator& generator, std::int64_t element)
      : generator_(generator), element_(static_cast<std::uint64_t>(element)) {}
  /// In (0, 1).
  double uniform() { return (static_cast<double>(word() >> 12) + 0.5) * 0x1p-52; }
  double normal() {
    const double u = uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }

 private:
  std::uint64_t word() {
    if (used_ == 2) words_ = generator_.block(element_, redraw_++), used_ = 0;
    const std::uint64_t w = words_[static_cast<std::size_t>(2 * used_)] |
                            std::uint64_t(words_[static_cast<std::size_t>(2 * used_ + 1)]) << 32;
    ++used_;
    return w;
  }
  const Generator& generator_;
  const std::uint64_t element_;
  std::uint32_t redraw_ = 0;
  int used_ = 2;
  PhiloxWords words_{};
};

double draw_gamma(double alpha, Attempts& a) {
  if (std::isinf(alpha)) return alpha;
  // Below 1: of alpha + 1, times a power of a uniform draw.
  const double boost = alpha < 1 ? std::pow(a.uniform(), 1 / alpha) : 1,
               d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = a.normal(), t = 1 + c * x, v = t * t * t;
    if (t > 0 && std::log(a.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v))
      return boost * d * v;
  }
}

// Returns the logarithm of a draw, which may itself be too small to differ from 0. The bound keeps
// differences of two such numbers finite.
double draw_log_gamma(double alpha, Attempts& a) {
  if (alpha >= 1) return std::log(draw_gamma(alpha, a));
  const double boost = std::max(std::log(a.uniform()) / alpha, -1e307);
  return boost + std::log(draw_gamma(alpha + 1, a));
}

double draw_poisson(double rate, Attempts& a) {
  if (rate < 10) {  // Knuth: how many uniform factors keep a product above exp(-rate)
    const double least = std::exp(-rate);
    double count = 0;
    for (double product = a.uniform(); product > least; product *= a.uniform()) ++count;
    return count;
  }
  // Hoermann's PTRS (1993): transformed rejection with squeeze.
  const double b = 0.931 + 2.53 * std::sqrt(rate), spread = -0.059 + 0.02483 * b,
               inverse = 1.1239 + 1.1328 / (b - 3.4), quick = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = a.uniform() - 0.5, v = a.uniform(), us = 0.5 - std::abs(u),
                 k = std::floor((2 * spread / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= quick) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse) - std::log(spread / (us * us) + b) <=
        k * std::log(rate) - rate - log_factorial(k))
      return k;
  }
}

struct Distribution {
  double (*draw)(double parameter, Attempts&);
  bool (*has)(double parameter);
  const char* parameters;  // the requirement that `has` checks, for errors
};

constexpr Distribution kGamma{draw_gamma,
                              [](double alpha) { return alpha > 0 && std::isfinite(alpha); },
                              "shape parameters must be finite and above 0"};
constexpr Distribution kLogGamma{draw_log_gamma, kGamma.has, kGamma.parameters};
constexpr Distribution kPoisson{draw_poisson,
                                [](double rate) { return rate >= 0 && std::isfinite(rate); },
                                "rates must be finite and at least 0"};

void define_random_of(OpBuilder& op, const Distribution& plain, const Distribution& logarithm) {
  op.inputs(1);
  op.random();
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require(is_floating(c.dtype(0)), std::string(name_of(c.dtype(0))) + " cannot be drawn so");
    c.output(c.dtype(0), c.shape(0));
  });
  op.kernel([&plain, &logarithm](const KernelSetup& s) {
    return with_host_inputs({0}, [of = s.attrs.get_or("logarithm", false) ? logarithm : plain,
                                  origin = s.origin](KernelContext& c) {
      const Tensor& parameter = c.input(0);
      const Generator generator(RandomKey{c.run().seed, origin, c.run().step, c.tag()});
      Tensor drawn = Tensor::empty(parameter.dtype(), parameter.shape());
      visit_dtype(parameter.dtype(), [&]<class T>(type_tag<T>) {
        if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16> ||
                      std::is_floating_point_v<T>) {
          T* to = static_cast<T*>(drawn.raw_mutable());
          for (std::int64_t i = 0; i < drawn.elements(); ++i) {
            const double at = parameter.at(i);
            if (!of.has(at))
              throw Error(Code::invalid_argument,
                          fmt::format("{}, not {} at position {}", of.parameters, at, i));
            Attempts attempts(generator, i);
            const double value = of.draw(at, attempts);
            to[i] = T(value);
          }
        }
      });
      Tensor out = c.allocate(drawn.dtype(), drawn.shape());
      if (drawn.elements()) c.device().copy_from_host(c.stream(), drawn, View(out));
      c.set(0, std::move(out));
    });
  });
}

}  // namespace

TROUPE_OP(RandomGamma) {
  op.doc(
      "Draws from the gamma distribution of scale 1 whose shape parameter stands at each element, "
      "or their logarithms.");
  op.attr<bool>("logarithm", false);
  define_random_of(op, kGamma, kLogGamma);
}

TROUPE_OP(RandomPoisson) {
  op.doc("Draws from Poisson's distribution of the rate that stands at each element.");
  define_random_of(op, kPoisson, kPoisson);
}

}  // namespace troupe
