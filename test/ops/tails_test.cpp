// Tails, cancellation and large arguments: values and gradients against long double, over the range
// of the dtype.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/support/numbers.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(tails_test)

namespace {

using Long = long double;

// f of x, and the gradient of its sum.
std::vector<Tensor> value_and_slope(const Function& f, const Tensor& x) {
  Graph g;
  const Expr in = g.input("x", x.dtype(), x.shape()), y = f({in});
  return evaluate_eagerly(g, {{in, x}}, {y, gradients(sum(y), Exprs{in})[0]});
}

Tensor vector_of(DType type, const std::vector<double>& v) {
  return from_doubles(type, Shape{static_cast<std::int64_t>(v.size())}, v);
}

double epsilon_of(DType type) {
  return type == DType::f16    ? 0x1p-11
         : type == DType::bf16 ? 0x1p-8
         : type == DType::f32  ? 0x1p-24
                               : 0x1p-53;
}

// The unit of an error: the wanted number, or the smallest number that has all digits.
double size_of_digits(DType type, Long wanted) {
  const double smallest = type == DType::f16 ? 0x1p-14 : type == DType::f64 ? 0x1p-1022 : 0x1p-126;
  return std::max(double(std::abs(wanted)), smallest);
}

struct Curve {
  const char* name;
  std::function<Expr(const Expr&)> f;
  std::function<Long(Long)> value, slope;
  double low, high;  // beyond them the function is 0, a constant or a line
  // allowed roundings, and the size that they refer to near a slope's root
  double roundings = 16, smallest_slope = 0;
};

Long below(Long x) { return std::erfc(-x * 0.707106781186547524400844362104849L) / 2; }
Long density(Long x) { return std::exp(-x * x / 2) * 0.398942280401432677939946059934382L; }
Long logistic(Long x) { return 1 / (1 + std::exp(-x)); }
Long softened(Long x) { return x > 40 ? x : std::log1p(std::exp(x)); }
constexpr Long kScale = 1.0507009873554804934193349852946L,
               kAlpha = 1.6732632423543772848170429916717L;
constexpr Long kRoot = 1.12837916709551257389615890312154517L;  // 2 / sqrt(pi)

void compare(const Curve& c, DType type) {
  std::vector<double> at;
  for (int i = 0; i <= 4000; ++i) {
    const double x = c.low + (c.high - c.low) * i / 4000;
    at.push_back(from_doubles(type, Shape{}, {x}).at(0));
  }
  const std::vector<Tensor> got =
      value_and_slope([&](const Exprs& e) { return c.f(e[0]); }, vector_of(type, at));
  for (const bool is_slope : {false, true}) {
    double worst = 0, where = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const Long wanted = is_slope ? c.slope(at[i]) : c.value(at[i]);
      // a half rounds its place to a pole, or does not reach the slope beside it
      if (!(std::abs(wanted) < (type == DType::f16 ? 65504 : 3e38))) continue;
      const bool is_near_root = is_slope && at[i] > -3 && at[i] < 0;
      const double size =
          std::max(size_of_digits(type, wanted), is_near_root ? c.smallest_slope : 0.0);
      const Tensor& have = got[is_slope ? 1 : 0];
      const double off = double(std::abs(have.at(static_cast<std::int64_t>(i)) - wanted)) / size /
                         epsilon_of(type);
      if (!(off <= worst)) worst = off, where = at[i];
    }
    BOOST_TEST(worst <= c.roundings, c.name << (is_slope ? "'s slope" : "") << " in "
                                            << name_of(type) << " is off by " << worst
                                            << " roundings at " << where);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(curves_have_digits_in_their_tails) {  // F2
  const auto logistic_slope = [](Long x) { return logistic(x) * logistic(-x); };
  const std::vector<Curve> curves{
      {"gelu", [](const Expr& x) { return gelu(x); }, [](Long x) { return x * below(x); },
       [](Long x) { return below(x) + x * density(x); }, -12.9, 12, 16, 0.1},
      {"erfc", [](const Expr& x) { return erfc(x); }, [](Long x) { return std::erfc(x); },
       [](Long x) { return -kRoot * std::exp(-x * x); }, -9.1, 9.1},
      {"erf", [](const Expr& x) { return erf(x); }, [](Long x) { return std::erf(x); },
       [](Long x) { return kRoot * std::exp(-x * x); }, -9.1, 9.1},
      {"silu", [](const Expr& x) { return silu(x); }, [](Long x) { return x * logistic(x); },
       [=](Long x) { return logistic(x) + x * logistic_slope(x); }, -80, 80, 16, 0.1},
      {"mish", [](const Expr& x) { return mish(x); },
       [](Long x) { return x * std::tanh(softened(x)); },
       [](Long x) {
         const Long cosine = std::cosh(softened(x));
         return std::tanh(softened(x)) + x * logistic(x) / (cosine * cosine);
       },
       -80, 80, 24, 0.1},
      {"softplus", [](const Expr& x) { return softplus(x); }, softened, logistic, -80, 80},
      {"log_sigmoid", [](const Expr& x) { return log_sigmoid(x); },
       [](Long x) { return -softened(-x); }, [](Long x) { return logistic(-x); }, -80, 80},
      {"logit", [](const Expr& x) { return logit(x); },
       [](Long x) { return std::log(x / (1 - x)); }, [](Long x) { return 1 / (x * (1 - x)); }, 1e-6,
       0.9999},
      {"elu", [](const Expr& x) { return elu(x); },
       [](Long x) { return x > 0 ? x : std::expm1(x); },
       [](Long x) { return x > 0 ? 1 : std::exp(x); }, -80, 10},
      {"celu", [](const Expr& x) { return celu(x, 0.5); },
       [](Long x) { return x > 0 ? x : 0.5L * std::expm1(x / 0.5L); },
       [](Long x) { return x > 0 ? 1 : std::exp(x / 0.5L); }, -40, 10},
      {"softsign", [](const Expr& x) { return softsign(x); },
       [](Long x) { return x / (1 + std::abs(x)); },
       [](Long x) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); }, -200, 200},
      {"selu", [](const Expr& x) { return selu(x); },
       [](Long x) { return x > 0 ? kScale * x : kScale * kAlpha * std::expm1(x); },
       [](Long x) { return x > 0 ? kScale : kScale * kAlpha * std::exp(x); }, -80, 10},
      {"asinh", [](const Expr& x) { return asinh(x); }, [](Long x) { return std::asinh(x); },
       [](Long x) { return 1 / std::hypot(x, 1.0L); }, -60000, 60000},
      {"atanh", [](const Expr& x) { return atanh(x); }, [](Long x) { return std::atanh(x); },
       [](Long x) { return 1 / ((1 - x) * (1 + x)); }, -0.9999, 0.9999}};
  for (const Curve& c : curves)
    for (DType type : {DType::f16, DType::bf16, DType::f32, DType::f64}) compare(c, type);
}

