// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Complex numbers, their gradients and cuts, and special functions, against plain formulas.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <complex>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/ops/tables/samples.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(special_functions_test)

BOOST_AUTO_TEST_CASE(complex_numbers_and_their_gradients) {
  Draws draws(75);
  const Sample a = draws.values({3}), b = draws.values({3}), c = draws.values({3}),
               d = draws.values({3});
  using C = std::complex<double>;
  auto at = [&](std::size_t i, int which) {
    return which == 0 ? C(a.array.v[i], b.array.v[i]) : C(c.array.v[i], d.array.v[i]);
  };
  auto check = [&](const Function& f, auto reference, int order = 2) {
    Array wanted{Shape{3}, {}};
    for (std::size_t i = 0; i < 3; ++i) wanted.v.push_back(reference(at(i, 0), at(i, 1)));
    same(computed(
             {a, b, c, d},
             [&](const Exprs& e) {
               return f({complex(e[0], e[1]), complex(e[2], e[3])});
             },
             order),
         wanted);
  };
  check([](const Exprs& e) { return real(e[0] * e[1]); }, [](C x, C y) { return (x * y).real(); });
  check([](const Exprs& e) { return imaginary(e[0] / e[1]); },
        [](C x, C y) { return (x / y).imag(); });
  check([](const Exprs& e) { return magnitude(e[0] * conjugate(e[1]) + square(e[0])); },
        [](C x, C y) { return std::abs(x * std::conj(y) + x * x); });
  check([](const Exprs& e) { return angle(e[0] - e[1]); },
        [](C x, C y) { return std::arg(x - y); });
  check(
      [](const Exprs& e) {
        return cast(reciprocal(e[0]) * squared_difference(e[0], e[1]), DType::f64);
      },
      [](C x, C y) { return ((x - y) * (x - y) / x).real(); });
  // Functions, each seen in both parts, and as a pair with their conjugates.
  struct Known {
    Function f;
    C (*reference)(const C&);
  };
  for (const Known& k : {Known{[](const Exprs& e) { return exp(e[0]); }, std::exp},
                         {[](const Exprs& e) { return log(e[0]); }, std::log},
                         {[](const Exprs& e) { return sqrt(e[0]); }, std::sqrt},
                         {[](const Exprs& e) { return sin(e[0]); }, std::sin},
                         {[](const Exprs& e) { return cos(e[0]); }, std::cos},
                         {[](const Exprs& e) { return tan(e[0]); }, std::tan},
                         {[](const Exprs& e) { return asin(e[0]); }, std::asin},
                         {[](const Exprs& e) { return acos(e[0]); }, std::acos},
                         {[](const Exprs& e) { return atan(e[0]); }, std::atan},
                         {[](const Exprs& e) { return sinh(e[0]); }, std::sinh},
                         {[](const Exprs& e) { return cosh(e[0]); }, std::cosh},
                         {[](const Exprs& e) { return tanh(e[0]); }, std::tanh},
                         {[](const Exprs& e) { return asinh(e[0]); }, std::asinh},
                         {[](const Exprs& e) { return acosh(e[0]); }, std::acosh},
                         {[](const Exprs& e) { return atanh(e[0]); }, std::atanh},
                         {[](const Exprs& e) { return reciprocal(square(rsqrt(e[0]))); },
                          [](const C& x) { return x; }},
                         {[](const Exprs& e) { return log(sigmoid(e[0]) / (1.0 - sigmoid(e[0]))); },
                          [](const C& x) { return x; }},
                         {[](const Exprs& e) { return silu(e[0]); },
                          [](const C& x) { return x / (1.0 + std::exp(-x)); }}}) {
    auto wanted = [&](C x) { return k.reference(x); };
    check(
        [&](const Exprs& e) {
          Expr y = k.f(e);
          return real(y) + 0.5 * square(imaginary(y));
        },
        [&](C x, C) {
          C y = wanted(x);
          return y.real() + 0.5 * y.imag() * y.imag();
        });
    check([&](const Exprs& e) { return abs(k.f(e)); }, [&](C x, C) { return std::abs(wanted(x)); });
  }
  check([](const Exprs& e) { return real(pow(e[0], e[1])); },
        [](C x, C y) { return std::pow(x, y).real(); });
  check([](const Exprs& e) { return imaginary(pow(e[0], 3.0)); },
        [](C x, C) { return (x * x * x).imag(); });
  // Reduced, along axes too.
  auto reduced = [&](const Function& f, auto reference) {
    C y = reference({at(0, 0), at(1, 0), at(2, 0)});
    same(computed({a, b},
                  [&](const Exprs& e) {
                    Expr z = f({complex(e[0], e[1])});
                    return real(z) + 0.5 * square(imaginary(z));
                  }),
         {Shape{}, {y.real() + 0.5 * y.imag() * y.imag()}});
  };
  reduced([](const Exprs& e) { return sum(e[0]); },
          [](const std::vector<C>& z) { return z[0] + z[1] + z[2]; });
  reduced([](const Exprs& e) { return mean(square(e[0]), {0}); },
          [](const std::vector<C>& z) { return (z[0] * z[0] + z[1] * z[1] + z[2] * z[2]) / 3.0; });
  reduced([](const Exprs& e) { return product(e[0]); },
          [](const std::vector<C>& z) { return z[0] * z[1] * z[2]; });
  // Moved about and multiplied as matrices.
  Array product = computed({a, b, c, d}, [](const Exprs& e) {
    Expr x = reshape(complex(e[0], e[1]), {1, 3}),
         y = transpose(reshape(complex(e[2], e[3]), {1, 3}));
    return imaginary(matmul(x, y));
  });
  C total = 0;
  for (std::size_t i = 0; i < 3; ++i) total += at(i, 0) * at(i, 1);
  same(product, {Shape{1, 1}, {total.imag()}});
  // The gradient of |z|^2 is 2 z.
  Graph g;
  Expr z = g.input("z", DType::c128, {2}), loss = square(magnitude(z));
  std::vector<C> slope = evaluate_eagerly(g, {{z, Tensor::of<C>({C(1, 2), C(-3, 0.5)}, {2})}},
                                          {gradients(sum(loss), {z})[0]})[0]
                             .to_vector<C>();
  BOOST_TEST(std::abs(slope[0] - C(2, 4)) < 1e-12);
  BOOST_TEST(std::abs(slope[1] - C(-6, 1)) < 1e-12);
  Eager eager;
  for (auto [x, wanted] : {std::pair{C(0, 0), 0.0},
                           {C(3e300, 4e300), 5e300},
                           {C(INFINITY, 1), double(INFINITY)},
                           {C(-INFINITY, NAN), double(INFINITY)}})
    BOOST_TEST(magnitude(eager.constant(Tensor::scalar(x))).value().at(0) == wanted);
  BOOST_TEST(imaginary(eager.constant(Tensor::scalar(C(INFINITY, 2)))).value().at(0) == 2);
  // At zero, and where exponentials overflow.
  auto value = [&](const Expr& e) { return *e.value().data<C>(); };
  auto number = [&](C x) { return eager.constant(Tensor::scalar(x)); };
  BOOST_TEST(value(pow(number(0), number(0))) == C(1));
  BOOST_TEST(value(pow(number(0), number(C(2, 1)))) == C(0));
  BOOST_TEST(value(sigmoid(number(C(-1000, 1)))) == C(0));
  BOOST_TEST(value(sigmoid(number(C(1000, 1)))) == C(1));
  BOOST_TEST(value(tanh(number(C(1000, 1)))).real() == 1);
  BOOST_TEST(std::abs(value(sqrt(number(C(-4, 0)))) - C(0, 2)) < 1e-15);
  Graph h;
  Expr base = h.input("base", DType::c128, Shape{}), by = h.input("by", DType::c128, Shape{});
  auto slopes = evaluate_eagerly(h, {{base, Tensor::scalar(C(0))}, {by, Tensor::scalar(C(2))}},
                                 gradients(real(pow(base, by)), {base, by}));
  for (const Tensor& t : slopes) BOOST_TEST(*t.data<C>() == C(0));
  Expr z128 = h.input("z128", DType::c128, {2});
  says(refusal([&] { erf(z128); }, Code::invalid_argument),
       {"Erf", "special_functions_test.cpp", "not defined for c128"});
}

