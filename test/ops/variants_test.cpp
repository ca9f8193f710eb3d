// Not under asan and tsan: op_table_test runs the same kernels.
// Functions beside their plain forms, against plain loops: other axes, corners, cubic resizing,
// windows that are rounded up or reach over padding, samples' variances, norms of complex numbers,
// functions made of logarithms, activations made of others, losses. Their gradients by differences;
// what they refuse.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/support/callable.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(variants_test)

namespace {

Array of_each(const Array& x, const Callable<double(double)>& f) {
  return tabulate(x.shape, [&](const Index& i) { return f(x[i]); });
}

/// f of the samples where graphs know neither ranks nor extents.
Array of_unknown_extents(const std::vector<Sample>& samples, const Function& f) {
  Graph g;
  Exprs xs;
  Feeds feeds;
  for (const Sample& s : samples) {
    const Tensor t = tensor_of(s);
    Shape open = t.shape();
    for (int i = 0; i < open.rank(); ++i) open.set(i, kAny);
    xs.push_back(g.input("x" + std::to_string(xs.size()), t.dtype(), open));
    feeds.emplace_back(xs.back(), t);
  }
  return Array::of(evaluate_eagerly(g, feeds, {f(xs)})[0]);
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_along_any_axis) {
  Draws draws(201);
  const Sample x = draws.values({3, 4, 2});
  for (const std::int64_t axis : {0, 1, 2, -3, -2, -1})
    for (const bool down : {false, true}) {
      const auto at = static_cast<std::size_t>(axis < 0 ? axis + 3 : axis);
      const std::int64_t extent = x.array.shape[static_cast<int>(at)];
      const auto place_of = [&](Index i) {  // the former position of the element that is now at i
        const std::int64_t rank = i[at];
        std::vector<std::int64_t> order(static_cast<std::size_t>(extent));
        std::iota(order.begin(), order.end(), 0);
        const auto value = [&](std::int64_t k) { return i[at] = k, x.array[i]; };
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
          return down ? value(a) > value(b) : value(a) < value(b);
        });
        return order[static_cast<std::size_t>(rank)];
      };
      const auto value_of = [&](Index i) { return i[at] = place_of(i), x.array[i]; };
      Shape two = x.array.shape;
      two.set(static_cast<int>(at), 2);
      same(computed({x}, [=](const Exprs& e) { return sort(e[0], down, axis)[0]; }),
           tabulate(x.array.shape, value_of));
      same(computed(
               {x}, [=](const Exprs& e) { return argsort(e[0], down, axis); }, 0),
           tabulate(x.array.shape,
                    [&](const Index& i) { return static_cast<double>(place_of(i)); }));
      same(computed({x}, [=](const Exprs& e) { return top_k(e[0], 2, down, axis)[0]; }),
           tabulate(two, value_of));
      same(of_unknown_extents({x}, [=](const Exprs& e) { return top_k(e[0], 2, down, axis)[0]; }),
           tabulate(two, value_of));
    }
  Graph g;
  Expr in = g.input("x", DType::f32, {3, 4});
  says(refusal([&] { sort(in, false, 2); }, Code::invalid_argument),
       {"sort", "variants_test.cpp", "[3, 4] has no axis 2"});
  says(refusal([&] { top_k(in, 4, true, 0); }, Code::invalid_argument),
       {"TopK", "variants_test.cpp", "k is 4, but a row has 3 elements"});
}

