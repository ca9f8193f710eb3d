// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// More functions of the DSL against plain loops: losses over classes, quantization, attention,
// draws.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/families/algebra.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/ops/tables/samples.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(library_test)

BOOST_AUTO_TEST_CASE(losses_over_classes) {
  Draws draws(73);
  const Sample logits = draws.values({4, 3}), weights = draws.values({3}, 0.5, 2),
               labels = given({4}, {2, 0, 1, 7}, Role::index);
  auto log_p = [&](std::int64_t row, std::int64_t c) {
    double sum = 0;
    for (std::int64_t k = 0; k < 3; ++k) sum += std::exp(logits.array[{row, k}]);
    return logits.array[{row, c}] - std::log(sum);
  };
  auto loss = [&](double smoothing) {
    return tabulate({4}, [&](const Index& i) {
      const auto label = static_cast<std::int64_t>(labels.array[i]);
      if (label == 7) return 0.0;
      double all = 0;
      for (std::int64_t k = 0; k < 3; ++k) all += -log_p(i[0], k) * weights.array[{k}];
      return (1 - smoothing) * -log_p(i[0], label) * weights.array[{label}] + smoothing / 3 * all;
    });
  };
  for (double smoothing : {0.0, 0.1})
    same(computed({logits, labels, weights},
                  [=](const Exprs& e) {
                    return smoothed_cross_entropy(e[0], e[1], smoothing, e[2], 7);
                  }),
         loss(smoothing));
  same(computed({logits, labels, weights},
                [](const Exprs& e) { return weighted_nll_loss(log_softmax(e[0]), e[1], e[2], 7); }),
       loss(0));
  same(computed(
           {labels, weights}, [](const Exprs& e) { return label_weights(e[1], e[0], 7); }, 0),
       vector_of({weights.array.v[2], weights.array.v[0], weights.array.v[1], 0}));

  const Sample inputs = draws.values({2, 3}), table = draws.values({9, 3}),
               bias = draws.values({9}), which = given({2}, {4, 0}, Role::index),
               samples = given({3}, {1, 4, 7}, Role::index);
  auto score = [&](std::int64_t row, std::int64_t c) {
    double s = bias.array[{c}] -
               std::log(3 * std::log((static_cast<double>(c) + 2) / (static_cast<double>(c) + 1)) /
                        std::log(10.0));
    for (std::int64_t k = 0; k < 3; ++k) s += inputs.array[{row, k}] * table.array[{c, k}];
    return s;
  };
  same(computed({inputs, table, bias, which, samples},
                [](const Exprs& e) { return sampled_softmax_with(e[0], e[1], e[2], e[3], e[4]); }),
       tabulate({2}, [&](const Index& i) {
         const auto label = static_cast<std::int64_t>(which.array[i]);
         double total = std::exp(score(i[0], label));
         for (double s : samples.array.v)
           if (s != static_cast<double>(label))
             total += std::exp(score(i[0], static_cast<std::int64_t>(s)));
         return std::log(total) - score(i[0], label);
       }));
  Graph g;
  Expr x = g.input("x", DType::f32, {4, 3}), y = g.input("y", DType::i64, {4});
  says(refusal([&] { smoothed_cross_entropy(x, y, 2); }, Code::invalid_argument),
       {"smoothed_cross_entropy", "library_test.cpp", "smoothing must be in [0, 1], not 2"});
  says(refusal([&] { weighted_nll_loss(x, x); }, Code::invalid_argument),
       {"weighted_nll_loss", "labels must be i32 or i64 [4], not f32[4, 3]"});
}

// Rows whose label is ignored may hold anything: it reaches neither the loss nor a gradient, the
// weights' included.
BOOST_AUTO_TEST_CASE(ignored_rows_poison_nothing) {
  const Tensor labels = Tensor::of<std::int64_t>({1, -100, 0, -100});
  for (double nonsense : {double(NAN), double(INFINITY), -double(INFINITY)})
    for (int which = 0; which < 3; ++which) {
      Graph g;
      Expr x = g.input("x", DType::f64, {4, 2}), y = g.input("y", DType::i64, {4}),
           w = g.input("w", DType::f64, {2});
      Expr loss = which == 0   ? smoothed_cross_entropy(x, y, 0, w)
                  : which == 1 ? smoothed_cross_entropy(x, y, 0.1, w)
                               : weighted_nll_loss(x, y, w);
      Exprs fetches = gradients(sum(loss), {x, w});
      fetches.push_back(loss);
      auto of = [&](double there) {
        return evaluate_eagerly(
            g,
            {{x, Tensor::of<double>({.1, .2, there, 1, .5, -.3, 2, there}, {4, 2})},
             {y, labels},
             {w, Tensor::of<double>({1, 2})}},
            fetches);
      };
      std::vector<Tensor> got = of(nonsense), wanted = of(0);
      for (std::size_t i = 0; i < got.size(); ++i) same(Array::of(got[i]), Array::of(wanted[i]));
      for (std::int64_t k : {2, 3, 6, 7}) BOOST_TEST(got[0].at(k) == 0);
    }
}

