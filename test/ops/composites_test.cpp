// Not under asan and tsan: op_table_test runs the same kernels.
// Functions made of other ops against plain loops: what they give of what is empty, of one element
// and of what is not finite, and their gradients by differences.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/support/callable.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(composites_test)

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();

Sample values_of(const Shape& shape, std::vector<double> v) { return {{shape, std::move(v)}}; }

/// Bit for bit, the sign of zeros too; NaN is NaN.
void same_bits(const Array& got, const std::vector<double>& wanted) {
  BOOST_REQUIRE(got.v.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool is_same =
        std::isnan(wanted[i])
            ? std::isnan(got.v[i])
            : got.v[i] == wanted[i] && std::signbit(got.v[i]) == std::signbit(wanted[i]);
    BOOST_TEST(is_same, "[" << i << "] is " << got.v[i] << ", not " << wanted[i]);
  }
}

Index put(Index i, int axis, std::int64_t to) {
  i[static_cast<std::size_t>(axis)] = to;
  return i;
}

}  // namespace

BOOST_AUTO_TEST_CASE(shares_along_any_axis) {
  Draws draws(201);
  const Sample x = draws.values({2, 3, 4});
  for (int axis = 0; axis < 3; ++axis)
    for (const bool from_end : {false, true}) {
      const std::int64_t named = from_end ? axis - 3 : axis;
      const Array wanted = tabulate(x.array.shape, [&](const Index& i) {
        double total = 0;
        for (std::int64_t k = 0; k < x.array.shape[axis]; ++k)
          total += std::exp(x.array[put(i, axis, k)]);
        return std::exp(x.array[i]) / total;
      });
      same(computed({x}, [=](const Exprs& e) { return softmax(e[0], named); }), wanted);
      same(computed({x}, [=](const Exprs& e) { return exp(log_softmax(e[0], named)); }), wanted);
    }
  BOOST_TEST((computed(
                  {values_of({3, 0, 2}, {})}, [](const Exprs& e) { return softmax(e[0], 0); }, 0)
                  .shape == Shape{3, 0, 2}));
  same(computed({values_of({1, 2}, {5, -700})}, [](const Exprs& e) { return softmax(e[0], 0); }),
       {Shape{1, 2}, {1, 1}});
  same_bits(
      computed(
          {values_of({2, 1}, {-kInf, 0})}, [](const Exprs& e) { return log_softmax(e[0], 0); }, 0),
      {-kInf, 0});
  Graph g;
  const Expr y = g.input("y", DType::f32, {2, 3});
  says(refusal([&] { softmax(y, 2); }, Code::invalid_argument),
       {"softmax", "composites_test.cpp", "[2, 3] has no axis 2"});
}

BOOST_AUTO_TEST_CASE(losses_of_any_leading_axes) {
  Draws draws(202);
  const Sample logits = draws.values({2, 3, 4}),
               labels{{Shape{2, 3}, {0, 3, 7, 1, 2, 7}}, Role::index},
               good = draws.indices({2, 3}, 4), weights = draws.values({4}, 0.5, 2);
  const auto flat = [](const Expr& e) { return reshape(e, {6, 4}); };
  const auto rows = [](const Expr& e) { return reshape(e, {6}); };
  const auto alike = [&](const std::vector<Sample>& samples, const Function& whole,
                         const Function& by_rows) {
    const Array got = computed(samples, whole), wanted = computed(samples, by_rows, 0);
    BOOST_TEST((got.shape == Shape{2, 3}));
    same({wanted.shape, got.v}, wanted);
  };
  alike(
      {logits, good}, [](const Exprs& e) { return cross_entropy(e[0], e[1]); },
      [&](const Exprs& e) { return cross_entropy(flat(e[0]), rows(e[1])); });
  alike(
      {logits, good}, [](const Exprs& e) { return nll_loss(e[0], e[1]); },
      [&](const Exprs& e) { return nll_loss(flat(e[0]), rows(e[1])); });
  alike(
      {logits, labels, weights},
      [](const Exprs& e) { return weighted_nll_loss(e[0], e[1], e[2], 7); },
      [&](const Exprs& e) { return weighted_nll_loss(flat(e[0]), rows(e[1]), e[2], 7); });
  alike(
      {logits, labels, weights},
      [](const Exprs& e) { return smoothed_cross_entropy(e[0], e[1], 0.2, e[2], 7); },
      [&](const Exprs& e) { return smoothed_cross_entropy(flat(e[0]), rows(e[1]), 0.2, e[2], 7); });
  same(computed(
           {labels, weights}, [](const Exprs& e) { return label_weights(e[1], e[0], 7); }, 0),
       {Shape{2, 3},
        {weights.array.v[0], weights.array.v[3], 0, weights.array.v[1], weights.array.v[2], 0}});
  BOOST_TEST((computed(
                  {values_of({2, 0, 3}, {}), {{Shape{2, 0}, {}}, Role::index}},
                  [](const Exprs& e) { return smoothed_cross_entropy(e[0], e[1], 0.1); }, 0)
                  .shape == Shape{2, 0}));
  Graph g;
  const Expr x = g.input("x", DType::f32, {2, 3, 4}), turned = g.input("l", DType::i64, {3, 2});
  says(
      refusal([&] { cross_entropy(x, turned); }, Code::invalid_argument),
      {"CrossEntropy", "composites_test.cpp", "logits [2, 3, 4] and labels [3, 2] differ in rows"});
  says(refusal([&] { smoothed_cross_entropy(x, turned); }, Code::invalid_argument),
       {"smoothed_cross_entropy", "labels must be i32 or i64 [2, 3], not i64[3, 2]"});
  says(refusal([&] { nll_loss(x, g.input("r", DType::i64, {2})); }, Code::invalid_argument),
       {"nll_loss", "needs [..., classes] and [...], not [2, 3, 4] and [2]"});
}