BOOST_AUTO_TEST_CASE(corners_and_cubic_resizing) {
  Draws draws(202);
  const Sample x = draws.values({1, 4, 3, 2});
  const auto cubic = [](double d) {
    d = std::abs(d);
    const double a = -0.75;
    return d <= 1  ? (a + 2) * d * d * d - (a + 3) * d * d + 1
           : d < 2 ? a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a
                   : 0;
  };
  const auto linear = [](double d) { return std::max(0.0, 1 - std::abs(d)); };
  for (const bool corners : {false, true})
    for (const auto& [h, w] :
         {std::pair<std::int64_t, std::int64_t>{8, 6}, {2, 5}, {4, 3}, {7, 1}}) {
      const auto place = [&](double o, double in, double out) {
        return !corners ? (o + 0.5) * in / out - 0.5 : out == 1 ? 0 : o * (in - 1) / (out - 1);
      };
      const auto wanted = [&](const Callable<double(double)>& weight) {
        return tabulate({1, h, w, 2}, [&](const Index& i) {
          const double r = place(double(i[1]), 4, double(h)), c = place(double(i[2]), 3, double(w));
          double sum = 0;  // includes elements beyond the border, which repeat the border
          for (std::int64_t a = -3; a < 8; ++a)
            for (std::int64_t b = -3; b < 7; ++b)
              sum += weight(r - double(a)) * weight(c - double(b)) *
                     x.array[{0, std::clamp<std::int64_t>(a, 0, 3),
                              std::clamp<std::int64_t>(b, 0, 2), i[3]}];
          return sum;
        });
      };
      const Function by_line =
                         [=](const Exprs&e) {
                           return resize_linear(e[0], {h, w}, corners);
                         },
                     by_cube = [=](const Exprs&e) {
                       return resize_cubic(e[0], {h, w}, corners);
                     };
      // An axis that has its extent already stays unchanged, if both agree.
      same(computed({x}, by_line), wanted(linear));
      same(computed({x}, by_cube), wanted(cubic));
      same(of_unknown_extents({x}, by_cube), wanted(cubic));
    }
  // PyTorch's numbers.
  const Sample row{{Shape{1, 4, 1}, {1, 2, 4, 8}}};
  same(computed(
           {row}, [](const Exprs& e) { return resize_cubic(e[0], {6}); }, 0),
       {Shape{1, 6, 1},
        {0.9131944444444449, 1.3125, 2.3043981481481506, 3.383101851851853, 6.1875,
         8.347222222222225}});
  same(computed(
           {row}, [](const Exprs& e) { return resize_cubic(e[0], {6}, true); }, 0),
       {Shape{1, 6, 1}, {1, 1.396, 2.352, 3.288, 5.768, 8}});
  Graph g;
  Expr in = g.input("x", DType::bf16, {1, 4, 1}), whole = g.input("n", DType::i32, {1, 4, 1});
  BOOST_TEST((resize_cubic(in, {6}).dtype() == DType::bf16 &&
              resize_cubic(in, {6}).shape() == Shape{1, 6, 1}));
  says(refusal([&] { resize_cubic(whole, {6}); }, Code::invalid_argument),
       {"resize_cubic", "variants_test.cpp", "needs a floating dtype"});
  says(refusal(
           [&] {
             resize_cubic(in, {6, 6});
           },
           Code::invalid_argument),
       {"resize_cubic", "2 extents for 1 spatial axes"});
}