// Shapes that are known when it runs only are held to what is checked while building where they are
// known.
BOOST_AUTO_TEST_CASE(masks_of_unknown_shapes) {
  const Shape unknown = Shape::unknown();
  for (const Shape& of_x : {Shape{3, 2}, Shape{kAny, 2}, Shape{kAny, kAny}, unknown})
    for (const Shape& of_mask : {Shape{3}, Shape{kAny}}) {
      Graph g;
      Expr x = g.input("x", DType::f64, of_x), mask = g.input("mask", DType::boolean, of_mask),
           kept = boolean_mask(x, mask);
      Exprs fetches{kept, gradients(sum(square(kept)), {x})[0]};
      const Tensor values = Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2});
      auto with = [&](std::initializer_list<bool> m) {
        return evaluate_eagerly(g, {{x, values}, {mask, Tensor::of<bool>(m)}}, fetches);
      };
      std::vector<Tensor> got = with({true, false, true});
      same(Array::of(got[0]), {Shape{2, 2}, {1, 2, 5, 6}});
      same(Array::of(got[1]), {Shape{3, 2}, {2, 4, 0, 0, 10, 12}});
      BOOST_TEST((with({false, false, false})[0].shape() == Shape{0, 2}));
      if (!of_mask.is_known())  // shorter than x, and true only where x has rows
        says(refusal(
                 [&] {
                   with({true, true});
                 },
                 Code::invalid_argument),
             {"NonZero", "library_test.cpp",
              "the mask [2] must have the shape of the first axes of [3, 2]"});
    }
  Graph g;
  Expr scalars = g.input("scalars", DType::f64, unknown),
       mask = g.input("mask", DType::boolean, {kAny}),
       any = g.input("any", DType::boolean, unknown);
  says(refusal(
           [&] {
             evaluate_eagerly(g, {{scalars, Tensor::scalar(1.0)}, {mask, Tensor::of<bool>({true})}},
                              {boolean_mask(scalars, mask)});
           },
           Code::invalid_argument),
       {"the mask [1] must have the shape of the first axes of []"});
  says(refusal([&] { boolean_mask(scalars, any); }, Code::invalid_argument),
       {"boolean_mask", "library_test.cpp"});
}

BOOST_AUTO_TEST_CASE(drawn_integers_fit_their_dtype) {
  Eager e;
  const Expr x = e.zeros(DType::f32, {200});
  for (auto [t, low, high] :
       {std::tuple{DType::i8, -128, 128}, {DType::u8, 0, 256}, {DType::u16, 65530, 65536}}) {
    const Expr drawn = random_integers_like(x, low, high, t);
    BOOST_TEST((drawn.dtype() == t));
    for (std::int64_t i = 0; i < 200; ++i)
      BOOST_TEST((drawn.value().at(i) >= low && drawn.value().at(i) < high));
    says(refusal([&] { random_integers_like(x, low, high + 1, t); }, Code::invalid_argument),
         {"random_integers_like", "library_test.cpp", "does not hold all of ["});
    says(refusal([&] { random_integers_like(x, low - 65536, high, t); }, Code::invalid_argument),
         {"does not hold all of ["});
  }
  says(refusal([&] { random_integers_like(x, -1, 3, DType::u64); }, Code::invalid_argument),
       {"u64 does not hold all of [-1, 3)"});
  const std::int64_t last = std::numeric_limits<std::int64_t>::max();
  BOOST_TEST(random_integers_like(x, last - 1, last).value().to_vector<std::int64_t>()[7] ==
             last - 1);
}