BOOST_AUTO_TEST_CASE(losses_of_elements) {
  Draws draws(203);
  const Sample x = draws.values({2, 3}), t = draws.values({2, 3}, 0.1, 0.9),
               weight = draws.values({3}, 0.5, 3);
  const auto at = [](const Sample& s, const Index& i) { return s.array.broadcast_at(i); };
  const auto log_sigmoid_of = [](double v) { return -std::log1p(std::exp(-v)); };
  same(computed({x, t, weight},
                [](const Exprs& e) { return binary_cross_entropy(e[0], e[1], e[2]); }),
       tabulate({2, 3}, [&](const Index& i) {
         return -at(weight, i) * at(t, i) * log_sigmoid_of(at(x, i)) -
                (1 - at(t, i)) * log_sigmoid_of(-at(x, i));
       }));
  same(computed({x, t}, [](const Exprs& e) { return hinge_loss(e[0], 2.0 * e[1] - 1.0, 0.7); }),
       tabulate({2, 3}, [&](const Index& i) {
         return std::max(0.0, 0.7 - (2 * at(t, i) - 1) * at(x, i));
       }));
  const Array divergence =
      tabulate({2, 3}, [&](const Index& i) { return at(t, i) * (std::log(at(t, i)) - at(x, i)); });
  same(computed({x, t}, [](const Exprs& e) { return kl_divergence(e[0], e[1]); }), divergence);
  same(computed({x, t}, [](const Exprs& e) { return kl_divergence(e[0], log(e[1]), true); }),
       divergence);
  // A target of 0 counts nothing, whatever is predicted.
  const Sample predicted = values_of({4}, {-kInf, -1, -kInf, kNan}),
               target = values_of({4}, {0, 0, 0.5, 0.5});
  same_bits(computed(
                {predicted, target}, [](const Exprs& e) { return kl_divergence(e[0], e[1]); }, 0),
            {0, 0, kInf, kNan});
  same_bits(computed(
                {predicted, target},
                [](const Exprs& e) { return kl_divergence(e[0], log(e[1]), true); }, 0),
            {0, 0, kInf, kNan});
  Graph g;
  const Expr a = g.input("a", DType::f32, {2, 3});
  says(refusal([&] { hinge_loss(a, a, 0); }, Code::invalid_argument),
       {"hinge_loss", "the margin must be finite and above 0, not 0"});
  says(refusal(
           [&] {
             binary_cross_entropy(a, a, g.input("w", DType::f32, {4, 2, 3}));
           },
           Code::invalid_argument),
       {"binary_cross_entropy", "composites_test.cpp"});
}