BOOST_AUTO_TEST_CASE(windows_that_are_rounded_up_or_reach_over_padding) {
  Draws draws(203);
  Sample x = draws.values({2, 7, 6, 2});
  const std::int64_t least = -1000;
  // Over the space with what is outside of it: nothing for the largest and the mean.
  const auto pooled = [&](const Index& out, const Index& size, const Index& stride,
                          const Index& before, const Index& dilation, bool is_mean) {
    return tabulate({2, out[0], out[1], 2}, [&](const Index& i) {
      double best = static_cast<double>(least), sum = 0, n = 0;
      for (std::int64_t a = 0; a < size[0]; ++a)
        for (std::int64_t b = 0; b < size[1]; ++b) {
          const std::int64_t r = i[1] * stride[0] - before[0] + a * dilation[0],
                             c = i[2] * stride[1] - before[1] + b * dilation[1];
          if (r < 0 || r >= 7 || c < 0 || c >= 6) continue;
          best = std::max(best, x.array[{i[0], r, c, i[3]}]), sum += x.array[{i[0], r, c, i[3]}],
          ++n;
        }
      return is_mean ? sum / n : best;
    });
  };
  // 7 in windows of 2 by steps of 2: 4, not 3. 6 with 1 on both sides in windows of 3 by steps of
  // 4: the third would begin behind the elements.
  const WindowOptions up{.strides = {2, 4}, .padding = Padding::ceil({0, 1})};
  same(computed({x},
                [=](const Exprs& e) {
                  return max_pool(e[0], {2, 3}, up);
                }),
       pooled({4, 2}, {2, 3}, {2, 4}, {0, 1}, {1, 1}, false));
  same(computed({x},
                [=](const Exprs& e) {
                  return avg_pool(e[0], {2, 3}, up);
                }),
       pooled({4, 2}, {2, 3}, {2, 4}, {0, 1}, {1, 1}, true));
  same(of_unknown_extents({x},
                          [=](const Exprs& e) {
                            return max_pool(e[0], {2, 3}, up);
                          }),
       pooled({4, 2}, {2, 3}, {2, 4}, {0, 1}, {1, 1}, false));
  // A window longer than what there is, one of whose elements lies inside.
  const WindowOptions far{.strides = {1, 1}, .padding = Padding::of({2, 2}), .dilation = {2, 3}};
  same(computed({x},
                [=](const Exprs& e) {
                  return max_pool(e[0], {3, 2}, far);
                }),
       pooled({7, 7}, {3, 2}, {1, 1}, {2, 2}, {2, 3}, false));
  same(computed({x},
                [=](const Exprs& e) {
                  return avg_pool(e[0], {3, 2}, far);
                }),
       pooled({7, 7}, {3, 2}, {1, 1}, {2, 2}, {2, 3}, true));
  // To a convolution what is behind counts as zeros.
  const Sample w = draws.values({2, 3, 2, 3});
  same(computed({x, w}, [=](const Exprs& e) { return conv(e[0], e[1], up); }),
       computed(
           {x, w},
           [=](const Exprs& e) {
             return conv(e[0], e[1], {.strides = {2, 4}, .padding = Padding::of({0, 1}, {1, 1})});
           },
           0));

  Graph g;
  Expr in = g.input("x", DType::f32, {1, 7, 6, 2}), short_one = g.input("s", DType::f32, {1, 3, 1});
  says(refusal(
           [&] {
             max_pool(in, {2, 2}, {.padding = Padding::of({3, 0}), .dilation = {2, 1}});
           },
           Code::invalid_argument),
       {"MaxPool", "variants_test.cpp", "padding 3 of spatial axis 0 could fill a window of 2"});
  says(refusal(
           [&] {
             max_pool(short_one, {2},
                      {.strides = {1}, .padding = Padding::of({1}), .dilation = {4}});
           },
           Code::invalid_argument),
       {"MaxPool", "variants_test.cpp", "the window at 0 of an axis of 3 holds padding alone"});
  says(refusal([&] { avg_pool(short_one, {std::int64_t{1} << 40}); }, Code::invalid_argument),
       {"AvgPool", "at most 2^30"});
  says(refusal(
           [&] {
             conv_transpose(in, g.input("w", DType::f32, {2, 2, 3, 2}),
                            {.padding = Padding::ceil()});
           },
           Code::invalid_argument),
       {"ConvTranspose", "variants_test.cpp", "has no transpose"});
}

BOOST_AUTO_TEST_CASE(transposed_convolutions_with_more_behind) {
  Draws draws(204);
  const Sample x = draws.values({1, 3, 2, 2}), w = draws.values({3, 2, 1, 2});
  const auto spread = [&](const Index& out, const Index& stride, const Index& before) {
    Array y = Array::filled({1, out[0], out[1], 1}, 0);
    for_each_index(x.array.shape, [&](const Index& i) {
      for (std::int64_t a = 0; a < 3; ++a)
        for (std::int64_t b = 0; b < 2; ++b) {
          const std::int64_t r = i[1] * stride[0] - before[0] + a,
                             c = i[2] * stride[1] - before[1] + b;
          if (r >= 0 && r < out[0] && c >= 0 && c < out[1])
            y[{0, r, c, 0}] += x.array[i] * w.array[{a, b, 0, i[3]}];
        }
    });
    return y;
  };
  // (3 - 1) 2 + 3 = 7 and (2 - 1) 3 + 2 = 5, less the padding, and more.
  same(computed({x, w},
                [](const Exprs& e) {
                  return conv_transpose(e[0], e[1], {.strides = {2, 3}}, 1, {1, 2});
                }),
       spread({8, 7}, {2, 3}, {0, 0}));
  same(computed({x, w},
                [](const Exprs& e) {
                  return conv_transpose(
                      e[0], e[1], {.strides = {2, 3}, .padding = Padding::of({1, 1})}, 1, {1, 2});
                }),
       spread({6, 5}, {2, 3}, {1, 1}));
  same(computed({x, w},
                [](const Exprs& e) {
                  return conv_transpose(e[0], e[1], {.strides = {2, 3}}, 1, {0, 0});
                }),
       spread({7, 5}, {2, 3}, {0, 0}));
  Graph g;
  Expr in = g.input("x", DType::f32, {1, 3, 2, 2}), filter = g.input("w", DType::f32, {3, 2, 1, 2});
  says(refusal(
           [&] {
             conv_transpose(in, filter, {.strides = {2, 3}}, 1, {2, 0});
           },
           Code::invalid_argument),
       {"conv_transpose", "variants_test.cpp", "must be in [0, 1]", "not 2"});
  says(refusal(
           [&] {
             conv_transpose(in, filter, {.strides = {2, 3}}, 1, {1});
           },
           Code::invalid_argument),
       {"more has 1 numbers for 2 spatial axes"});
  says(refusal(
           [&] {
             conv_transpose(in, filter, {.strides = {2, 3}, .padding = Padding::same()}, 1, {1, 0});
           },
           Code::invalid_argument),
       {"padding 'same'"});
}

