// Not under asan and tsan: op_table_test runs the same kernels.
// Numbers whose digits are easily lost: ends of ranges, floors of nearly whole quotients, small
// differences.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <utility>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/ops/tables/computed.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(digits_test)

// Both ends are exact, wherever they are, and all that is between is rounded once.
BOOST_AUTO_TEST_CASE(ranges_end_at_their_end) {
  const auto vector_of = [](std::vector<double> v) {
    return Array{Shape{static_cast<std::int64_t>(v.size())}, std::move(v)};
  };
  Eager eager;
  BOOST_TEST(linspace(eager, 0, 15, 12, DType::i64).value().at(11) == 15);
  for (std::int64_t n = 2; n < 400; ++n)
    BOOST_TEST(linspace(eager, 0.1, 0.7, n, DType::f64).value().at(n - 1) == 0.7, n);
  same(Array::of(linspace(eager, -1e308, 1e308, 3, DType::f64).value()),
       vector_of({-1e308, 0, 1e308}));
  same(Array::of(linspace(eager, -1.7e308, 1.7e308, 2, DType::f64).value()),
       vector_of({-1.7e308, 1.7e308}));
  for (std::int64_t i = 0; i < 197; ++i)
    BOOST_TEST(linspace(eager, 0, 4, 197, DType::i64).value().at(i) == i * 4 / 196, i);
  BOOST_TEST((linspace(eager, 4, 9, 0).value().shape() == Shape{0}));
  same(Array::of(linspace(eager, 4, 9, 1).value()), vector_of({4}));
  const Tensor thousandths = arange(eager, 0, 10, 0.001, DType::f32).value();
  for (std::int64_t i = 0; i < 10'000; ++i)
    BOOST_TEST(thousandths.at(i) == static_cast<float>(static_cast<double>(i) * 0.001), i);
}

// A quotient that is nearly an integer, and remainders beside it: mod(x, y) is what floor_div(x, y)
// leaves.
BOOST_AUTO_TEST_CASE(floors_of_quotients) {
  const double inf = INFINITY;
  const auto floors = [](DType t, double x, double y) {
    Eager eager;
    const Expr a = cast(eager.constant(x), t), b = cast(eager.constant(y), t);
    return std::pair{floor_div(a, b).value().at(0), mod(a, b).value().at(0)};
  };
  for (DType t : {DType::f32, DType::f64}) {
    BOOST_TEST(floors(t, 1, 0.1).first == 9);
    BOOST_TEST(floors(t, -1, 0.1).first == -10);
    BOOST_TEST(floors(t, 7, -2).first == -4);
    BOOST_TEST(floors(t, 6, 2).first == 3);
    BOOST_TEST(floors(t, -1, inf).first == -1);
    BOOST_TEST(floors(t, 1, -inf).first == -1);
    BOOST_TEST(floors(t, 1, inf).first == 0);
    BOOST_TEST(floors(t, -1e-30, 1e30).first == -1);
    BOOST_TEST(floors(t, 1, 0).first == inf);
    BOOST_TEST(floors(t, inf, 2).first == inf);
    BOOST_TEST(floors(t, 1e37, 3).first ==
               (t == DType::f32 ? double(float(1e37) / 3.f) : 1e37 / 3));
    Draws draws(9);
    const Sample xs = draws.values({500}, -30, 30), ys = draws.values({500}, 0.01, 3);
    for (std::size_t i = 0; i < 500; ++i) {
      double x = xs.array.v[i], y = std::round(ys.array.v[i] * 50) / 50 + 0.01;
      // a product that is rounded, so that the quotient is near an integer
      if (i % 2) x = std::round(x) * y;
      if (t == DType::f32) x = static_cast<float>(x), y = static_cast<float>(y);
      const auto [quotient, rest] = floors(t, x, y);
      const long double exact = std::floor(static_cast<long double>(x) / y);
      BOOST_TEST(quotient == static_cast<double>(exact), x << " / " << y);
      BOOST_TEST((rest >= 0 && rest < y));
    }
  }
}

// Small differences keep their digits.
BOOST_AUTO_TEST_CASE(confident_answers_keep_their_digits) {
  Graph g;
  Expr x = g.input("x", DType::f32, {4}), t = g.input("t", DType::f32, {4}),
       below = g.input("below", DType::f32, {2});
  const Expr loss = binary_cross_entropy(x, t);
  const std::vector<Expr> of{loss, gradients(sum(loss), {x})[0],
                             gradients(sum(elu(below, 2)), {below})[0],
                             gradients(sum(selu(below)), {below})[0]};
  const auto got = evaluate_eagerly(g,
                                    {{x, Tensor::of<float>({20, -20, 0, 20})},
                                     {t, Tensor::of<float>({1, 0, 0.25, 0.5})},
                                     {below, Tensor::of<float>({-20, -1})}},
                                    of);
  const double small = std::exp(-20.), rest = std::log1p(small);
  const auto near = [](const Tensor& all, std::vector<double> expected) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      BOOST_TEST(std::abs(all.at(static_cast<std::int64_t>(i)) / expected[i] - 1) < 1e-6,
                 all.at(static_cast<std::int64_t>(i)) << " for " << expected[i]);
  };
  near(got[0], {rest, rest, std::log(2.), 10 + rest});
  near(got[1], {-small / (1 + small), small / (1 + small), 0.25, 0.5});
  near(got[2], {2 * small, 2 * std::exp(-1.)});
  near(got[3], {1.7580993408473766 * small, 1.7580993408473766 * std::exp(-1.)});
  // Slopes where quotients are nearly whole, and squares too large, too small or nothing.
  Graph slopes;
  Expr a = slopes.input("a", DType::f32, {4}), b = slopes.input("b", DType::f32, {4});
  std::vector<Expr> all = gradients(sum(mod(a, b)), {b});
  for (const Expr& e : gradients(sum(atan2(a, b)), {a, b})) all.push_back(e);
  const auto steep = evaluate_eagerly(slopes,
                                      {{a, Tensor::of<float>({1, 3e30f, 3e-30f, 0})},
                                       {b, Tensor::of<float>({0.1f, 4e30f, 4e-30f, 0})}},
                                      all);
  BOOST_TEST(steep[0].at(0) == -9);
  near(steep[1], {0.1 / 1.01, 0.16e-30, 0.16e30});
  near(steep[2], {-1 / 1.01, -0.12e-30, -0.12e30});
  for (int i : {1, 2}) BOOST_TEST(steep[static_cast<std::size_t>(i)].at(3) == 0);
  Eager eager;
  BOOST_TEST(
      (arange(eager, 1e19, 1.2e19, 1e18, DType::u64).value().to_vector<std::uint64_t>() ==
       std::vector<std::uint64_t>{10'000'000'000'000'000'000u, 11'000'000'000'000'000'000u}));
  const Exprs widest = quantization_of(eager.constant(Tensor::of<float>({-3e38f, 3e38f})));
  near(widest[0].value(), {6e38 / 255});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