BOOST_AUTO_TEST_CASE(angles_between) {
  Draws draws(204);
  const Sample x = draws.values({2, 3, 2}), y = draws.values({2, 3, 1});
  for (const std::int64_t axis : {0, 1})
    same(computed({x, y}, [=](const Exprs& e) { return cosine_similarity(e[0], e[1], axis); }),
         tabulate(x.array.shape.without(static_cast<int>(axis)), [&](const Index& i) {
           double xy = 0, xx = 0, yy = 0;
           for (std::int64_t k = 0; k < x.array.shape[static_cast<int>(axis)]; ++k) {
             Index at = i;
             at.insert(at.begin() + axis, k);
             const double a = x.array[at], b = y.array.broadcast_at(at);
             xy += a * b, xx += a * a, yy += b * b;
           }
           return xy / std::sqrt(xx * yy);
         }));
  // A vector of length zero; squares that overflow; NaN.
  same(computed(
           {values_of({3, 2}, {0, 0, 3e200, 4e200, 1, 0}),
            values_of({3, 2}, {1, 2, 3e-3, 4e-3, -2, 0})},
           [](const Exprs& e) { return cosine_similarity(e[0], e[1]); }, 0),
       {Shape{3}, {0, 1, -1}});
  same_bits(computed(
                {values_of({1, 2}, {kNan, 1}), values_of({1, 2}, {1, 1})},
                [](const Exprs& e) { return cosine_similarity(e[0], e[1]); }, 0),
            {kNan});
  BOOST_TEST((computed(
                  {values_of({0, 2}, {}), values_of({0, 2}, {})},
                  [](const Exprs& e) { return cosine_similarity(e[0], e[1]); }, 0)
                  .shape == Shape{0}));
}

BOOST_AUTO_TEST_CASE(padding_with_what_is_there) {
  Draws draws(205);
  const auto mirrored = [](std::int64_t i, std::int64_t n) {
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
  };
  const auto nearest = [](std::int64_t i, std::int64_t n) {
    return std::clamp<std::int64_t>(i, 0, n - 1);
  };
  const auto around = [](std::int64_t i, std::int64_t n) { return ((i % n) + n) % n; };
  const std::vector<
      std::tuple<Expr (*)(Operand, std::vector<std::int64_t>, std::vector<std::int64_t>),
                 Callable<std::int64_t(std::int64_t, std::int64_t)>, std::vector<std::int64_t>,
                 std::vector<std::int64_t>>>
      modes{{pad_reflect, mirrored, {1, 2}, {1, 0}},
            {pad_reflect, mirrored, {0, 2}, {0, 2}},
            {pad_edge, nearest, {4, 0}, {1, 5}},
            {pad_circular, around, {2, 1}, {0, 3}},
            {pad_circular, around, {0, 0}, {0, 0}}};
  const Sample x = draws.values({2, 3});
  for (const auto& [f, from, before, after] : modes)
    same(computed({x}, [f = f, before = before,
                        after = after](const Exprs& e) { return f(e[0], before, after); }),
         tabulate({2 + before[0] + after[0], 3 + before[1] + after[1]}, [&](const Index& i) {
           return x.array[{from(i[0] - before[0], 2), from(i[1] - before[1], 3)}];
         }));
  BOOST_TEST((computed(
                  {values_of({0, 2}, {})},
                  [](const Exprs& e) {
                    return pad_edge(e[0], {0, 1}, {0, 2});
                  },
                  0)
                  .shape == Shape{0, 5}));
  same(computed({values_of({1}, {3})}, [](const Exprs& e) { return pad_edge(e[0], {2}, {1}); }),
       {Shape{4}, {3, 3, 3, 3}});
  Eager now;
  BOOST_TEST((pad_circular(now.constant(Tensor::of<std::int32_t>({1, 2, 3})), {1}, {2})
                  .value()
                  .to_vector<std::int32_t>() == std::vector<std::int32_t>{3, 1, 2, 3, 1, 2}));
  Graph g;
  const Expr y = g.input("y", DType::f32, {2, 3}), open = g.input("open", DType::f32, {kAny});
  says(refusal(
           [&] {
             pad_reflect(y, {0, 3}, {0, 0});
           },
           Code::invalid_argument),
       {"pad_reflect", "composites_test.cpp",
        "adds 3 along axis 1 of [2, 3], which has too few for that"});
  says(refusal(
           [&] {
             pad_circular(y, {0, -1}, {0, 0});
           },
           Code::invalid_argument),
       {"pad_circular", "not -1 along axis 1"});
  says(
      refusal(
          [&] {
            evaluate_eagerly(g, {{open, Tensor::of<float>({1, 2})}}, {pad_reflect(open, {2}, {0})});
          },
          Code::out_of_range),
      {"pad_reflect", "composites_test.cpp"});
}