BOOST_AUTO_TEST_CASE(variances_of_samples_and_complex_norms) {
  Draws draws(205);
  const Sample x = draws.values({3, 4}), y = draws.values({3, 4});
  const auto of_row = [&](std::int64_t row, double correction) {
    double m = 0, s = 0;
    for (std::int64_t k = 0; k < 4; ++k) m += x.array[{row, k}] / 4;
    for (std::int64_t k = 0; k < 4; ++k) s += (x.array[{row, k}] - m) * (x.array[{row, k}] - m);
    return s / (4 - correction);
  };
  for (const double correction : {0.0, 1.0, 1.5}) {
    const Function f = [=](const Exprs& e) { return variance(e[0], {1}, false, correction); };
    const Array wanted = tabulate({3}, [&](const Index& i) { return of_row(i[0], correction); });
    same(computed({x}, f), wanted);
    same(of_unknown_extents({x}, f), wanted);
    same(computed({x},
                  [=](const Exprs& e) { return standard_deviation(e[0], {1}, false, correction); }),
         of_each(wanted, [](double v) { return std::sqrt(v); }));
  }
  BOOST_TEST(std::isnan(
      computed(
          {{Array{Shape{1}, {3}}}}, [](const Exprs& e) { return variance(e[0], {}, false, 1); }, 0)
          .v[0]));
  for (const double p : {1.0, 2.0, 3.0, double(INFINITY)})
    same(computed(
             {x, y}, [=](const Exprs& e) { return norm(complex(e[0], e[1]), {1}, p); },
             p == 2 ? 2 : 1),
         tabulate({3}, [&](const Index& i) {
           double sum = 0;
           for (std::int64_t k = 0; k < 4; ++k) {
             const double size = std::hypot(x.array[{i[0], k}], y.array[{i[0], k}]);
             sum = std::isinf(p) ? std::max(sum, size) : sum + std::pow(size, p);
           }
           return std::isinf(p) ? sum : std::pow(sum, 1 / p);
         }));
  Eager e;
  BOOST_TEST(norm(e.constant(Tensor::of<std::complex<float>>({{3, 4}}))).value().at(0) == 5);
}

