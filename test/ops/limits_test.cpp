// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Functions of the DSL where formulas end: values too large for few bits, zeros and infinities.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <complex>
#include <limits>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/ops/tables/samples.hpp>
#include <troupe/test/ops/tables/with_slope.hpp>
#include <troupe/test/support/callable.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(limits_test)

namespace {

Tensor as(DType t, const Tensor& x) {
  Eager e;
  return cast(e.constant(x), t).value();
}

}  // namespace

// Squares of 300 are infinite in f16, and exp of what 300 is rounded by is a tenth.
BOOST_AUTO_TEST_CASE(few_bits_hold_values_of_a_few_hundred) {
  Floats v(48);
  for (std::size_t i = 0; i < 48; ++i) v[i] = static_cast<double>((i * 37) % 48) * 16 - 380;
  const Tensor wide = doubles({2, 6, 4}, v);
  const std::vector<std::pair<const char*, Function>> functions{
      {"batch_norm", [](const Exprs& e) { return batch_norm(e[0], 1.0, 0.0)[0]; }},
      {"group_norm", [](const Exprs& e) { return group_norm(e[0], 2, 1.0, 0.0); }},
      {"instance_norm", [](const Exprs& e) { return instance_norm(e[0], 1.0, 0.0); }},
      {"batch_norm_with",
       [](const Exprs& e) { return batch_norm_with(e[0], 1.0, 0.0, 300.0, 60000.0); }},
      {"standard_deviation", [](const Exprs& e) { return standard_deviation(e[0], {1}); }},
      {"norm", [](const Exprs& e) { return norm(e[0], {1}); }},
      {"norm 3", [](const Exprs& e) { return norm(e[0], {1}, 3); }},
      {"logsumexp",
       [](const Exprs& e) { return logsumexp(e[0] - stop_gradient(e[0]) + 300.0, {1}); }},
      {"mse_loss", [](const Exprs& e) { return mse_loss(e[0], e[0] * 0.6); }},
      {"binary_cross_entropy",
       [](const Exprs& e) { return binary_cross_entropy(e[0] * 0.03, 1.0); }},
      {"einsum",
       [](const Exprs& e) {
         return einsum("bij,bij->b", {e[0], e[0] * 0.01 - 1.0});
       }},
      {"reduce_max", [](const Exprs& e) { return reduce_max(e[0] * 0.0, {1}); }},
      {"resize_linear", [](const Exprs& e) { return resize_linear(e[0], {9}); }},
      {"adaptive_avg_pool", [](const Exprs& e) { return adaptive_avg_pool(e[0], {4}); }},
      {"softmax", [](const Exprs& e) { return softmax(e[0] * 0.01, 1); }},
      {"cosine_similarity",
       [](const Exprs& e) { return cosine_similarity(e[0], e[0] * 0.5 + 100.0, 1); }},
      {"lerp", [](const Exprs& e) { return lerp(e[0], e[0] * 0.25, 0.75); }},
      {"quantile", [](const Exprs& e) { return quantile(e[0], 0.3, 1); }},
      {"hinge_loss", [](const Exprs& e) { return hinge_loss(e[0], e[0] * 0.25 - 0.5, 300); }},
      {"kl_divergence",
       [](const Exprs& e) { return kl_divergence(e[0] - 400.0, abs(e[0]) * 0.1 + 1.0); }},
  };
  for (const auto& [name, f] : functions)
    for (DType t : {DType::f16, DType::bf16}) {
      const Tensor few = as(t, wide);
      const std::vector<Tensor> got = with_slope(f, {few}),
                                wanted = with_slope(f, {as(DType::f64, few)});
      for (std::size_t i = 0; i < got.size(); ++i) {
        BOOST_TEST((got[i].dtype() == t));
        double largest = 0, worst = 0;
        for (std::int64_t k = 0; k < wanted[i].elements(); ++k)
          largest = std::max(largest, std::abs(wanted[i].at(k)));
        for (std::int64_t k = 0; k < wanted[i].elements(); ++k) {
          const double off = std::abs(got[i].at(k) - wanted[i].at(k));
          worst = off <= worst ? worst : off;
        }
        BOOST_TEST(worst <= (t == DType::f16 ? 1 : 8) * 4e-3 * largest,
                   name << " of " << name_of(t) << ", output " << i << " is off by " << worst
                        << " of " << largest);
      }
    }
  // A row whose shape loss is of values that f16 has, computed by way of those it has not.
  Eager e;
  Expr p = e.constant(as(DType::f16, doubles({1, 6, 3}, Floats(18, std::log(1.0 / 3)))));
  auto loss = [&](const Expr& x) {
    return ctc_loss(x, e.constant(Tensor::of<std::int64_t>({1, 2}, {1, 2})),
                    e.constant(Tensor::of<std::int64_t>({6}, {1})),
                    e.constant(Tensor::of<std::int64_t>({2}, {1})))
        .value();
  };
  BOOST_TEST((loss(p).dtype() == DType::f16));
  BOOST_TEST(std::abs(loss(p).at(0) - loss(cast(p, DType::f64)).at(0)) < 4e-3);
}

