// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Refusals of convolutions and pooling, and the functions over them. Values and gradients:
// window_rows.hpp.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include <troupe/autodiff/check.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(window_test, TROUPE_ONE_THREAD)

namespace {

Tensor counted(const Shape& shape) {
  Tensor t = Tensor::empty(DType::f64, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    static_cast<double*>(t.raw_mutable())[i] = static_cast<double>(i * 37 % 101);
  return t;
}

template <class F>
Tensor computed(const Tensor& x, F f) {
  Graph g;
  Expr in = g.input("x", x.dtype(), x.shape());
  return evaluate_eagerly(g, {{in, x}}, {f(in)})[0];
}

void says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    BOOST_TEST(text.find(part) != std::string::npos, "'" << part << "' is not in: " << text);
}

}  // namespace

BOOST_AUTO_TEST_CASE(wrong_windows_are_refused) {
  Graph g;
  Expr x = g.input("x", DType::f32, {2, 8, 8, 3}), w = g.input("w", DType::f32, {3, 3, 3, 4});
  auto refused = [](auto f, Code code = Code::invalid_argument) { return refusal(f, code); };
  says(refused([&] {
         conv(x, g.input("a", DType::f32, {3, 3, 2, 4}));
       }),
       {"Conv", "window_test.cpp", "the filter sees 2 channels", "has 3"});
  says(refused([&] {
         conv(x, g.input("b", DType::f32, {3, 3, 4}));
       }),
       {"Conv", "differ in spatial axes"});
  says(refused([&] {
         conv(g.input("c", DType::f32, {8, 3}), w);
       }),
       {"[batch, space..., channels]"});
  says(refused([&] { conv(x, w, {.strides = {2}}); }),
       {"strides has 1 numbers for 2 spatial axes"});
  says(refused([&] { conv(x, w, {.strides = {0, 1}}); }), {"strides must be at least 1, not 0"});
  says(refused([&] { conv(x, w, {.dilation = {1, 0}}); }), {"dilation must be at least 1"});
  says(refused([&] {
         conv(x, w, {.padding = Padding::of({-1, 0})});
       }),
       {"before must be at least 0"});
  says(refused([&] {
         conv(x, w, {.padding = {"full", {}, {}}});
       }),
       {"valid, same, given or ceil, not 'full'"});
  says(refused([&] {
         conv(x, g.input("d", DType::f32, {3, 3, 1, 4}), {}, 3);
       }),
       {"4 filters do not divide into 3 groups"});
  says(refused([&] { conv(x, w, {}, 0); }), {"groups must be at least 1"});
  says(refused(
           [&] {
             conv(x, g.input("e", DType::f32, {9, 3, 3, 4}));
           },
           Code::out_of_range),
       {"a window of 9 does not fit into spatial axis 0 of 8"});
  says(refused([&] { conv(x, g.input("f", DType::f32, {3, 0, 3, 4})); }), {"has no elements"});
  says(refused([&] { conv_transpose(x, w); }),
       {"ConvTranspose", "x has 3 channels, but the filter", "gives 4"});
  says(refused([&] { max_pool(x, {2}); }), {"MaxPool", "1 numbers for 2 spatial axes"});
  says(refused([&] { max_pool(x, {2, 0}); }), {"at least 1, not 0"});
  says(refused([&] {
         max_pool(x, {2, 2}, {.padding = Padding::of({2, 0})});
       }),
       {"could fill a window of 2"});
  says(refused([&] { adaptive_avg_pool(x, {2}); }),
       {"adaptive_avg_pool", "window_test.cpp", "1 extents for 2 spatial axes"});
  says(refused([&] { adaptive_max_pool(x, {0, 2}); }), {"cannot make 0 positions of 8"});
  says(refused([&] {
         global_avg_pool(g.input("h", DType::f32, {2, 3}));
       }),
       {"global_avg_pool", "[batch, space..., channels]"});
  BOOST_TEST(
      (adaptive_avg_pool(g.input("i", DType::f32, {2, kAny, 3}), {2}).shape() == Shape{2, 2, 3}));
}

BOOST_AUTO_TEST_CASE(window_checks_open_shapes_at_run_time) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape::unknown()),
       w = g.input("w", DType::f32, Shape::unknown());
  Expr y = conv(x, w);
  auto run = [&](const Shape& a, const Shape& b) {
    evaluate_eagerly(g, {{x, Tensor::zeros(DType::f32, a)}, {w, Tensor::zeros(DType::f32, b)}},
                     {y});
  };
  says(refusal(
           [&] {
             run({1, 4, 3}, {2, 2, 5});
           },
           Code::invalid_argument),
       {"Conv", "window_test.cpp", "does not fit"});
  says(refusal(
           [&] {
             run({1, 4, 3}, {5, 3, 5});
           },
           Code::out_of_range),
       {"a window of 5 does not fit into spatial axis 0 of 4"});
}