BOOST_AUTO_TEST_CASE(complex_numbers_taken_averaged_and_dropped) {
  Draws draws(211);
  const Sample x = draws.values({3, 4}), y = draws.values({3, 4});
  const auto parts = [](const Expr& z) { return square(real(z)) + imaginary(z); };
  same(computed({x, y}, [=](const Exprs& e) { return parts(flip(complex(e[0], e[1]), {1})); }),
       tabulate({3, 4}, [&](const Index& i) {
         const Index from{i[0], 3 - i[1]};
         return x.array[from] * x.array[from] + y.array[from];
       }));
  // With as many axes as tensors have, and of a rank that only a run knows.
  using Complex = std::complex<double>;
  for (const bool is_known : {true, false}) {
    Graph g;
    const Shape two{1, 1, 1, 1, 1, 1, 1, 2}, three{1, 1, 1, 1, 1, 1, 1, 3};
    Expr deep = g.input("deep", DType::c128, is_known ? two : Shape::unknown()),
         taken = take_along(deep, g.constant(Tensor::of<std::int64_t>({1, 1, 0}, three)));
    const Tensor slope = evaluate_eagerly(g, {{deep, Tensor::of<Complex>({{3, 4}, {5, -2}}, two)}},
                                          {gradients(sum(parts(taken)), {deep})[0]})[0];
    BOOST_TEST((slope.shape() == two &&
                slope.to_vector<Complex>() == std::vector<Complex>{{6, 1}, {20, 2}}));
  }
  const Sample ids{{Shape{3}, {1, 1, 0}}, Role::index};
  same(computed({x, y, ids},
                [=](const Exprs& e) { return parts(segment_mean(complex(e[0], e[1]), e[2], 3)); }),
       tabulate({3, 4}, [&](const Index& i) {
         const auto mean_of = [&](const Array& of) {
           return i[0] == 0 ? of[{2, i[1]}] : i[0] == 1 ? (of[{0, i[1]}] + of[{1, i[1]}]) / 2 : 0;
         };
         return mean_of(x.array) * mean_of(x.array) + mean_of(y.array);
       }));
  Eager e;
  const Expr ones = e.ones(DType::c64, {1000}), dropped = dropout(ones, 0.5);
  for (std::int64_t i = 0; i < 1000; ++i)
    BOOST_TEST((real(dropped).value().at(i) == 0 || real(dropped).value().at(i) == 2));
}

BOOST_AUTO_TEST_CASE(logarithms_and_their_kin) {
  Draws draws(206);
  const Sample x = draws.values({2, 5}, 0.1, 0.9), y = draws.values({5}, 0.1, 3),
               any = draws.values({2, 5});
  same(computed({x}, [](const Exprs& e) { return log2(e[0]); }),
       of_each(x.array, [](double v) { return std::log2(v); }));
  same(computed({x}, [](const Exprs& e) { return log10(e[0]); }),
       of_each(x.array, [](double v) { return std::log10(v); }));
  same(computed({any}, [](const Exprs& e) { return exp2(e[0]); }),
       of_each(any.array, [](double v) { return std::exp2(v); }));
  same(computed({x}, [](const Exprs& e) { return logit(e[0]); }),
       of_each(x.array, [](double v) { return std::log(v / (1 - v)); }));
  const auto both = [&](const Callable<double(double, double)>& f) {
    return tabulate({2, 5}, [&](const Index& i) { return f(any.array[i], y.array[{i[1]}]); });
  };
  same(computed({any, y}, [](const Exprs& e) { return log_add_exp(e[0], e[1]); }),
       both([](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }));
  same(computed({any, y}, [](const Exprs& e) { return x_log_y(e[0], e[1]); }),
       both([](double a, double b) { return a * std::log(b); }));
  same(computed({any, y}, [](const Exprs& e) { return hypot(e[0], e[1]); }),
       both([](double a, double b) { return std::hypot(a, b); }));
  // Alike, in second derivatives too.
  same(computed({y, y}, [](const Exprs& e) { return log_add_exp(e[0], e[1]); }),
       of_each(y.array, [](double v) { return v + std::log(2); }));
  const double inf = INFINITY;
  Eager e;
  const auto at = [&](auto f, double a, double b) {
    return f(e.constant(a), e.constant(b)).value().at(0);
  };
  const auto added = [](const Expr& a, const Expr& b) { return log_add_exp(a, b); };
  BOOST_TEST((at(added, -inf, -inf) == -inf && at(added, inf, inf) == inf &&
              at(added, -inf, 2) == 2 && at(added, inf, -inf) == inf &&
              at(added, 800, 800) == 800 + std::log(2)));
  const auto times = [](const Expr& a, const Expr& b) { return x_log_y(a, b); };
  BOOST_TEST((at(times, 0, 0) == 0 && at(times, 0, -1) == 0 && std::isnan(at(times, 0, NAN)) &&
              at(times, 2, 0) == -inf));
  const auto far = [](const Expr& a, const Expr& b) { return hypot(a, b); };
  BOOST_TEST((std::abs(at(far, 3e200, 4e200) / 5e200 - 1) < 1e-15 && at(far, 0, 0) == 0 &&
              at(far, inf, NAN) == inf && std::isnan(at(far, 1, NAN))));
  BOOST_TEST((at(times, 0, inf) == 0 && at(times, -0.0, inf) == 0 && at(far, -inf, 1) == inf &&
              !std::signbit(at(far, -0.0, -0.0))));
  BOOST_TEST(exp2(e.constant(Tensor::of<float>({100}))).value().at(0) == 0x1p100);
  Graph g;
  says(refusal([&] { log2(g.input("n", DType::i32, {2})); }, Code::invalid_argument),
       {"log2", "variants_test.cpp", "needs a floating dtype, not i32"});
}