// Sums of four floats at a time are taken again in double where they overflow: moments that f32 can
// represent come out, for one channel and for many.
BOOST_AUTO_TEST_CASE(sums_of_channels_near_the_largest_float) {
  for (std::int64_t channels : {1, 3, 70})
    for (bool by_item : {false, true}) {
      const auto columns = [&](const Floats& column) {
        Floats v;
        for (double e : column) v.insert(v.end(), static_cast<std::size_t>(channels), e);
        return as(DType::f32,
                  doubles(by_item ? Shape{1, static_cast<std::int64_t>(column.size()), channels}
                                  : Shape{static_cast<std::int64_t>(column.size()), channels},
                          v));
      };
      const auto near = [&](const Tensor& t, double wanted) {
        for (std::int64_t i = 0; i < t.elements(); ++i)
          BOOST_TEST(std::abs(t.at(i) - wanted) <= 1e-6 * std::abs(wanted),
                     channels << " channels, got " << t.at(i) << ", not " << wanted);
      };
      Eager e;
      const Attrs attrs{{"by_item", by_item}};
      const Exprs spread = bind_op("ChannelMoments",
                                   {e.constant(columns({1.2e19, 1.2e19, -1.2e19, -1.2e19, 1.2e19,
                                                        -1.2e19, 1.2e19, -1.2e19}))},
                                   attrs);
      near(spread[0].value(), 0);
      near(spread[1].value(), 1.44e38);
      const Exprs far =
          bind_op("ChannelMoments", {e.constant(columns({3e38, 3e38, -1e38, -1e38, 3e38}))}, attrs);
      near(far[0].value(), 1.4e38);
      near(far[1].value(), 3.84e76);
      const Tensor x = columns({1, 2, 3, 4, 5});
      const Tensor mean = as(DType::f32, doubles(by_item ? Shape{1, 1, channels} : Shape{channels},
                                                 Floats(static_cast<std::size_t>(channels), 1)));
      const Exprs sums = bind_op("ChannelSums",
                                 {e.constant(columns({2e38, 2e38, -2e38, -1.5e38, 1e38})),
                                  e.constant(x), e.constant(mean)},
                                 attrs);
      near(sums[0].value(), 1.5e38);
      near(sums[1].value(), -2.5e38);
    }
  // Digits are not lost far from 0 either.
  Eager e;
  const Exprs y = batch_norm(
      e.constant(as(DType::f32, doubles({4, 1}, {1e7, 1e7 + 1, 1e7 + 2, 1e7 + 3}))), 1.0, 0.0);
  BOOST_TEST(y[1].value().at(0) == 1e7 + 2);  // 1.5, to what f32 has
  BOOST_TEST(std::abs(y[2].value().at(0) - 1.25) < 1e-6);
}