BOOST_AUTO_TEST_CASE(slopes_of_huge_and_of_saturated_inputs) {
  const auto slope = [](const Function& f, DType type, double x) {
    return value_and_slope(f, vector_of(type, {x}))[1].at(0);
  };
  const Function of_sigmoid = [](const Exprs&e) { return sigmoid(e[0]); },
                 of_tanh = [](const Exprs&e) { return tanh(e[0]); },
                 of_asinh = [](const Exprs&e) { return asinh(e[0]); };
  for (const double sign : {1.0, -1.0}) {
    BOOST_TEST(std::abs(slope(of_asinh, DType::f32, sign * 1e20) / 1e-20 - 1) < 1e-6);
    BOOST_TEST(std::abs(slope(of_asinh, DType::f64, sign * 1e200) / 1e-200 - 1) < 1e-15);
    BOOST_TEST(slope(of_asinh, DType::f32, sign * INFINITY) == 0);
    BOOST_TEST(slope(of_tanh, DType::f32, sign * INFINITY) == 0);
    BOOST_TEST(slope(of_sigmoid, DType::f32, sign * INFINITY) == 0);
  }
  // Higher derivatives at 0, where a formula of |x| has none.
  for (const auto& [f, wanted] :
       {std::pair{of_tanh, -2.0}, {of_asinh, -1.0}, {of_sigmoid, -0.125}}) {
    Graph g;
    const Expr x = g.input("x", DType::f64, {});
    Expr d = f({x});
    for (int order = 0; order < 3; ++order) d = gradients(d, x)[0];
    BOOST_TEST(std::abs(evaluate_eagerly(g, {{x, Tensor::scalar(0.0)}}, {d})[0].at(0) - wanted) <
               1e-15);
  }
}