BOOST_AUTO_TEST_CASE(logarithms_of_powers_are_whole) {
  Eager e;
  const auto check = [&]<class T>(T, int least, int most, int most_of_ten) {
    std::vector<T> twos, tens, wanted_of_two, wanted_of_ten;
    for (int k = least; k <= most; ++k)
      twos.push_back(std::ldexp(T(1), k)), wanted_of_two.push_back(T(k));
    for (int k = -30; k <= most_of_ten; ++k)
      tens.push_back(static_cast<T>(std::pow(10.0, k))), wanted_of_ten.push_back(T(k));
    const Expr of_two = log2(e.constant(Tensor::of(twos, Shape{std::ssize(twos)}))),
               of_ten = log10(e.constant(Tensor::of(tens, Shape{std::ssize(tens)})));
    BOOST_TEST((of_two.value().template to_vector<T>() == wanted_of_two));
    BOOST_TEST((of_ten.value().template to_vector<T>() == wanted_of_ten));
  };
  check(float{}, -126, 127, 38), check(double{}, -1022, 1023, 308);
  const auto at = [&](double v) { return log2(e.constant(v)).value().at(0); };
  BOOST_TEST((at(0) == -INFINITY && at(INFINITY) == INFINITY && std::isnan(at(-1)) &&
              std::isnan(at(NAN)) && at(1 + 0x1p-50) > 0 && at(2 + 0x1p-40) > 1));
}

// Points where an absolute value, or a choice, could lose a derivative of either order.
BOOST_AUTO_TEST_CASE(derivatives_at_zero) {
  const Tensor x = Tensor::of<double>({0, 0, 2, -1}, {4}),
               y = Tensor::of<double>({2, 0.5, 3, 1}, {4}),
               near = Tensor::of<double>({2, 0.5, 2.5, 0}, {4});
  const auto ok = [](const std::vector<Tensor>& at, const Function& f) {
    const CheckReport r = check_gradients([&](Graph&, const Exprs& e) { return f(e); }, at,
                                          {.tolerance = 2e-6, .order = 2});
    BOOST_TEST(r.ok(), r.text);
  };
  ok({x, y}, [](const Exprs& e) { return x_log_y(e[0], e[1]); });
  ok({x, y}, [](const Exprs& e) { return hypot(e[0], e[1]); });
  ok({y, x}, [](const Exprs& e) { return hypot(e[0], e[1]); });
  ok({x, y}, [](const Exprs& e) { return abs(complex(e[0], e[1])); });
  ok({y, near}, [](const Exprs& e) { return huber_loss(e[0], e[1], 0.8); });
  ok({y, near}, [](const Exprs& e) { return smooth_l1_loss(e[0], e[1], 0.8); });
  // The gradient is zero where there is no logarithm.
  Graph g;
  Expr a = g.input("a", DType::f64, {3}), b = g.input("b", DType::f64, {3});
  const Exprs slopes = gradients(sum(x_log_y(a, b)), {a, b});
  for (const Tensor& slope : evaluate_eagerly(
           g, {{a, Tensor::zeros(DType::f64, {3})}, {b, Tensor::of<double>({0, -1, INFINITY})}},
           {slopes[0], slopes[1]}))
    BOOST_TEST((slope.to_vector<double>() == std::vector<double>{0, 0, 0}));
}