// Odd functions keep the sign of a 0.
BOOST_AUTO_TEST_CASE(minus_zero_stays) {
  for (const Place& place : places())
    for (const DType type : {DType::f32, DType::f64}) {
      Graph g;
      const Expr x = g.input("x", DType::f64, {19}), z = cast(x, type);
      const std::vector<Tensor> made =
          place.evaluate(g, {{x, Tensor::of(std::vector<double>(19, -0.0), {19})}},
                         {sin(z), tan(z), asin(z), atan(z), sinh(z), tanh(z), asinh(z), atanh(z),
                          erf(z), expm1(z), log1p(z)});
      for (std::size_t k = 0; k < made.size(); ++k)
        for (std::int64_t i = 0; i < 19; ++i)
          BOOST_TEST((made[k].at(i) == 0 && std::signbit(made[k].at(i))),
                     place.name << ", " << name_of(type) << ", function " << k);
    }
}

// Beside a cut the sign of a 0 says on which side.
BOOST_AUTO_TEST_CASE(complex_derivatives_on_cuts) {
  const auto slope = [](Expr (*f)(Operand), double re, double im, bool along_imaginary) {
    Graph g;
    Expr x = g.input("x", DType::f64, {}), fixed = g.constant(along_imaginary ? re : im);
    Expr z = along_imaginary ? complex(fixed, x) : complex(x, fixed), y = f(z);
    const double at = along_imaginary ? im : re, h = 1e-6;
    for (const Expr& part : {real(y), imaginary(y)}) {
      const auto value = [&](double v) {
        return evaluate_eagerly(g, {{x, Tensor::scalar(v)}}, {part})[0].at(0);
      };
      const double got = evaluate_eagerly(g, {{x, Tensor::scalar(at)}}, gradients(part, {x}))[0].at(
                       0),
                   expected = (value(at + h) - value(at - h)) / (2 * h);
      BOOST_TEST(std::abs(got - expected) < 1e-6,
                 re << " + " << im << "i: " << got << ", not " << expected);
    }
  };
  for (const double zero : {0.0, -0.0})
    for (const double far : {2.0, -2.0}) {
      slope(asin, far, zero, false), slope(acos, far, zero, false);
      slope(asinh, zero, far, true);
      slope(acosh, -far, zero, false);
    }
}