BOOST_AUTO_TEST_CASE(linear_algebra_in_few_bits) {
  Draws draws(78);
  const Sample draw = draws.values({2, 3, 3}), right = draws.values({2, 3, 2});
  // tolerance: one rounding
  for (auto [t, tolerance] : {std::pair{DType::f16, 0x1p-11}, {DType::bf16, 0x1p-8}}) {
    Graph g;
    auto both = [&](const Sample& s) { return cast(g.constant(tensor_of(s)), t); };
    Expr few = both(draw), rhs = both(right), wide = cast(few, DType::f32),
         wide_rhs = cast(rhs, DType::f32);
    const Expr few_symmetric = matmul(few, few, false, true) + 2.0 * identity_like(few),
               few_lower = tril(few) + 3.0 * identity_like(few);
    auto made = [&](const Expr& a, const Expr& b) {
      const Expr symmetric = cast(few_symmetric, a.dtype()), lower = cast(few_lower, a.dtype());
      Exprs out{cholesky(symmetric), determinant(symmetric), inverse(symmetric),
                solve(symmetric, b), triangular_solve(lower, b)};
      for (const Exprs& more : {qr(lower), svd(a), eigh(symmetric), log_determinant(symmetric)})
        out.insert(out.end(), more.begin(), more.end());
      out.push_back(gradients(sum(solve(symmetric, b)), {b})[0]);
      return out;
    };
    Exprs halves = made(few, rhs), singles = made(wide, wide_rhs), all = halves;
    all.insert(all.end(), singles.begin(), singles.end());
    std::vector<Tensor> got = evaluate_eagerly(g, {}, all);
    for (std::size_t i = 0; i < halves.size(); ++i) {
      BOOST_TEST((got[i].dtype() == t));
      BOOST_REQUIRE((got[i].shape() == got[halves.size() + i].shape()));
      for (std::int64_t k = 0; k < got[i].elements(); ++k) {
        const double wanted = got[halves.size() + i].at(k);
        BOOST_TEST(std::abs(got[i].at(k) - wanted) <= tolerance * std::abs(wanted) + 1e-7,
                   name_of(t) << " result " << i << " at " << k << " is " << got[i].at(k)
                              << ", not " << wanted);
      }
    }
    says(refusal([&] { solve(few, wide_rhs); }, Code::invalid_argument),
         {"solve", "library_test.cpp", "works on one dtype", "cast one of them"});
  }
}

BOOST_AUTO_TEST_CASE(numbers_in_eight_bits) {
  Draws draws(74);
  const Sample x = draws.values({3, 4}, -3, 5);
  Array back = computed(
      {x},
      [](const Exprs& e) {
        Exprs held = quantization_of(e[0], DType::u8);
        return dequantize(quantize(e[0], held[0], held[1], DType::u8), held[0], held[1]);
      },
      0);
  for (std::size_t i = 0; i < back.v.size(); ++i)
    BOOST_TEST(std::abs(back.v[i] - x.array.v[i]) <= 0.5001 * 8 / 255);
  // Each column has its own scale, and is clipped where it does not fit.
  const Sample scales = given({4}, {0.1, 0.02, 1, 0.5}),
               zeros = given({4}, {0, 10, -5, 3}, Role::index);
  same(computed(
           {x, scales, zeros},
           [](const Exprs& e) { return dequantize(quantize(e[0], e[1], e[2]), e[1], e[2]); }, 0),
       tabulate({3, 4}, [&](const Index& i) {
         const double s = scales.array[{i[1]}], z = zeros.array[{i[1]}];
         return (std::clamp(std::nearbyint(x.array[i] / s) + z, -128.0, 127.0) - z) * s;
       }));
  Graph g;
  Expr e = g.input("x", DType::f64, {3});
  Expr fake = fake_quantize(e, 0.1, 0), slope = gradients(sum(fake), {e})[0];
  std::vector<Tensor> got =
      evaluate_eagerly(g, {{e, Tensor::of<double>({0.26, 100, -0.04})}}, {fake, slope});
  same(Array::of(got[0]), vector_of({0.3, 12.7, 0}), 1e-9);
  same(Array::of(got[1]), vector_of({1, 0, 1}));

  for (DType t : {DType::i8, DType::u8}) {
    Eager eager;
    Sample a = draws.values({5, 37}, t == DType::i8 ? -128 : 0, t == DType::i8 ? 127 : 255),
           b = draws.values({37, 6}, -128, 127);
    for (Sample* s : {&a, &b})
      for (double& v : s->array.v) v = std::trunc(v);
    Expr ea = cast(eager.constant(tensor_of(a)), t),
         eb = cast(eager.constant(tensor_of(b)), DType::i8);
    for (int columns : {0, 1}) {
      Sample zero = columns ? draws.indices({6}, 9) : Sample{{Shape{}, {3}}, Role::index};
      Array product = Array::of(
          int8_matmul(ea, eb, 7, cast(eager.constant(tensor_of(zero)), DType::i32)).value());
      same(product,
           tabulate({5, 6},
                    [&](const Index& i) {
                      double sum = 0;
                      for (std::int64_t k = 0; k < 37; ++k)
                        sum += (a.array[{i[0], k}] - 7) *
                               (b.array[{k, i[1]}] -
                                zero.array.v[columns ? static_cast<std::size_t>(i[1]) : 0]);
                      return sum;
                    }),
           0);
    }
    // The largest sums of 16 bits do not saturate.
    Expr most =
        int8_matmul(cast(eager.ones(DType::i32, {1, 64}) * (t == DType::i8 ? -128 : 255), t),
                    cast(eager.ones(DType::i32, {64, 1}) * -128, DType::i8));
    BOOST_TEST(most.value().at(0) == (t == DType::i8 ? 128.0 * 128 * 64 : -255.0 * 128 * 64));
  }
}