// Rows with a sure element, and rows without one, against long double.
BOOST_AUTO_TEST_CASE(log_softmax_slopes_of_sure_rows) {
  for (DType type : {DType::f32, DType::f64})
    for (const std::vector<double>& row :
         {std::vector<double>{40, 0}, {0, 40}, {20, 0, 1}, {0.5, 0.25, 0}, {1, 0}, {-30, 5, 5, 0}})
      for (std::size_t which = 0; which < row.size(); ++which) {
        const auto n = static_cast<std::int64_t>(row.size());
        std::vector<double> weights(row.size(), 0);
        weights[which] = 1;
        Graph g;
        const Expr x = g.input("x", type, {n}), y = log_softmax(x),
                   loss = sum(y * g.constant(vector_of(type, weights)));
        const Tensor got =
            evaluate_eagerly(g, {{x, vector_of(type, row)}}, {gradients(loss, x)[0]})[0];
        std::vector<Long> p;
        Long all = 0;
        for (double v : row) all += std::exp(Long(v));
        for (double v : row) p.push_back(std::exp(Long(v)) / all);
        Long rest = 0;  // 1 - p[which], without a difference
        for (std::size_t i = 0; i < p.size(); ++i)
          if (i != which) rest += p[i];
        for (std::size_t i = 0; i < p.size(); ++i) {
          const Long wanted = (i == which ? rest : -p[i]);
          const double have = got.at(static_cast<std::int64_t>(i));
          BOOST_TEST(
              std::abs(double(have - wanted)) <= 60 * epsilon_of(type) * double(std::abs(wanted)),
              "log_softmax in " << name_of(type) << ", element " << i << " by " << which << " of "
                                << row.size() << ": " << have << ", not " << double(wanted));
        }
      }
}

// The inner cube is rounded, by which the tail of the approximation is off as far as by an input
// that is rounded.
BOOST_AUTO_TEST_CASE(gelu_by_tanh_has_a_tail) {
  const Long factor = 2 * 0.797884560802865355879892119868763737L;
  const auto inside = [&](Long x) { return factor * (x + 0.044715L * x * x * x); };
  for (DType type : {DType::f32, DType::f64})
    compare({"gelu_tanh", [](const Expr& x) { return gelu_tanh(x); },
             [&](Long x) { return x * logistic(inside(x)); },
             [&](Long x) {
               const Long u = inside(x);
               return logistic(u) +
                      x * logistic(u) * logistic(-u) * factor * (1 + 0.134145L * x * x);
             },
             -9, 20, 400, 0.01},
            type);
}

BOOST_AUTO_TEST_CASE(gelu_is_a_line_or_nothing_at_infinity) {  // F2
  for (DType type : {DType::f32, DType::f64}) {
    const auto got = value_and_slope([](const Exprs& e) { return gelu(e[0]); },
                                     vector_of(type, {INFINITY, -INFINITY, 1e30, -1e30, 0}));
    const std::vector<double> values{INFINITY, 0, type == DType::f32 ? double(1e30f) : 1e30, 0, 0},
        slopes{1, 0, 1, 0, 0.5};
    for (std::size_t i = 0; i < values.size(); ++i) {
      BOOST_TEST(got[0].at(static_cast<std::int64_t>(i)) == values[i]);
      BOOST_TEST(got[1].at(static_cast<std::int64_t>(i)) == slopes[i]);
    }
  }
  Eager e;
  BOOST_TEST(std::abs(gelu(e.constant(-5.f)).value().at(0) / -1.4332579e-6 - 1) < 1e-6);
  BOOST_TEST(std::abs(gelu(e.constant(-8.f)).value().at(0) / -4.9767701e-15 - 1) < 1e-6);
  BOOST_TEST(std::abs(gelu(e.constant(-10.)).value().at(0) / -7.6198530241605260e-23 - 1) < 1e-14);
}