BOOST_AUTO_TEST_CASE(numbers_beside_the_operators) {
  Draws draws(206);
  const Sample x = draws.values({2, 3}), y = draws.values({3}, 0.3, 0.9),
               w = draws.values({2, 1}, 0, 1);
  same(computed({x, y}, [](const Exprs& e) { return fmod(e[0], e[1]); }),
       tabulate({2, 3}, [&](const Index& i) { return std::fmod(x.array[i], y.array[{i[1]}]); }));
  same(
      computed({x, y}, [](const Exprs& e) { return copysign(e[1], e[0]); }),
      tabulate({2, 3}, [&](const Index& i) { return std::copysign(y.array[{i[1]}], x.array[i]); }));
  same(computed({x, y, w}, [](const Exprs& e) { return lerp(e[0], e[1], e[2]); }),
       tabulate({2, 3}, [&](const Index& i) {
         return x.array[i] + w.array[{i[0], 0}] * (y.array[{i[1]}] - x.array[i]);
       }));
  const std::vector<double> a{0.0, -0.0, 5.5, -5.5, kInf, -kInf, kNan, 3, -1e-30, 7, -6},
      b{2, 2, -2, 2, 2, 2, 2, 0, 1, -kInf, -3};
  const Shape s{11};
  std::vector<double> remainders, signs;
  for (std::size_t i = 0; i < a.size(); ++i)
    remainders.push_back(std::fmod(a[i], b[i])),
        signs.push_back(std::copysign(b[i], std::isnan(a[i]) ? 1 : a[i]));
  same_bits(
      computed(
          {values_of(s, a), values_of(s, b)}, [](const Exprs& e) { return fmod(e[0], e[1]); }, 0),
      remainders);
  same_bits(computed(
                {values_of(s, a), values_of(s, b)},
                [](const Exprs& e) { return copysign(e[1], e[0]); }, 0),
            signs);
  same_bits(computed(
                {values_of({2}, {0.1, 0.1}), values_of({2}, {0.7, 0.7}), values_of({2}, {0, 1})},
                [](const Exprs& e) { return lerp(e[0], e[1], e[2]); }, 0),
            {0.1, 0.7});
  const double largest = std::numeric_limits<double>::max();
  same_bits(computed(
                {values_of({4}, {kNan, kInf, -kInf, 2})},
                [](const Exprs& e) { return nan_to_num(e[0], -1); }, 0),
            {-1, largest, -largest, 2});
  same_bits(computed(
                {values_of({4}, {kNan, kInf, -kInf, 2})},
                [](const Exprs& e) { return gradients(nan_to_num(e[0]), {e[0]})[0]; }, 0),
            {0, 0, 0, 1});
  computed({x}, [](const Exprs& e) { return nan_to_num(e[0]); });
  Eager now;
  for (const auto& [t, most] : {std::pair{DType::f16, 65504.0},
                                {DType::bf16, 0x1.FEp127},
                                {DType::f32, double(std::numeric_limits<float>::max())}})
    BOOST_TEST(nan_to_num(now.constant(Tensor::scalar_as(t, kInf))).value().at(0) == most);
  // Integers: remainders with the sign of x.
  const std::vector<std::int32_t> n{7, -7, 7, -7, 6, 0}, of{3, 3, -3, -3, -3, 5};
  BOOST_TEST((fmod(now.constant(Tensor::of(n, Shape{6})), now.constant(Tensor::of(of, Shape{6})))
                  .value()
                  .to_vector<std::int32_t>() == std::vector<std::int32_t>{1, -1, 1, -1, 0, 0}));
  BOOST_TEST(fmod(now.constant(Tensor::of<std::uint8_t>({250})),
                  now.constant(Tensor::of<std::uint8_t>({7})))
                 .value()
                 .at(0) == 5);
}