// A NaN shows, whichever block of keys it is in; what is masked does not.
BOOST_AUTO_TEST_CASE(attention_shows_nan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t from : {0, 128}) {
      Graph g;
      std::vector<double> k(256, 0.5), q(2, 1.0);
      std::fill_n(k.begin() + from, 128, nan);
      const auto of = [&](std::vector<double> v, const Shape& shape) {
        return cast(g.constant(Tensor::of(std::move(v), shape)), dtype);
      };
      const Expr keys = of(k, {1, 1, 256, 1}),
                 values = of(std::vector<double>(256, 1.0), {1, 1, 256, 1});
      std::vector<bool> may(2 * 256);
      for (std::int64_t j = 0; j < 256; ++j)
        may[static_cast<std::size_t>(256 + j)] = j < from || j >= from + 128;
      std::fill_n(may.begin(), 256, true);
      Tensor mask = Tensor::zeros(DType::boolean, {1, 2, 256});
      for (std::size_t j = 0; j < may.size(); ++j) mask.mutable_data<bool>()[j] = may[j];
      const Tensor y = evaluate_eagerly(
          g, {},
          {cast(masked_attention(of(q, {1, 1, 2, 1}), keys, values, g.constant(mask)),
                DType::f64)})[0];
      BOOST_TEST(std::isnan(y.at(0)), name_of(dtype) << " from " << from << ": " << y.text());
      BOOST_TEST(std::abs(y.at(1) - 1) < 1e-6, name_of(dtype)
                                                   << " from " << from << ": " << y.text());
      const Tensor all = evaluate_eagerly(
          g, {},
          {cast(attention(of({nan, 1.0}, {1, 1, 2, 1}),
                          of(std::vector<double>(256, 0.5), {1, 1, 256, 1}), values),
                DType::f64)})[0];
      BOOST_TEST(std::isnan(all.at(0)), all.text());
      BOOST_TEST(std::abs(all.at(1) - 1) < 1e-6, all.text());
    }
}

BOOST_AUTO_TEST_CASE(attention_in_few_bits) {
  Draws draws(77);
  const Sample q = draws.values({2, 4, 5, 8}), k = draws.values({2, 2, 70, 8}),
               v = draws.values({2, 2, 70, 3});
  for (auto [t, tolerance] : {std::pair{DType::f16, 2.0 / 1024}, {DType::bf16, 2.0 / 128}})
    for (bool causal : {false, true}) {
      Graph g;
      Exprs few, wide;
      for (const Sample& s : {q, k, v}) {
        few.push_back(cast(g.constant(tensor_of(s)), t));
        wide.push_back(cast(few.back(), DType::f64));  // equal numbers
      }
      auto with_gradients = [&](const Exprs& x) {
        Expr y = attention(x[0], x[1], x[2], causal);
        Exprs out = gradients(sum(square(cast(y, DType::f64))), {x[0], x[1], x[2]});
        out.push_back(y);
        return out;
      };
      std::vector<Tensor> got = evaluate_eagerly(g, {}, with_gradients(few)),
                          wanted = evaluate_eagerly(g, {}, with_gradients(wide));
      for (std::size_t i = 0; i < got.size(); ++i) {
        BOOST_TEST((got[i].dtype() == t));
        double largest = 1, worst = 0;
        for (std::int64_t e = 0; e < got[i].elements(); ++e)
          largest = std::max(largest, std::abs(wanted[i].at(e)));
        for (std::int64_t e = 0; e < got[i].elements(); ++e)
          worst = std::max(worst, std::abs(got[i].at(e) - wanted[i].at(e)));
        BOOST_TEST(worst <= (i == 3 ? 1 : 4) * tolerance * largest,
                   name_of(t) << " " << i << " is off by " << worst << " of " << largest);
      }
    }
}

