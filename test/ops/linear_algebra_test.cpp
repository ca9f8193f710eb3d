// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Linear algebra against plain loops and products; its gradients by differences; what it refuses.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(linear_algebra_test)

namespace {

Array times(const Array& a, const Array& b) {
  return tabulate({a.shape[0], b.shape[1]}, [&](const Index& i) {
    double s = 0;
    for (std::int64_t k = 0; k < a.shape[1]; ++k) s += a[{i[0], k}] * b[{k, i[1]}];
    return s;
  });
}
Array turned(const Array& a) {
  return tabulate({a.shape[1], a.shape[0]}, [&](const Index& i) { return a[{i[1], i[0]}]; });
}
Array item(const Array& a, std::int64_t n) {
  Shape s = a.shape.without(0);
  const auto size = static_cast<std::ptrdiff_t>(s.elements());
  return {s, {a.v.begin() + n * size, a.v.begin() + (n + 1) * size}};
}
Array identity(std::int64_t n) {
  return tabulate({n, n}, [](const Index& i) { return i[0] == i[1] ? 1.0 : 0.0; });
}

}  // namespace

BOOST_AUTO_TEST_CASE(factors_of_matrices) {
  Draws draws(51);
  const Sample x = draws.values({2, 3, 3});
  Array l = computed({x}, [](const Exprs& e) {
    return cholesky(matmul(e[0], e[0], false, true) + 0.5 * tril(triu(ones_like(e[0]))));
  });
  for (std::int64_t n = 0; n < 2; ++n) {
    Array wanted = times(item(x.array, n), turned(item(x.array, n)));
    for (std::int64_t i = 0; i < 3; ++i) wanted[{i, i}] += 0.5;
    same(times(item(l, n), turned(item(l, n))), wanted);
    BOOST_TEST(item(l, n)[Index({0, 2})] == 0);
  }
  for (const Shape& s : {Shape{1, 4, 3}, Shape{1, 3, 3}, Shape{1, 2, 4}}) {
    const Sample a = draws.values(s);
    Array q = computed({a}, [](const Exprs&e) { return qr(e[0])[0]; }),
          r = computed({a}, [](const Exprs&e) { return qr(e[0])[1]; });
    same(times(item(q, 0), item(r, 0)), item(a.array, 0));
    same(times(turned(item(q, 0)), item(q, 0)), identity(item(q, 0).shape[1]));
    BOOST_TEST((item(r, 0)[Index({0, 0})] >= 0));
    Array u = computed(
              {a}, [](const Exprs&e) { return svd(e[0])[0]; }, 1),
          w = computed({a}, [](const Exprs&e) { return svd(e[0])[1]; }),
          v = computed(
              {a}, [](const Exprs&e) { return svd(e[0])[2]; }, 1);
    Array scaled = item(u, 0);
    for_each_index(scaled.shape, [&](const Index& i) { scaled[i] *= w[{0, i[1]}]; });
    same(times(scaled, turned(item(v, 0))), item(a.array, 0));
    same(times(turned(item(u, 0)), item(u, 0)), identity(w.shape[1]));
    same(times(turned(item(v, 0)), item(v, 0)), identity(w.shape[1]));
    BOOST_TEST(w.v[0] >= w.v[1]);
  }
  Array values = computed({x}, [](const Exprs&e) { return eigh(e[0])[0]; }),
        vectors = computed({x}, [](const Exprs&e) { return eigh(e[0])[1]; });
  for (std::int64_t n = 0; n < 2; ++n) {
    Array a = item(x.array, n), scaled = item(vectors, n);
    for_each_index(a.shape, [&](const Index& i) {
      if (i[1] > i[0]) a[i] = a[{i[1], i[0]}];
    });
    for_each_index(scaled.shape, [&](const Index& i) { scaled[i] *= values[{n, i[1]}]; });
    same(times(scaled, turned(item(vectors, n))), a);
  }
}