BOOST_AUTO_TEST_CASE(windows_by_steps_reach_into_padding) {
  const Tensor x = Tensor::of<double>({1, 2, 4}, {1, 3, 1});
  // windows of elements (-1, 1), (0, 2) and (1, 3)
  const WindowOptions close{.strides = {1}, .padding = Padding::of({1}), .dilation = {2}};
  BOOST_TEST((computed(x, [=](Expr e) { return max_pool(e, {2}, close); }).to_vector<double>() ==
              std::vector<double>{2, 4, 2}));
  BOOST_TEST((computed(x, [=](Expr e) { return avg_pool(e, {2}, close); }).to_vector<double>() ==
              std::vector<double>{2, 2.5, 2}));
  BOOST_TEST(check_gradients(
                 [=](Graph&, const Exprs& e) {
                   return sin(avg_pool(max_pool(e[0], {2}, close), {2}, close));
                 },
                 {x}, {.order = 2})
                 .ok());
}

// Longer than anything there is, and as many elements as no number says.
BOOST_AUTO_TEST_CASE(windows_beyond_all_extents) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  const Tensor x = Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2, 1});
  Eager e;
  for (const Padding& padding : {Padding::same(), Padding::ceil()}) {
    BOOST_TEST(max_pool(e.constant(x), {most, most, most}, {.padding = padding}).value().at(0) ==
               8);
    BOOST_TEST(avg_pool(e.constant(x), {most, most, most}, {.padding = padding}).value().at(0) ==
               4.5);
  }
}

BOOST_AUTO_TEST_CASE(global_and_adaptive_pooling) {
  const Tensor x = counted({2, 5, 4, 3});
  const Tensor mean_of_all = computed(x, [](Expr e) { return global_avg_pool(e); }),
               largest = computed(x, [](Expr e) { return global_max_pool(e); });
  BOOST_TEST((mean_of_all.shape() == Shape{2, 3}));
  const Tensor means = computed(x,
                                [](Expr e) {
                                  return adaptive_avg_pool(e, {3, 2});
                                }),
               tops = computed(x, [](Expr e) {
                 return adaptive_max_pool(e, {3, 2});
               });
  BOOST_TEST((means.shape() == Shape{2, 3, 2, 3}));
  auto at = [&](std::int64_t n, std::int64_t i, std::int64_t j, std::int64_t c) {
    return x.at(((n * 5 + i) * 4 + j) * 3 + c);
  };
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t c = 0; c < 3; ++c) {
      double sum = 0, top = -1;
      for (std::int64_t i = 0; i < 5; ++i)
        for (std::int64_t j = 0; j < 4; ++j)
          sum += at(n, i, j, c), top = std::max(top, at(n, i, j, c));
      BOOST_TEST(std::abs(mean_of_all.at(n * 3 + c) - sum / 20) < 1e-12);
      BOOST_TEST(largest.at(n * 3 + c) == top);
      // Rows of 5 in 3: [0, 2), [1, 4), [3, 5); of 4 in 2: [0, 2), [2, 4).
      const std::int64_t from[] = {0, 1, 3}, to[] = {2, 4, 5};
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < 2; ++j) {
          double total = 0, best = -1;
          int count = 0;
          for (std::int64_t a = from[i]; a < to[i]; ++a)
            for (std::int64_t b = 2 * j; b < 2 * j + 2; ++b, ++count)
              total += at(n, a, b, c), best = std::max(best, at(n, a, b, c));
          BOOST_TEST(std::abs(means.at(((n * 3 + i) * 2 + j) * 3 + c) - total / count) < 1e-12);
          BOOST_TEST(tops.at(((n * 3 + i) * 2 + j) * 3 + c) == best);
        }
    }
  // Equal windows, where an extent does not follow from the others, and where there is no axis
  // left.
  Graph g;
  Expr open = g.input("x", DType::f32, {kAny, 4, 0});
  BOOST_TEST((evaluate_eagerly(g, {{open, Tensor::zeros(DType::f32, {2, 4, 0})}},
                               {adaptive_avg_pool(open, {2})})[0]
                  .shape() == Shape{2, 2, 0}));
  const Tensor deep = counted({1, 2, 1, 1, 1, 1, 2, 2}),
               same = computed(deep, [](Expr e) {
                 return adaptive_max_pool(e, {2, 1, 1, 1, 1, 2});
               });
  BOOST_TEST(
      (same.shape() == deep.shape() && same.to_vector<double>() == deep.to_vector<double>()));
}