BOOST_AUTO_TEST_CASE(erf_inverse_undoes_erfc_near_1) {
  Eager e;
  for (double rest = 0.6; rest > 1e-15; rest /= 3) {
    const double x = 1 - rest, y = erf_inverse(e.constant(x)).value().at(0);
    // The condition of the inverse there: dy = sqrt(pi)/2 exp(y^2) dx.
    const Long back = std::erfc(Long(y)),
               off = (back - (1 - Long(x))) / (kRoot * std::exp(-Long(y) * y));
    BOOST_TEST(std::abs(double(off)) <= 8 * 0x1p-53 * y, "erf_inverse of 1 - " << rest);
    BOOST_TEST(erf_inverse(e.constant(-x)).value().at(0) == -y);
  }
}

// Whatever is added to all inputs, the gradient is their softmax.
BOOST_AUTO_TEST_CASE(logsumexp_gradients_of_large_inputs) {  // F1
  const auto slopes = [](DType type, const std::vector<double>& x) {
    const Tensor t =
        value_and_slope([](const Exprs& e) { return logsumexp(e[0]); }, vector_of(type, x))[1];
    std::vector<double> v;
    for (std::int64_t i = 0; i < t.elements(); ++i) v.push_back(t.at(i));
    return v;
  };
  for (double at : {1e4, 1e6, 1e8, -1e8, 3e38, -3e38}) {
    BOOST_TEST((slopes(DType::f32, {at, at}) == std::vector<double>{0.5, 0.5}), at);
    BOOST_TEST((slopes(DType::f32, {at, at, at, at}) == std::vector<double>(4, 0.25)), at);
  }
  for (double at : {1e17, -1e17, 1e300})
    BOOST_TEST((slopes(DType::f64, {at, at}) == std::vector<double>{0.5, 0.5}), at);
  for (DType type : {DType::f16, DType::bf16})
    BOOST_TEST((slopes(type, {300, 300}) == std::vector<double>{0.5, 0.5}));
  const std::vector<double> apart = slopes(DType::f32, {1e6, 1e6 - 1});
  BOOST_TEST(std::abs(apart[0] - 1 / (1 + std::exp(-1.))) < 1e-7);
  BOOST_TEST(std::abs(apart[0] + apart[1] - 1) < 1e-7);
  // Over one of two axes, kept or not.
  Graph g;
  const Expr x = g.input("x", DType::f32, {2, 3});
  for (const bool keep : {false, true}) {
    const Tensor d = evaluate_eagerly(
        g, {{x, Tensor::of<float>({1e6f, 1e6f, 1e6f, -1e7f, -1e7f, -1e7f}, Shape{2, 3})}},
        {gradients(sum(logsumexp(x, {1}, keep)), Exprs{x})[0]})[0];
    for (std::int64_t i = 0; i < 6; ++i) BOOST_TEST(std::abs(d.at(i) - 1. / 3) < 1e-7);
  }
}

BOOST_AUTO_TEST_CASE(logsumexp_keeps_what_is_far_below) {
  Eager e;
  const double got = logsumexp(e.constant(Tensor::of<double>({-40, 0, -41}))).value().at(0),
               wanted = std::log1p(std::exp(-40.) + std::exp(-41.));
  BOOST_TEST(std::abs(got / wanted - 1) < 1e-15);
}