BOOST_AUTO_TEST_CASE(solving_and_determinants) {
  Draws draws(52);
  Sample a = draws.values({2, 3, 3}), b = draws.values({2, 3, 2});
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t i = 0; i < 3; ++i) a.array[{n, i, i}] += 3;
  for (bool transposed : {false, true}) {
    Array x = computed({a, b}, [=](const Exprs& e) { return solve(e[0], e[1], transposed); });
    for (std::int64_t n = 0; n < 2; ++n)
      same(times(transposed ? turned(item(a.array, n)) : item(a.array, n), item(x, n)),
           item(b.array, n));
    for (bool lower : {false, true}) {
      Array y = computed(
          {a, b}, [=](const Exprs& e) { return triangular_solve(e[0], e[1], lower, transposed); });
      for (std::int64_t n = 0; n < 2; ++n) {
        Array half = item(a.array, n);
        for_each_index(half.shape, [&](const Index& i) {
          if (lower ? i[1] > i[0] : i[1] < i[0]) half[i] = 0;
        });
        same(times(transposed ? turned(half) : half, item(y, n)), item(b.array, n));
      }
    }
  }
  Array inverted = computed({a}, [](const Exprs&e) { return inverse(e[0]); }),
        d = computed({a}, [](const Exprs&e) { return determinant(e[0]); });
  computed({a}, [](const Exprs& e) { return log_determinant(e[0])[1]; });
  for (std::int64_t n = 0; n < 2; ++n) {
    same(times(item(a.array, n), item(inverted, n)), identity(3));
    const Array m = item(a.array, n);
    auto at = [&](std::int64_t i, std::int64_t j) { return m[{i, j}]; };
    const double wanted = at(0, 0) * (at(1, 1) * at(2, 2) - at(1, 2) * at(2, 1)) -
                          at(0, 1) * (at(1, 0) * at(2, 2) - at(1, 2) * at(2, 0)) +
                          at(0, 2) * (at(1, 0) * at(2, 1) - at(1, 1) * at(2, 0));
    BOOST_TEST(std::abs(d.v[static_cast<std::size_t>(n)] - wanted) < 1e-11 * std::abs(wanted));
  }
  // Ranks of one, of two and of three less than rows, and none.
  const Sample singular{{Shape{4, 3, 3}, {1, 2, 3, 2, 4, 6, 1, 1, 1, 0, 0, 0, 0, 3, 0, 0, 0, 2,
                                          1, 2, 3, 2, 4, 6, 3, 6, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0}}};
  const Function of_singular = [](const Exprs& e) { return determinant(e[0]); };
  same(computed({singular}, of_singular, 1), {Shape{4}, {0, 0, 0, 0}});
  same(computed(
           {singular}, [&](const Exprs& e) { return gradients(of_singular(e), {e[0]})[0]; }, 0),
       {singular.array.shape, {-2, 4, -2, 1, -2, 1, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0,
                               0,  0, 0,  0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
       1e-14);
  for (const Shape& few : {Shape{2, 1, 1}, Shape{2, 0, 0}, Shape{0, 2, 2}})
    computed({draws.values(few)}, of_singular);
  Graph g;
  Expr wide = g.input("wide", DType::f32, {2, 3}), whole = g.input("whole", DType::i32, {3, 3}),
       square = g.input("square", DType::f64, {2, 2});
  says(refusal([&] { cholesky(wide); }, Code::invalid_argument),
       {"Cholesky", "linear_algebra_test.cpp", "needs square matrices, not [2, 3]"});
  says(refusal([&] { svd(whole); }, Code::invalid_argument), {"Svd", "f32 and f64, not i32"});
  says(refusal(
           [&] {
             solve(square, g.input("b", DType::f64, {3, 1}));
           },
           Code::invalid_argument),
       {"Solve", "the right side of [2, 2]", "not [3, 1]"});
  auto run = [&](const Expr& y, std::initializer_list<double> of) {
    evaluate_eagerly(g, {{square, Tensor::of<double>(of, {2, 2})}}, {y});
  };
  says(refusal(
           [&] {
             run(cholesky(square), {1, 2, 2, 1});
           },
           Code::invalid_argument),
       {"Cholesky", "linear_algebra_test.cpp", "not positive definite"});
  says(refusal(
           [&] {
             run(inverse(square), {1, 2, 2, 4});
           },
           Code::invalid_argument),
       {"Solve", "linear_algebra_test.cpp", "is singular"});
  // A NaN below a 0 is no column of zeros.
  Eager e;
  const Expr not_numbers = e.constant(Tensor::of<double>({0, 1, NAN, 1}, {2, 2}));
  BOOST_TEST(std::isnan(determinant(not_numbers).value().at(0)));
  BOOST_TEST(std::isnan(bind1("Cofactors", {not_numbers}).value().at(0)));
  BOOST_TEST(std::isnan(inverse(not_numbers).value().at(0)));
}

// Matrices of several blocks, against products.
BOOST_AUTO_TEST_CASE(factors_of_large_matrices) {
  Draws draws(154);
  for (const DType type : {DType::f64, DType::f32})
    for (const std::int64_t n : {64, 65, 150, 200}) {
      const double slack = static_cast<double>(n) * (type == DType::f64 ? 1e-13 : 1e-4);
      Eager e;
      const auto of = [&](const Shape& shape) {
        return cast(e.constant(tensor_of(draws.values(shape))), type);
      };
      const auto agree = [&](const Expr& got, const Expr& wanted, const char* what) {
        const double off = cast(reduce_max(abs(got - wanted)), DType::f64).value().at(0);
        BOOST_TEST(off < slack,
                   what << " of " << n << " in " << name_of(type) << " is off by " << off);
      };
      const Expr a = of({2, n, n}), right = of({2, n, 3}), one = tril(triu(ones_like(a)));
      const Expr positive = matmul(a, a, false, true) / static_cast<double>(n) + one,
                 l = cholesky(positive);
      agree(matmul(l, l, false, true), positive, "cholesky");
      agree(triu(l, 1), zeros_like(l), "the upper half");
      // Diagonally dominant triangles, whose inverses stay small; what is beside them is not looked
      // at.
      const Expr beside = a / static_cast<double>(n) + 2.0 * one;
      for (const bool lower : {true, false})
        for (const bool transposed : {true, false})
          agree(matmul(lower ? tril(beside) : triu(beside),
                       triangular_solve(beside, right, lower, transposed), transposed),
                right, "triangular_solve");
      // Rows in reverse, so that pivots are looked for.
      const Expr mixed = flip(beside, {1});
      agree(matmul(mixed, solve(mixed, right)), right, "solve");
      agree(matmul(mixed, solve(mixed, right, true), true), right, "transposed solve");
      agree(matmul(mixed, inverse(mixed)), one, "inverse");
      const Exprs parts = log_determinant(positive), others = log_determinant(mixed);
      agree(parts[1], 2.0 * sum(log(sum(l * one, {-1})), {-1}), "log_determinant");
      const double reversed = n / 2 % 2 ? -1 : 1;
      agree(others[0], ones_like(others[0]) * reversed, "the sign of the determinant");
      agree(others[1], log_determinant(beside)[1], "the determinant of rows in reverse");
    }
}

// Cases that rows of tables do not cover: a matrix without a batch, halves that are not read.
BOOST_AUTO_TEST_CASE(matrices_alone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  same(computed({{Array{Shape{2, 2}, {1, 2, 3, 4}}}},
                [](const Exprs& e) { return determinant(e[0]); }),
       {Shape{}, {-2}});
  same(computed({{Array{Shape{3, 3}, {0, 0, 2, 0, 3, 0, 4, 0, 0}}}},
                [](const Exprs& e) { return log_determinant(e[0])[1]; }),
       {Shape{}, {std::log(24.)}});
  same(
      computed(
          {{Array{Shape{2, 2}, {4, nan, 2, 5}}}}, [](const Exprs& e) { return cholesky(e[0]); }, 0),
      {Shape{2, 2}, {2, 0, 1, 2}});
  // Squares of these columns are too large or too small.
  for (const double s : {1e-200, 1e-160, 1.0, 1e160, 1e300}) {
    Eager eager;
    const Tensor a = Tensor::of<double>({3 * s, 1e-300, 1, 4 * s, 2e-300, 2, 0, 3e-300, 5}, {3, 3});
    const Exprs factors = qr(eager.constant(a));
    const Tensor q = factors[0].value(), r = factors[1].value();
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 3; ++j) {
        double back = 0, product = 0;
        for (std::int64_t k = 0; k < 3; ++k)
          back += q.at(i * 3 + k) * r.at(k * 3 + j), product += q.at(k * 3 + i) * q.at(k * 3 + j);
        BOOST_TEST(std::abs(back - a.at(i * 3 + j)) <= 1e-14 * (j == 0   ? 5 * s
                                                                : j == 1 ? 4e-300
                                                                         : 6),
                   s << " at " << i << ", " << j);
        BOOST_TEST(std::abs(product - (i == j)) <= 1e-14);
      }
  }
  // The slope of u falls as a grows, whatever size that is.
  const auto slope = [](double s) {
    Graph g;
    Expr x = g.constant(Tensor::of<double>({3 * s, s, 2 * s, 7 * s}, {2, 2})), u = svd(x)[0];
    return evaluate_eagerly(
        g, {},
        {gradients(sum(u * g.constant(Tensor::of<double>({1, 2, 3, 5}, {2, 2}))), {x})[0]})[0];
  };
  const Tensor of_one = slope(1);
  for (const double s : {1e-200, 1e200})
    for (std::int64_t i = 0; i < 4; ++i)
      BOOST_TEST(std::abs(slope(s).at(i) * s / of_one.at(i) - 1) < 1e-12, s);
  const auto refused = [](double upper) {
    return refusal(
        [&] {
          computed(
              {{Array{Shape{2, 2}, {-1, upper, 0, 1}}}},
              [](const Exprs& e) { return cholesky(e[0]); }, 0);
        },
        Code::invalid_argument);
  };
  BOOST_TEST(refused(nan).find("is not positive definite") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