BOOST_AUTO_TEST_CASE(is_close_compares_by_tolerance_with_nan_and_infinity) {
  const Sample x = values_of({8}, {1, 1, 1, kInf, kInf, kNan, 0, kInf}),
               y = values_of({8}, {1 + 1e-6, 1.1, kNan, kInf, -kInf, kNan, 1e-9, 1});
  same(computed(
           {x, y}, [](const Exprs& e) { return cast(is_close(e[0], e[1]), DType::f64); }, 0),
       {Shape{8}, {1, 0, 0, 1, 0, 0, 1, 0}});
  same(computed(
           {x, y},
           [](const Exprs& e) { return cast(is_close(e[0], e[1], 0.2, 0, true), DType::f64); }, 0),
       {Shape{8}, {1, 1, 0, 1, 0, 1, 0, 0}});
  Eager now;
  const std::int64_t large = std::int64_t{1} << 60;
  BOOST_TEST(is_close(now.constant(Tensor::of<std::int64_t>({large})),
                      now.constant(Tensor::of<std::int64_t>({large + 1})))
                 .value()
                 .at(0) == 1);
  BOOST_TEST(is_close(now.constant(Tensor::of<std::int32_t>({10})),
                      now.constant(Tensor::of<std::int32_t>({11})))
                 .value()
                 .at(0) == 0);
}

BOOST_AUTO_TEST_CASE(running_extrema_and_differences) {
  Draws draws(207);
  const Sample x = draws.values({3, 5});
  for (int axis : {0, 1}) {
    const auto extreme = [&](double sign) {
      return tabulate(x.array.shape, [&](const Index& i) {
        double best = -kInf;
        for (std::int64_t k = 0; k <= i[static_cast<std::size_t>(axis)]; ++k)
          best = std::max(best, sign * x.array[put(i, axis, k)]);
        return sign * best;
      });
    };
    same(computed({x}, [=](const Exprs& e) { return cummax(e[0], axis); }), extreme(1));
    same(computed({x}, [=](const Exprs& e) { return cummin(e[0], axis - 2); }), extreme(-1));
    Shape fewer = x.array.shape;
    fewer.set(axis, fewer[axis] - 1);
    same(computed({x}, [=](const Exprs& e) { return diff(e[0], axis); }),
         tabulate(fewer, [&](const Index& i) {
           return x.array[put(i, axis, i[static_cast<std::size_t>(axis)] + 1)] - x.array[i];
         }));
  }
  same_bits(
      computed(
          {values_of({4}, {1, kNan, 5, kInf})}, [](const Exprs& e) { return cummax(e[0]); }, 0),
      {1, kNan, kNan, kNan});
  BOOST_TEST((computed(
                  {values_of({2, 0}, {})}, [](const Exprs& e) { return cummax(e[0]); }, 0)
                  .shape == Shape{2, 0}));
  BOOST_TEST((computed(
                  {values_of({2, 1}, {1, 2})}, [](const Exprs& e) { return diff(e[0]); }, 0)
                  .shape == Shape{2, 0}));
  Eager now;
  BOOST_TEST((cummin(now.constant(Tensor::of<std::int8_t>({3, 5, -2, 7})))
                  .value()
                  .to_vector<std::int8_t>() == std::vector<std::int8_t>{3, 3, -2, -2}));
  BOOST_TEST(
      (diff(now.constant(Tensor::of<std::int64_t>({3, 5, -2}))).value().to_vector<std::int64_t>() ==
       std::vector<std::int64_t>{2, -7}));
}