BOOST_AUTO_TEST_CASE(small_differences_of_any_size) {
  Eager e;
  const Expr x = e.constant(Tensor::of<float>({0, 3e38f, -2})),
             zero = e.constant(Tensor::of<float>({0, 0, 0}));
  BOOST_TEST((smooth_l1_loss(x, zero, 10).value().to_vector<float>() ==
              std::vector<float>{0, 3e38f, 0.2f}));
  BOOST_TEST((smooth_l1_loss(x, zero, 1e-300).value().to_vector<float>() ==
              std::vector<float>{0, 3e38f, 2}));
}
BOOST_AUTO_TEST_CASE(erfc_is_accurate_in_its_tail) {
  Draws draws(207);
  const Sample x = draws.values({40}, -4, 5);
  computed({x}, [](const Exprs& e) { return erfc(e[0]); });
  Eager e;
  double worst = 0;
  for (double v = -6; v < 26; v += 1.0 / 64) {
    const double got = erfc(e.constant(v)).value().at(0), wanted = std::erfc(v);
    worst = std::max(worst, std::abs(got - wanted) / wanted);
  }
  BOOST_TEST(worst < 1e-13, "erfc is off by " << worst);
  const auto at = [&](double v) { return erfc(e.constant(v)).value().at(0); };
  BOOST_TEST((at(INFINITY) == 0 && at(-INFINITY) == 2 && at(0) == 1 && at(100) == 0 &&
              at(-100) == 2 && std::isnan(at(NAN))));
}