BOOST_AUTO_TEST_CASE(special_functions) {
  const Sample some = given({7}, {-0.95, -0.5, -1e-9, 0, 0.3, 0.9, 0.999});
  Array inverse = computed(
      {some}, [](const Exprs& e) { return erf_inverse(e[0]); }, 0);
  computed({given({3}, {-0.5, 0.3, 0.8})}, [](const Exprs& e) { return erf_inverse(e[0]); });
  for (std::size_t i = 0; i < some.array.v.size(); ++i)
    BOOST_TEST(std::abs(std::erf(inverse.v[i]) - some.array.v[i]) < 1e-14);
  const Sample x = given({9}, {0.1, 0.5, 1, 1.4616, 2, 3.7, 25, -0.5, -2.3});
  Array logs = computed({x}, [](const Exprs& e) { return log_gamma(e[0]); });
  same(logs, tabulate({9}, [&](const Index& i) { return std::lgamma(x.array[i]); }), 1e-12);
  Array slopes = computed({x}, [](const Exprs& e) { return digamma(e[0]); });
  // digamma(1) is minus Euler's constant; the rest by its recurrence and reflection, from tables.
  const double known[] = {-10.423754940411076, -1.9635100260214235,  -0.57721566490153287,
                          -0.000026793634,     0.42278433509846714,  1.1671535300451,
                          3.1987461268,        0.036489973978576521, 3.3173227834};
  for (std::size_t i = 0; i < 9; ++i) {
    const double h = 1e-5, v = x.array.v[i],
                 difference = (std::lgamma(v + h) - std::lgamma(v - h)) / (2 * h);
    BOOST_TEST(std::abs(slopes.v[i] - difference) < 1e-5 * std::max(1.0, std::abs(difference)));
    if (i != 3 && i != 5 && i != 6 && i != 8)
      BOOST_TEST(std::abs(slopes.v[i] - known[i]) < 1e-12 * std::max(1.0, std::abs(known[i])));
  }
  same(computed({given({1}, {1})}, [](const Exprs& e) { return polygamma(e[0], 1); }),
       vector_of({1.6449340668482264}), 1e-13);
  Eager eager;
  BOOST_TEST(erf_inverse(eager.constant(1.0)).value().at(0) == INFINITY);
  for (const double zero : {0.0, -0.0})
    BOOST_TEST(std::signbit(erf_inverse(eager.constant(zero)).value().at(0)) == std::signbit(zero));
  BOOST_TEST(std::isnan(erf_inverse(eager.constant(1.5)).value().at(0)));
  for (double pole : {0.0, -2.0, -1e20, -1e306, double(-INFINITY), double(INFINITY)})
    BOOST_TEST(log_gamma(eager.constant(pole)).value().at(0) == INFINITY);
  BOOST_TEST(std::isnan(log_gamma(eager.constant(std::nan(""))).value().at(0)));
  for (double v : {1e-305, 1e-300, -1e-300, -1e-9, 0.4999999, 9.9999, 10.0, 10.5, 1e5, 1e300,
                   -0.99999, -7.5, -12.25, -170.4})
    BOOST_TEST(std::abs(log_gamma(eager.constant(v)).value().at(0) - std::lgamma(v)) <=
                   1e-12 * std::max(1.0, std::abs(std::lgamma(v))),
               v);
  BOOST_TEST(digamma(eager.constant(0.0)).value().at(0) == -INFINITY);
  BOOST_TEST(digamma(eager.constant(-0.0)).value().at(0) == INFINITY);
  BOOST_TEST(std::isnan(digamma(eager.constant(-1.0)).value().at(0)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