BOOST_AUTO_TEST_CASE(shapes_made_and_undone) {
  Draws draws(208);
  const Sample x = draws.values({4, 5}), row = draws.values({1, 3}), one = draws.values({1, 2, 1});
  same(computed({x},
                [](const Exprs& e) {
                  return strided_slice(e[0], {1, 0}, {-1, 4}, {2, 3});
                }),
       tabulate({2, 2}, [&](const Index& i) {
         return x.array[{1 + 2 * i[0], 3 * i[1]}];
       }));
  BOOST_TEST((computed(
                  {x},
                  [](const Exprs& e) {
                    return strided_slice(e[0], {4, 0}, {0, 1}, {7, std::int64_t{1} << 62});
                  },
                  0)
                  .shape == Shape{0, 1}));
  same(computed({row},
                [](const Exprs& e) {
                  return broadcast_to(e[0], {2, 4, 3});
                }),
       tabulate({2, 4, 3}, [&](const Index& i) {
         return row.array[{0, i[2]}];
       }));
  same(computed({row},
                [](const Exprs& e) {
                  return broadcast_to(e[0], {2, kAny});
                }),
       tabulate({2, 3}, [&](const Index& i) {
         return row.array[{0, i[1]}];
       }));
  same(computed({one},
                [](const Exprs& e) {
                  return squeeze(e[0], {0, -1});
                }),
       {Shape{2}, one.array.v});
  same(computed({one}, [](const Exprs& e) { return squeeze(e[0], std::vector<std::int64_t>{}); }),
       one.array);
  const Sample image = draws.values({1, 2, 1, 8});
  const Array large = tabulate({1, 4, 2, 2}, [&](const Index& i) {
    return image.array[{0, i[1] / 2, i[2] / 2, i[3] * 4 + i[1] % 2 * 2 + i[2] % 2}];
  });
  same(computed({image}, [](const Exprs& e) { return pixel_shuffle(e[0], 2); }), large);
  same(computed({{large}}, [](const Exprs& e) { return pixel_unshuffle(e[0], 2); }), image.array);
  Graph g;
  const Expr open = g.input("open", DType::f64, {kAny, kAny, kAny, 8}),
             y = g.input("y", DType::f32, {1, 2, 1}),
             two_rows = g.input("two_rows", DType::f32, {2, 3});
  same(Array::of(evaluate_eagerly(g, {{open, tensor_of(image)}}, {pixel_shuffle(open, 2)})[0]),
       large);
  says(refusal(
           [&] {
             squeeze(y, {0, -3});
           },
           Code::invalid_argument),
       {"squeeze", "composites_test.cpp", "an axis is named twice"});
  says(refusal(
           [&] {
             strided_slice(y, {0, 0, 0}, {-1, -1, -1}, {1, 0, 1});
           },
           Code::invalid_argument),
       {"strided_slice", "the step along axis 1 must be at least 1, not 0"});
  says(refusal(
           [&] {
             broadcast_to(two_rows, {1, kAny});
           },
           Code::invalid_argument),
       {"broadcast_to", "shape [2, 3] is no part of [1, ?]"});
  says(refusal(
           [&] {
             broadcast_to(two_rows, {kAny, 2, 3});
           },
           Code::invalid_argument),
       {"broadcast_to", "leaves axis 0 open"});
  says(refusal([&] { broadcast_to(y, {2}); }, Code::invalid_argument),
       {"broadcast_to", "shape [1, 2, 1] is no part of [2]"});
  says(refusal([&] { pixel_shuffle(open, 3); }, Code::invalid_argument),
       {"pixel_shuffle", "8 channels are no multiple of 9"});
}

BOOST_AUTO_TEST_CASE(middles_and_quantiles) {
  Draws draws(209);
  const Sample x = draws.values({4, 5});
  for (int axis : {0, 1})
    for (const double q : {0.0, 0.3, 0.5, 1.0}) {
      const Array wanted =
          reduce_with(x.array, {axis == 0, axis == 1}, true, [q](std::vector<double> v) {
            std::sort(v.begin(), v.end());
            const double place = q * static_cast<double>(v.size() - 1), below = std::floor(place);
            return v[static_cast<std::size_t>(below)] +
                   (place - below) * (v[static_cast<std::size_t>(std::ceil(place))] -
                                      v[static_cast<std::size_t>(below)]);
          });
      same(computed({x}, [=](const Exprs& e) { return quantile(e[0], q, axis, true); }), wanted);
      if (q == 0.5)
        same(computed({x}, [=](const Exprs& e) { return median(e[0], axis - 2); }),
             {x.array.shape.without(axis), wanted.v});
    }
  same_bits(
      computed(
          {values_of({4, 3}, {1, kNan, 2, kInf, kInf, 0, -kInf, 3, kInf, -kInf, -kInf, -kInf})},
          [](const Exprs& e) { return median(e[0]); }, 0),
      {kNan, kInf, 3, -kInf});
  same_bits(computed(
                {values_of({2, 2}, {1.5e308, -1.5e308, 7, 7})},
                [](const Exprs& e) { return median(e[0]); }, 0),
            {0, 7});
  same(computed({values_of({1}, {3})}, [](const Exprs& e) { return quantile(e[0], 0.7); }),
       {Shape{}, {3}});
  // its slope is a half of either
  same(computed({values_of({2}, {7, 7})}, [](const Exprs& e) { return median(e[0]); }),
       {Shape{}, {7}});
  BOOST_TEST((computed(
                  {values_of({0, 3}, {})}, [](const Exprs& e) { return median(e[0]); }, 0)
                  .shape == Shape{0}));
  Graph g;
  const Expr none = g.input("none", DType::f32, {2, 0});
  says(refusal([&] { median(none); }, Code::invalid_argument),
       {"median", "composites_test.cpp", "[2, 0] has no elements along axis 1"});
  says(refusal([&] { quantile(none, 1.5, 0); }, Code::invalid_argument),
       {"quantile", "q must be in [0, 1], not 1.5"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