// Normalised numbers are near 1, whatever they come from: neither the variance nor its root's
// reciprocal need be f32's, and what f32 loses of a mean is not lost.
BOOST_AUTO_TEST_CASE(norms_of_every_spread) {
  const Shape shape{2, 3, 4};
  Draws draws(19);
  const Sample drawn = draws.values(shape), weights = draws.values(shape),
               scale = draws.values({4}), bias = draws.values({4});
  const std::pair<const char*, Function> norms[] = {
      {"batch_norm", [](const Exprs& e) { return batch_norm(e[0], e[1], e[2], 0)[0]; }},
      {"group_norm", [](const Exprs& e) { return group_norm(e[0], 2, e[1], e[2], 0); }},
      {"group_norm of one", [](const Exprs& e) { return group_norm(e[0], 1, e[1], e[2], 0); }},
      {"instance_norm", [](const Exprs& e) { return instance_norm(e[0], e[1], e[2], 0); }},
      {"layer_norm", [](const Exprs& e) { return layer_norm(e[0], e[1], e[2], 0); }},
      {"rms_norm", [](const Exprs& e) { return rms_norm(e[0], e[1], 0) + e[2]; }}};
  for (const auto& [spread, mean] : {std::pair{1.0, 0.0},
                                     {1e-15, 1e-15},
                                     {1e19, 0.0},
                                     {1e25, 1e25},
                                     {1e30, 0.0},
                                     {1e36, 0.0},
                                     {8.0, 1e7},
                                     {0.5, 65536.0}}) {
    Array x = drawn.array;
    // values that f32 can represent
    for (double& v : x.v) v = static_cast<float>(mean + spread * v);
    for (const auto& [name, norm] : norms) {
      // which keeps its means in f32
      if (mean > 1e3 * spread && std::string(name) == "layer_norm") continue;
      const auto of = [&, &norm = norm](DType type) {
        Graph g;
        Exprs in;
        Feeds feeds;
        for (const Sample& s : {Sample{x}, scale, bias, weights}) {
          in.push_back(g.input("x" + std::to_string(in.size()), type, s.array.shape));
          feeds.emplace_back(in.back(), as(type, tensor_of(Sample{s.array})));
        }
        const Expr y = norm(in);
        const Exprs d = gradients(sum(y * in[3]), Exprs{in[0], in[1], in[2]});
        return evaluate_eagerly(g, feeds, {y, d[0], d[1], d[2]});
      };
      const std::vector<Tensor> got = of(DType::f32), wanted = of(DType::f64);
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        double largest = 0, worst = 0;
        for (std::int64_t i = 0; i < wanted[k].elements(); ++i) {
          largest = std::max(largest, std::abs(wanted[k].at(i)));
          const double off = std::abs(wanted[k].at(i) - got[k].at(i));
          worst = std::isnan(off) ? INFINITY : std::max(worst, off);
        }
        BOOST_TEST(worst <= 4e-6 * largest, name << " of " << mean << " +- " << spread
                                                 << ", output " << k << " is off by " << worst
                                                 << " of " << largest);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(slopes_at_the_edges) {
  const double inf = INFINITY;
  auto slope = [](const Function& f, const Floats& x) {
    Graph g;
    Expr in = g.input("x", DType::f64, {static_cast<std::int64_t>(x.size())});
    return evaluate_eagerly(g, {{in, doubles({static_cast<std::int64_t>(x.size())}, x)}},
                            {gradients(sum(f({in})), {in})[0]})[0]
        .to_vector<double>();
  };
  BOOST_TEST((slope([](const Exprs& e) { return asin(e[0]); }, {1, -1}) == Floats{inf, inf}));
  BOOST_TEST((slope([](const Exprs& e) { return acos(e[0]); }, {1, -1}) == Floats{-inf, -inf}));
  for (double p : {0.5, 1.0, 1.5, 2.0, 3.0, inf})
    BOOST_TEST((slope([=](const Exprs& e) { return norm(e[0], {}, p); }, {0, 0}) == Floats{0, 0}),
               "norm " << p);
  BOOST_TEST(std::abs(slope([](const Exprs& e) { return norm(e[0]); }, {3, 4})[1] - 0.8) < 1e-15);
  BOOST_TEST(
      (slope([](const Exprs& e) { return standard_deviation(e[0]); }, {2, 2}) == Floats{0, 0}));
  BOOST_TEST(
      (slope([](const Exprs& e) { return relu(e[0]); }, {NAN, 1, 0, -1}) == Floats{1, 1, 0, 0}));
  Eager e;
  e.set_seed(3);
  for (double a : {1e-2, 1e-3, 1e-6}) {
    const Tensor drawn = random_beta(e.constant(doubles({2000}, Floats(2000, a))),
                                     e.constant(doubles({2000}, Floats(2000, a))))
                             .value();
    double sum = 0;
    for (std::int64_t i = 0; i < 2000; ++i) sum += drawn.at(i);
    // five deviations of a coin's mean
    BOOST_TEST(std::abs(sum / 2000 - 0.5) < 0.06, "beta of " << a << ": mean " << sum / 2000);
  }
}

BOOST_AUTO_TEST_CASE(letters_as_elsewhere) {
  const Array a{Shape{2, 3}, {1, 2, 3, 4, 5, 6}}, m{Shape{2, 2}, {1, 2, 3, 4}},
      b{Shape{1, 3}, {1, 10, 100}};
  auto made = [](const char* equation, std::initializer_list<Array> of) {
    std::vector<Sample> samples;
    for (const Array& x : of) samples.push_back({x});
    return computed(samples, [=](const Exprs& e) { return einsum(equation, e); });
  };
  same(made("ii->i", {m}), {Shape{2}, {1, 4}});
  same(made("ii->", {m}), {Shape{}, {5}});
  same(made("ii", {m}), {Shape{}, {5}});
  same(made("ji", {a}), {Shape{3, 2}, {1, 4, 2, 5, 3, 6}});
  same(made("ij,jk", {m, a}), {Shape{2, 3}, {9, 12, 15, 19, 26, 33}});
  same(made("...j->...", {a}), {Shape{2}, {6, 15}});
  same(made("...j,...j", {a, b}), {Shape{2}, {321, 654}});
  same(made("...,...", {a, b}), {Shape{2, 3}, {1, 20, 300, 4, 50, 600}});
  same(made("...ij,jk->...ik", {m, a}), {Shape{2, 3}, {9, 12, 15, 19, 26, 33}});
  same(made("ij,ij->ij", {a, b}), {Shape{2, 3}, {1, 20, 300, 4, 50, 600}});
  same(made("ij,ij->j", {a, b}), {Shape{3}, {5, 70, 900}});
  same(made("...,i->...i", {Array{Shape{}, {2}}, Array{Shape{2}, {3, 4}}}), {Shape{2}, {6, 8}});
}

// One mask for a batch, for all heads, for all queries, is that repeated.
BOOST_AUTO_TEST_CASE(masks_of_attention_broadcast) {
  Draws draws(92);
  const Sample q = draws.values({2, 2, 3, 2}), k = draws.values({2, 2, 4, 2}),
               v = draws.values({2, 2, 4, 3});
  for (const Shape& s : {Shape{2, 2, 3, 4}, Shape{1, 2, 3, 4}, Shape{2, 1, 3, 4}, Shape{2, 1, 1, 4},
                         Shape{1, 1, 1, 4}, Shape{2, 2, 3, 1}, Shape{1, 3, 4}, Shape{2, 1, 4},
                         Shape{3, 4}, Shape{1, 4}}) {
    const Sample mask = draws.truths(s);
    const Array whole{s.rank() == 4   ? s
                      : s.rank() == 3 ? Shape{s[0], 1, s[1], s[2]}
                                      : Shape{1, 1, s[0], s[1]},
                      mask.array.v};
    same(computed({q, k, v, mask},
                  [](const Exprs& e) { return masked_attention(e[0], e[1], e[2], e[3]); }),
         tabulate({2, 2, 3, 3}, [&](const Index& i) {
           double total = 0, sum = 0;
           for (std::int64_t j = 0; j < 4; ++j) {
             double score = 0;
             for (std::int64_t d = 0; d < 2; ++d)
               score +=
                   q.array[{i[0], i[1], i[2], d}] * k.array[{i[0], i[1], j, d}] / std::sqrt(2.0);
             const double p = whole.broadcast_at({i[0], i[1], i[2], j}) == 0 ? 0 : std::exp(score);
             total += p;
             sum += p * v.array[{i[0], i[1], j, i[3]}];
           }
           return total == 0 ? 0 : sum / total;
         }));
  }
  Graph g;
  Expr x = g.input("x", DType::f32, {2, 2, 3, 2});
  says(refusal(
           [&] {
             masked_attention(x, x, x, g.input("m", DType::boolean, {2, 4, 3, 3}));
           },
           Code::invalid_argument),
       {"Attention", "limits_test.cpp", "the mask must be", "not [2, 4, 3, 3]"});
}

// Neither squares that f32 does not hold, nor that of a mean far away.
BOOST_AUTO_TEST_CASE(norms_of_every_size) {
  for (double size : {1e30, 1e-30, 1e38, 1e-38})
    for (double p : {1.0, 1.5, 2.0, 3.0, double(INFINITY)}) {
      Graph g;
      const Expr x = g.input("x", DType::f32, {2});
      const Expr y = norm(x, {}, p), slope = gradients(y, Exprs{x})[0];
      const std::vector<Tensor> got = evaluate_eagerly(
          g, {{x, as(DType::f32, doubles({2}, {0.6 * size, -0.8 * size}))}}, {y, slope});
      const double wanted =
                       std::isinf(p) ? 0.8 : std::pow(std::pow(0.6, p) + std::pow(0.8, p), 1 / p),
                   steep = std::isinf(p) ? -1 : -std::pow(0.8 / wanted, p - 1);
      BOOST_TEST(std::abs(got[0].at(0) / size - wanted) < 1e-6,
                 "norm " << p << " of " << size << " is " << got[0].at(0));
      BOOST_TEST(std::abs(got[1].at(1) - steep) < 1e-6, "its slope is " << got[1].at(1));
    }
  Eager e;
  const Expr huge = e.constant(as(DType::f32, doubles({2}, {1e30, -1e30}))),
             far = e.constant(as(DType::f32, doubles({4}, {1e7, 1e7 + 1, 1e7 + 2, 1e7 + 3})));
  BOOST_TEST(std::abs(standard_deviation(huge).value().at(0) / 1e30 - 1) < 1e-6);
  BOOST_TEST(std::abs(variance(far).value().at(0) - 1.25) < 1e-6);
  using C = std::complex<float>;
  BOOST_TEST(
      std::abs(norm(e.constant(Tensor::of<C>({{3e30f, 0}, {0, 4e30f}}, Shape{2}))).value().at(0) /
                   5e30 -
               1) < 1e-6);
}

// Arguments that are no probabilities are refused at run time, as torch does; zeros and logits of
// -inf are probabilities.
BOOST_AUTO_TEST_CASE(draws_of_no_probabilities_are_refused) {
  for (DType type : {DType::f16, DType::f32, DType::f64}) {
    Eager e;
    const auto of = [&](const Shape& s, const Floats& v) {
      return e.constant(as(type, doubles(s, v)));
    };
    for (double p : {2.0, -0.25, double(INFINITY), double(NAN)})
      says(refusal(
               [&] {
                 bernoulli(of({3}, {0.5, p, 1}));
               },
               Code::invalid_argument),
           {" in bernoulli at limits_test.cpp:", "a probability is outside [0, 1]"});
    BOOST_TEST((bernoulli(of({4}, {0, 1, 0, 1})).value().to_vector<bool>() ==
                std::vector<bool>{false, true, false, true}));
    BOOST_TEST((bernoulli(of({0}, {})).value().elements() == 0));
    for (const Floats& logits : {Floats{0, NAN}, {INFINITY, 0}, {-INFINITY, -INFINITY}}) {
      says(refusal(
               [&] {
                 categorical(of({1, 2}, logits));
               },
               Code::invalid_argument),
           {" in categorical at limits_test.cpp:", "no probabilities"});
      says(refusal(
               [&] {
                 multinomial(of({1, 2}, logits), 3);
               },
               Code::invalid_argument),
           {" in multinomial at limits_test.cpp:", "no probabilities"});
    }
    BOOST_TEST(
        (categorical(of({2, 2}, {-INFINITY, 0, 0, -INFINITY})).value().to_vector<std::int64_t>() ==
         std::vector<std::int64_t>{1, 0}));
    BOOST_TEST((categorical(of({0, 2}, {})).value().elements() == 0));
  }
  // Within a graph, and on a device whose streams are asynchronous.
  Graph g;
  const Expr p = g.input("p", DType::f32, {kAny}), y = bernoulli(p);
  for (const Place& place : places()) {
    BOOST_TEST(
        (place.evaluate(g, {{p, as(DType::f32, doubles({2}, {1, 0}))}}, {y})[0].to_vector<bool>() ==
         std::vector<bool>{true, false}),
        place.name);
    says(refusal(
             [&] {
               place.evaluate(g, {{p, as(DType::f32, doubles({2}, {1, 1.5}))}}, {y});
             },
             Code::invalid_argument),
         {" in bernoulli (limits_test.cpp:", "a probability is outside [0, 1]"});
  }
}

// As torch and numpy have it: what is not 0 is true, and NaN is not 0.
BOOST_AUTO_TEST_CASE(any_and_all_take_numbers) {
  Eager e;
  const Tensor some = doubles({2, 3}, {0, 0, 2, NAN, -1, 0.5});
  for (DType type : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8, DType::u8,
                     DType::i64, DType::c64}) {
    const Expr x = cast(
        e.constant(type == DType::c64 || is_floating(type) ? some
                                                           : doubles({2, 3}, {0, 0, 2, 7, 1, 3})),
        type);
    BOOST_TEST((any(x, {1}).value().to_vector<bool>() == std::vector<bool>{true, true}),
               name_of(type));
    BOOST_TEST((all(x, {1}).value().to_vector<bool>() == std::vector<bool>{false, true}),
               name_of(type));
    BOOST_TEST((any(x, {0}, true).value().to_vector<bool>() == std::vector<bool>{true, true, true}),
               name_of(type));
  }
  // Sums of bools count.
  const Expr truths = e.constant(Tensor::of(std::vector<bool>{true, false, true, true}, {2, 2}));
  BOOST_TEST(
      (sum(truths, {1}).value().to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2}));
  BOOST_TEST((cumsum(truths, 0).value().to_vector<std::int64_t>() ==
              std::vector<std::int64_t>{1, 0, 2, 1}));
}

BOOST_AUTO_TEST_CASE(complex_numbers_run_and_spread) {
  using C = std::complex<double>;
  const std::vector<C> x{{1, 2}, {-0.5, 0.25}, {3, -1}};
  Eager e;
  Expr z = e.constant(Tensor::of(x, Shape{3}));
  std::vector<C> sums = cumsum(z).value().to_vector<C>(),
                 products = cumprod(z).value().to_vector<C>();
  BOOST_TEST((sums == std::vector<C>{x[0], x[0] + x[1], x[0] + x[1] + x[2]}));
  for (std::size_t i = 0; i < 3; ++i)
    BOOST_TEST(std::abs(products[i] - (i == 0   ? x[0]
                                       : i == 1 ? x[0] * x[1]
                                                : x[0] * x[1] * x[2])) < 1e-14);
  const C middle = (x[0] + x[1] + x[2]) / 3.0;
  double spread = 0;
  for (const C& each : x) spread += std::norm(each - middle) / 3;
  BOOST_TEST((variance(z).dtype() == DType::f64));
  BOOST_TEST(std::abs(variance(z).value().at(0) - spread) < 1e-14);
  BOOST_TEST(std::abs(standard_deviation(z).value().at(0) - std::sqrt(spread)) < 1e-14);
  // Near zero nothing is lost.
  Expr tiny = e.constant(Tensor::of<C>({{1e-12, 2e-12}}, Shape{1}));
  for (const Expr& y : {expm1(tiny), log1p(tiny)})
    BOOST_TEST(std::abs(y.value().to_vector<C>()[0] - C(1e-12, 2e-12)) < 1e-22);
  const Array re{Shape{2}, {0.3, -1.2}}, im{Shape{2}, {0.4, 0.7}};
  for (const Function& f :
       {Function([](const Exprs& p) { return real(cumsum(square(complex(p[0], p[1])))); }),
        Function([](const Exprs& p) { return imaginary(cumprod(complex(p[0], p[1]))); }),
        Function([](const Exprs& p) { return variance(complex(p[0], p[1])); }),
        Function([](const Exprs& p) { return imaginary(log1p(complex(p[0], p[1]))); }),
        Function([](const Exprs& p) { return real(expm1(complex(p[0], p[1]))); })})
    computed({{re}, {im}}, f, 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