BOOST_AUTO_TEST_CASE(draws_have_the_moments_of_their_distributions) {
  Graph g;
  const std::int64_t n = 40'000;
  auto moments = [&](const Expr& e) {
    std::vector<double> v;
    Tensor t = evaluate_eagerly(g, {}, {cast(e, DType::f64)})[0];
    for (std::int64_t i = 0; i < t.elements(); ++i) v.push_back(t.at(i));
    const double mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
    double square = 0;
    for (double x : v) square += (x - mean) * (x - mean);
    return std::pair{mean, square / static_cast<double>(v.size())};
  };
  auto near = [&](const char* what, const Expr& e, double mean, double variance) {
    auto [m, v] = moments(e);
    BOOST_TEST(std::abs(m - mean) < 5 * std::sqrt(variance / static_cast<double>(n)),
               what << ": mean " << m << ", not " << mean);
    BOOST_TEST(std::abs(v - variance) < 0.06 * variance,
               what << ": variance " << v << ", not " << variance);
  };
  auto all = [&](double value) {
    return g.constant(Tensor::of(std::vector<double>(static_cast<std::size_t>(n), value), {n}));
  };
  near("gamma 0.5", random_gamma(all(0.5)), 0.5, 0.5);
  near("gamma 3", random_gamma(all(3)), 3, 3);
  near("gamma 3 in bf16", random_gamma(cast(all(3), DType::bf16)), 3, 3);
  near("beta 2, 3", random_beta(all(2), all(3)), 0.4, 0.04);
  near("poisson 0.7", random_poisson(all(0.7)), 0.7, 0.7);
  near("poisson 40", random_poisson(all(40)), 40, 40);
  near("integers", random_integers_like(all(0), -3, 7), 1.5, 99.0 / 12);
  near("exponential", random_exponential_like(all(0)), 1, 1);
  near("bernoulli", bernoulli(all(0.3)), 0.3, 0.21);
  near("multinomial",
       multinomial(
           g.constant(Tensor::of<double>({std::log(0.5), std::log(0.25), std::log(0.25)}, {1, 3})),
           n),
       0.75, 0.6875);
  const auto refused = [&](const Expr& drawn, std::initializer_list<const char*> parts) {
    says(refusal([&] { evaluate_eagerly(g, {}, {drawn}); }, Code::invalid_argument), parts);
  };
  refused(random_poisson(g.constant(Tensor::of<double>({1, -0.5}))),
          {"RandomPoisson", "library_test.cpp",
           "rates must be finite and at least 0, not -0.5 at position 1"});
  for (const double bad : {double(INFINITY), std::nan("")})
    refused(random_poisson(g.constant(bad)), {"rates must be finite"});
  for (const double bad : {0.0, -1.0, double(INFINITY), std::nan("")})
    refused(random_gamma(g.constant(bad)),
            {"RandomGamma", "shape parameters must be finite and above 0"});
  refused(random_beta(g.constant(1.0), g.constant(-2.0)),
          {"in random_beta", "shape parameters must be finite and above 0, not -2"});
  BOOST_TEST(moments(random_poisson(g.constant(0.0))).first == 0);
  // The first class of log_uniform is the most frequent.
  std::vector<std::int64_t> ids =
      evaluate_eagerly(g, {}, {log_uniform(g, n, 10)})[0].to_vector<std::int64_t>();
  for (std::int64_t c : {0, 1, 9}) {
    const double p = std::log((static_cast<double>(c) + 2) / (static_cast<double>(c) + 1)) /
                     std::log(11.0),
                 share = static_cast<double>(std::count(ids.begin(), ids.end(), c)) /
                         static_cast<double>(n);
    BOOST_TEST(std::abs(share - p) < 5 * std::sqrt(p / static_cast<double>(n)));
  }
  // A permutation holds every row once, and is not the order they came in.
  Expr rows = g.constant(Tensor::of(ids, {n})), order = random_permutation_like(rows);
  std::vector<Tensor> got = evaluate_eagerly(g, {}, {order, shuffle(positions_along(rows, 0))});
  for (const Tensor& t : got) {
    std::vector<std::int64_t> p = t.to_vector<std::int64_t>(), sorted = p;
    std::sort(sorted.begin(), sorted.end());
    BOOST_TEST(!std::is_sorted(p.begin(), p.end()));
    for (std::int64_t i = 0; i < n; ++i) BOOST_REQUIRE(sorted[static_cast<std::size_t>(i)] == i);
  }
  BOOST_TEST(
      evaluate_eagerly(g, {},
                       {sampled_softmax(g.zeros(DType::f32, {2, 3}), g.zeros(DType::f32, {50, 3}),
                                        g.zeros(DType::f32, {50}), g.zeros(DType::i64, {2}), 8)})[0]
          .elements() == 2);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