BOOST_AUTO_TEST_CASE(gradients_of_what_is_made_of_others) {
  const Tensor x = counted({1, 5, 2});
  for (auto f : {+[](Graph&, const Exprs& e) { return adaptive_avg_pool(e[0], {3}); },
                 +[](Graph&, const Exprs& e) { return adaptive_max_pool(e[0], {2}); },
                 +[](Graph&, const Exprs& e) { return adaptive_avg_pool(e[0], {7}); },
                 +[](Graph&, const Exprs& e) { return adaptive_max_pool(e[0], {7}); },
                 +[](Graph&, const Exprs& e) { return adaptive_max_pool(e[0], {3}); },
                 +[](Graph&, const Exprs& e) { return adaptive_avg_pool(e[0], {5}); },
                 +[](Graph&, const Exprs& e) { return global_avg_pool(e[0]); }})
    BOOST_TEST(
        check_gradients([=](Graph& g, const Exprs& e) { return sin(f(g, e)); }, {x}, {.order = 2})
            .ok());
  // A NaN stays in its windows, in the gradient, too.
  Graph g;
  Expr in = g.input("x", DType::f32, {1, 5, 1}), y = adaptive_avg_pool(in, {3}),
       dy = g.constant(Tensor::of<float>({1, INFINITY, 1}, {1, 3, 1}));
  const Tensor dx = evaluate_eagerly(g, {{in, Tensor::zeros(DType::f32, {1, 5, 1})}},
                                     {gradients(sum(y * dy), {in})[0]})[0];
  BOOST_TEST((dx.at(0) == 0.5 && dx.at(1) == INFINITY && dx.at(2) == INFINITY &&
              dx.at(3) == INFINITY && dx.at(4) == 0.5));
  // The largest of a window share its gradient; of long windows it takes no more passes than of
  // short ones.
  const auto slope_of_tops = [](const Tensor& of, std::int32_t* nodes) {
    Graph h;
    Expr from = h.input("x", of.dtype(), of.shape()),
         slope = gradients(sum(adaptive_max_pool(from, {2})), {from})[0];
    *nodes = h.size();
    return evaluate_eagerly(h, {{from, of}}, {slope})[0];
  };
  std::int32_t few = 0, many = 0;
  BOOST_TEST(
      (slope_of_tops(Tensor::of<double>({2, 2, 1, 3, 2}, {1, 5, 1}), &few).to_vector<double>() ==
       std::vector<double>{0.5, 0.5, 0, 1, 0}));
  slope_of_tops(Tensor::zeros(DType::f64, {1, 2001, 1}), &many);
  BOOST_TEST(many == few);
  // Extents may be open, too, with windows whose largest element is the least value of all: each of
  // three positions is in two of six windows.
  Graph open;
  Expr some = open.input("x", DType::f64, {1, kAny, 1}),
       through = gradients(sum(adaptive_max_pool(some, {6})), {some})[0];
  BOOST_TEST(
      (evaluate_eagerly(open, {{some, Tensor::of<double>({2, 1, 3}, {1, 3, 1})}}, {through})[0]
           .to_vector<double>() == std::vector<double>{2, 2, 2}));
  // There too what is not a number stays in its windows.
  const Tensor tops =
      evaluate_eagerly(open, {{some, Tensor::of<double>({NAN, 1, 2, 3, 4}, {1, 5, 1})}},
                       {adaptive_max_pool(some, {2})})[0];
  BOOST_TEST((std::isnan(tops.at(0)) && tops.at(1) == 4));
  Expr whole = open.input("n", DType::i32, {1, kAny, 1});
  BOOST_TEST((evaluate_eagerly(open, {{whole, Tensor::of<std::int32_t>({-3, -5, -4}, {1, 3, 1})}},
                               {adaptive_max_pool(whole, {2})})[0]
                  .to_vector<std::int32_t>() == std::vector<std::int32_t>{-3, -4}));
}

// Rounding up adds a position or none.
BOOST_AUTO_TEST_CASE(padding_that_rounds_up_has_no_fewer_positions) {
  for (std::int64_t in = 1; in <= 7; ++in)
    for (std::int64_t size = 1; size <= 3; ++size)
      for (std::int64_t stride = 1; stride <= 4; ++stride)
        for (std::int64_t both = 0; both <= 3; ++both) {
          if (in + 2 * both < size) continue;
          Graph g;
          Expr x = g.input("x", DType::f32, {1, in, 1}), w = g.input("w", DType::f32, {size, 1, 1});
          const auto positions = [&](const Padding& p) {
            return conv(x, w, {.strides = {stride}, .padding = p}).shape()[1];
          };
          const std::int64_t down = positions(Padding::of({both})),
                             up = positions(Padding::ceil({both}));
          const bool leaves_some = (in + 2 * both - size) % stride != 0,
                     begins_inside = down * stride - both < in;
          BOOST_TEST(up == down + (leaves_some && begins_inside),
                     in << ", " << size << " by " << stride << ", " << both);
        }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