BOOST_AUTO_TEST_CASE(activations_made_of_others) {
  Draws draws(208);
  const Sample x = draws.values({3, 4}), slope = draws.values({4}, 0.1, 0.5);
  same(computed({x}, [](const Exprs& e) { return gelu_tanh(e[0]); }),
       of_each(x.array, [](double v) {
         return v / 2 *
                (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
       }));
  same(computed({x}, [](const Exprs& e) { return celu(e[0], 0.7); }),
       of_each(x.array, [](double v) { return v > 0 ? v : 0.7 * std::expm1(v / 0.7); }));
  same(computed({x}, [](const Exprs& e) { return soft_shrink(e[0], 0.4); }),
       of_each(x.array, [](double v) { return v > 0.4    ? v - 0.4
                                              : v < -0.4 ? v + 0.4
                                                         : 0; }));
  same(computed({x}, [](const Exprs& e) { return hard_shrink(e[0], 0.4); }),
       of_each(x.array, [](double v) { return std::abs(v) > 0.4 ? v : 0; }));
  same(computed({x, slope}, [](const Exprs& e) { return prelu(e[0], e[1]); }),
       tabulate({3, 4}, [&](const Index& i) {
         return x.array[i] > 0 ? x.array[i] : slope.array[{i[1]}] * x.array[i];
       }));
  const auto gate = [](double v) { return 1 / (1 + std::exp(-v)); };
  same(computed({x}, [](const Exprs& e) { return glu(e[0]); }),
       tabulate({3, 2}, [&](const Index& i) {
         return x.array[i] * gate(x.array[{i[0], i[1] + 2}]);
       }));
  Graph g;
  Expr in = g.input("x", DType::f16, {3, 4});
  BOOST_TEST((glu(in).dtype() == DType::f16 && glu(in).shape() == Shape{3, 2}));
  says(refusal([&] { glu(in, 0); }, Code::invalid_argument),
       {"glu", "variants_test.cpp", "3 elements along axis 0 have no half"});
  says(refusal([&] { prelu(in, g.input("s", DType::f16, {3})); }, Code::invalid_argument),
       {"prelu", "variants_test.cpp", "the number of channels is 4 in one place and 3 in"});
  says(refusal([&] { celu(in, 0); }, Code::invalid_argument),
       {"celu", "alpha must be finite and above 0, not 0"});
  says(refusal([&] { soft_shrink(in, -1); }, Code::invalid_argument),
       {"soft_shrink", "at least 0, not -1"});
}

BOOST_AUTO_TEST_CASE(losses_of_soft_targets_and_small_differences) {
  Draws draws(209);
  const Sample x = draws.values({2, 3, 4}), t = draws.values({2, 3, 4}, 0.1, 1);
  same(computed({x, t}, [](const Exprs& e) { return soft_cross_entropy(e[0], e[1]); }),
       tabulate({2, 3}, [&](const Index& i) {
         double sum = 0, loss = 0;
         for (std::int64_t c = 0; c < 4; ++c) sum += std::exp(x.array[{i[0], i[1], c}]);
         for (std::int64_t c = 0; c < 4; ++c)
           loss -= t.array[{i[0], i[1], c}] * (x.array[{i[0], i[1], c}] - std::log(sum));
         return loss;
       }));
  for (const double beta : {0.8, 2.0, 0.0})
    same(computed(
             {x, t}, [=](const Exprs& e) { return smooth_l1_loss(e[0], e[1], beta); }, 1),
         tabulate(x.array.shape, [&](const Index& i) {
           const double d = std::abs(x.array[i] - t.array[i]);
           return d < beta ? d * d / (2 * beta) : d - beta / 2;
         }));
  // A class that cannot be and is not asked for.
  Graph g;
  Expr in = g.input("x", DType::f64, {3}),
       loss = soft_cross_entropy(in, g.constant(Tensor::of<double>({0.5, 0.5, 0})));
  const std::vector<Tensor> got = evaluate_eagerly(g, {{in, Tensor::of<double>({1, 1, -INFINITY})}},
                                                   {loss, gradients(loss, {in})[0]});
  BOOST_TEST(std::abs(got[0].at(0) - std::log(2)) < 1e-15);
  for (std::int64_t i = 0; i < 3; ++i) BOOST_TEST(std::abs(got[1].at(i)) < 1e-15);
  says(refusal([&] { soft_cross_entropy(in, g.input("t", DType::f32, {3})); },
               Code::invalid_argument),
       {"soft_cross_entropy", "variants_test.cpp", "one floating dtype, not f64 and f32"});
  says(refusal([&] { smooth_l1_loss(in, in, -1); }, Code::invalid_argument),
       {"smooth_l1_loss", "beta must be finite and at least 0"});
}

BOOST_AUTO_TEST_CASE(truncated_normal_draws) {
  for (const auto& [low, high] :
       {std::pair<double, double>{-2, 2}, {0.5, 1}, {3, INFINITY}, {-INFINITY, -1}}) {
    Graph g;
    Expr x = g.input("x", DType::f32, {kAny}), z = random_truncated_normal_like(x, low, high);
    const std::vector<Tensor> got = evaluate_eagerly(g, {{x, Tensor::zeros(DType::f32, {50000})}},
                                                     {mean(z), reduce_min(z), reduce_max(z), z});
    // The mean is that of the densities at both ends over the probability between.
    const auto density = [](double v) {
      return std::exp(-v * v / 2) / std::sqrt(2 * std::numbers::pi);
    };
    const auto above = [](double v) { return std::erfc(v / std::numbers::sqrt2) / 2; };
    const double wanted = (density(low) - density(high)) / (above(low) - above(high));
    BOOST_TEST(std::abs(got[0].at(0) - wanted) < 0.03,
               "[" << low << ", " << high << "]: " << got[0].at(0) << ", not " << wanted);
    BOOST_TEST((got[1].at(0) >= low && got[2].at(0) <= high && std::isfinite(got[1].at(0)) &&
                std::isfinite(got[2].at(0))));
    BOOST_TEST((got[3].shape() == Shape{50000} && got[3].dtype() == DType::f32));
  }
  Graph g;
  Expr x = g.input("x", DType::f32, {2});
  says(refusal([&] { random_truncated_normal_like(x, 1, 1); }, Code::invalid_argument),
       {"random_truncated_normal_like", "variants_test.cpp", "[1, 1] is no interval"});
  says(refusal([&] { random_truncated_normal_like(x, 6, 7); }, Code::invalid_argument),
       {"next to nothing is drawn"});
}

BOOST_AUTO_TEST_CASE(adaptive_maxima_of_eight_axes) {
  Draws draws(210);
  const Sample x = draws.values({1, 5, 1, 1, 2, 1, 3, 2});
  computed(
      {x},
      [](const Exprs& e) {
        return adaptive_max_pool(e[0], {3, 1, 1, 1, 1, 2});
      },
      1);
  // Equals share a window's gradient, as they do where there are fewer axes.
  Graph g;
  Expr few = g.input("few", DType::f64, {1, 5, 1}), many = reshape(few, {1, 5, 1, 1, 1, 1, 1, 1});
  const Exprs slopes{gradients(sum(adaptive_max_pool(few, {2})), {few})[0],
                     gradients(sum(adaptive_max_pool(many, {2, 1, 1, 1, 1, 1})), {few})[0]};
  const std::vector<Tensor> got =
      evaluate_eagerly(g, {{few, Tensor::of<double>({2, 2, 1, 3, 2}, {1, 5, 1})}}, slopes);
  BOOST_TEST((got[0].to_vector<double>() == std::vector<double>{0.5, 0.5, 0, 1, 0}));
  BOOST_TEST((got[1].to_vector<double>() == got[0].to_vector<double>()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