// Loss and gradient of a row of `n` classes, all at `at` but the label, which is `ahead` of them.
BOOST_AUTO_TEST_CASE(cross_entropies_of_large_and_of_sure_logits) {
  struct Loss {
    const char* name;
    std::function<Expr(const Expr&, const Expr&)> f;
  };
  const Loss losses[] = {
      {"cross_entropy", [](const Expr& x, const Expr& l) { return cross_entropy(x, l); }},
      {"nll_loss", [](const Expr& x, const Expr& l) { return nll_loss(log_softmax(x), l); }},
      {"smoothed_cross_entropy",
       [](const Expr& x, const Expr& l) { return smoothed_cross_entropy(x, l); }},
      {"soft_cross_entropy", [](const Expr& x, const Expr& l) {
         return soft_cross_entropy(x, one_hot(l, x.shape()[1], x.dtype()));
       }}};
  for (const Loss& loss : losses)
    for (DType type : {DType::f32, DType::f64})
      for (std::int64_t n : {2, 3, 130, 1000})
        for (double at : {0.0, 1e4, -1e6, 1e7})
          for (double ahead : {0.0, 1.0, 20.0, 50.0, -50.0}) {
            std::vector<double> row(static_cast<std::size_t>(n), at);
            row[1] += ahead;
            if (type == DType::f32)
              for (double& v : row) v = static_cast<float>(v);
            const Long lead = Long(row[1]) - row[0], others = (n - 1) * std::exp(-lead),
                       wanted = std::log1p(others), slope = -others / (1 + others),
                       other = std::exp(-lead) / (1 + others);
            Graph g;
            const Expr x = g.input("x", type, {1, n}),
                       label = g.constant(Tensor::of<std::int64_t>({1}));
            const Expr y = loss.f(x, label);
            const auto got = evaluate_eagerly(g, {{x, from_doubles(type, Shape{1, n}, row)}},
                                              {y, gradients(sum(y), Exprs{x})[0]});
            const auto near = [&](const char* what, double have, Long want) {
              // exponentials of f32 are off by as many roundings as their argument is large; a sum
              // of n numbers in f64 is off by n roundings at most
              const double allowed =
                  (type == DType::f32 ? 60.0 : 16.0 + static_cast<double>(n)) * epsilon_of(type);
              BOOST_TEST(std::abs(double(have - want)) <= allowed * double(std::abs(want)),
                         loss.name << " of " << n << " " << name_of(type) << " at " << at << " + "
                                   << ahead << ": " << what << " is " << have << ", not "
                                   << double(want));
            };
            near("the loss", got[0].at(0), wanted);
            near("the label's slope", got[1].at(1), slope);
            near("another's slope", got[1].at(0), other);
          }
}

BOOST_AUTO_TEST_CASE(log_softmax_of_large_inputs) {
  Eager e;
  for (float at : {1e4f, 1e6f, -1e8f}) {
    const Tensor y = log_softmax(e.constant(Tensor::of<float>({at, at}))).value();
    BOOST_TEST(y.at(0) == double(static_cast<float>(-std::log(2.))));
  }
  const Tensor sure = log_softmax(e.constant(Tensor::of<double>({40, 0}))).value();
  BOOST_TEST(std::abs(sure.at(0) / -std::log1p(std::exp(-40.)) - 1) < 1e-15);
}

BOOST_AUTO_TEST_CASE(sampled_softmax_of_large_scores) {
  Graph g;
  const Expr bias = g.input("bias", DType::f32, {4});
  const Expr loss = sampled_softmax_with(g.zeros(DType::f32, {1, 2}), g.zeros(DType::f32, {4, 2}),
                                         bias, g.constant(Tensor::of<std::int64_t>({0})),
                                         g.constant(Tensor::of<std::int64_t>({2})));
  const auto at = [&](float b) {
    return evaluate_eagerly(g, {{bias, Tensor::of<float>({b, b, b, b})}},
                            {loss, gradients(sum(loss), Exprs{bias})[0]});
  };
  const auto small = at(0), large = at(4096);
  BOOST_TEST(std::abs(large[0].at(0) - small[0].at(0)) < 5e-4);  // the corrections are rounded
  BOOST_TEST(std::abs(large[1].at(0) + large[1].at(2)) < 1e-6);
}

// Rows of any size are as rows of 1 where epsilon is 0.
BOOST_AUTO_TEST_CASE(norms_of_tiny_and_huge_rows) {  // F4
  using Norm = std::function<Expr(const Expr&)>;
  const std::pair<const char*, Norm> norms[] = {
      {"rms_norm", [](const Expr& x) { return rms_norm(x, 1.0, 0); }},
      {"layer_norm", [](const Expr& x) { return layer_norm(x, 1.0, 0.0, 0); }},
      {"batch_norm", [](const Expr& x) { return batch_norm(x, 1.0, 0.0, 0)[0]; }},
      {"instance_norm", [](const Expr& x) { return instance_norm(x, 1.0, 0.0, 0); }},
      {"group_norm", [](const Expr& x) { return group_norm(x, 2, 1.0, 0.0, 0); }}};
  for (const auto& [name, norm] : norms)
    for (DType type : {DType::f32, DType::f64})
      for (int power : {0, -30, -100, -120, 100, 120, -500, 500, -900, 900}) {
        if (type == DType::f32 && std::abs(power) > 120) continue;
        const double size = std::ldexp(1.0, power);
        for (const std::int64_t rows : {3, 200}) {
          const Shape shape{2, rows, 4};
          std::vector<double> v, w;
          for (std::int64_t i = 0; i < shape.elements(); ++i) {
            v.push_back(static_cast<float>(std::sin(1.7 * static_cast<double>(i * i % 97)) + 0.1));
            w.push_back(static_cast<float>(std::cos(static_cast<double>(i))));
          }
          const auto of = [&, &norm = norm](double by) {
            Graph g;
            const Expr x = g.input("x", type, shape);
            std::vector<double> scaled = v;
            for (double& s : scaled) s *= by;
            const Expr y = norm(x), d = gradients(sum(y * g.constant(from_doubles(type, shape, w))),
                                                  Exprs{x})[0];
            return evaluate_eagerly(g, {{x, from_doubles(type, shape, scaled)}}, {y, d});
          };
          const auto got = of(size), wanted = of(1);
          double worst = 0, worst_slope = 0;
          for (std::int64_t i = 0; i < shape.elements(); ++i) {
            const double off = std::abs(got[0].at(i) - wanted[0].at(i)),
                         slope_off = std::abs(got[1].at(i) * size - wanted[1].at(i));
            worst = std::isnan(off) ? INFINITY : std::max(worst, off);
            worst_slope = std::isnan(slope_off) ? INFINITY : std::max(worst_slope, slope_off);
          }
          const double allowed = type == DType::f32 ? 4e-6 : 1e-13;
          BOOST_TEST(worst <= allowed,
                     name << " of " << name_of(type) << " times 2^" << power << ": " << worst);
          BOOST_TEST(worst_slope <= 4 * allowed, name << "'s slope of " << name_of(type)
                                                      << " times 2^" << power << ": "
                                                      << worst_slope);
        }
      }
}

BOOST_AUTO_TEST_CASE(batch_norm_has_moments_of_tiny_channels) {
  Eager e;
  const Exprs y =
      batch_norm(e.constant(Tensor::of<double>({3e-200, 1e-200}, Shape{2, 1})), 1.0, 0.0, 0);
  BOOST_TEST(std::abs(y[1].value().at(0) / 2e-200 - 1) < 1e-15);
  BOOST_TEST(y[2].value().at(0) == 0);  // 1e-400, which f64 does not hold
}

BOOST_AUTO_TEST_CASE(arange_names_a_number_that_is_too_large) {  // F5
  Eager e;
  for (const auto& [stop, step, text] :
       {std::tuple{1e30, 1.0, "1e+30"}, {1.0, 1e-30, "1e+30"}, {-1e19, -1.0, "1e+19"}}) {
    std::string said;
    try {
      arange(e, 0, stop, step, DType::f64);
    } catch (const Error& error) {
      said = error.what();
      BOOST_TEST((error.code() == Code::invalid_argument));
    }
    BOOST_TEST(said.find(text) != std::string::npos, said);
    BOOST_TEST(said.find("9223372036854775808") == std::string::npos, said);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
