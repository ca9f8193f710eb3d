// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Gradients of nested programs against finite differences, and the dot-product test.
#include <boost/test/unit_test.hpp>

#include <troupe/autodiff/check.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/one_thread.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(against_finite_differences, TROUPE_ONE_THREAD)

namespace {

void check(const Differentiable& f, const std::vector<Tensor>& xs,
           CheckOptions options = {.order = 2}) {
  for (bool open : {false, true}) {
    options.open_shapes = open;
    CheckReport r = check_gradients(f, xs, options);
    BOOST_TEST(r.ok(), r.text << (open ? " (unknown shapes)" : ""));
    BOOST_TEST(r.compared > 0);
    r = check_dot_product(f, xs, options);
    BOOST_TEST(r.ok(), r.text << (open ? " (unknown shapes)" : ""));
  }
}
Tensor f64(std::vector<double> v) {
  auto n = static_cast<std::int64_t>(v.size());
  return Tensor::of<double>(v, {n});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loop_with_captures_used_several_times) {
  check(
      [](Graph& g, const Exprs& x) {
        auto [i_end, y_end, z_end] =
            while_loop([](Expr i, Expr, Expr) { return i < 3; },
                       [&](Expr i, Expr y, Expr z) {
                         return std::tuple{i + 1, tanh(y * x[1] + z), z * x[1] + x[1] * sum(y)};
                       },
                       std::tuple{g.constant(0), x[0], x[0] * 0.5});
        return sum(y_end * z_end) + y_end;
      },
      {f64({0.3, -0.4}), f64({0.7, 1.1})});
}

BOOST_AUTO_TEST_CASE(matrix_products) {
  check(
      [](Graph& g, const Exprs& x) {
        auto [i_end, h_end] = while_loop([](Expr i, Expr) { return i < 3; },
                                         [&](Expr i, Expr h) {
                                           return std::tuple{i + 1, tanh(matmul(h, x[1]) + x[2])};
                                         },
                                         std::tuple{g.constant(0), x[0]},
                                         {.shape_invariants = {std::nullopt, Shape{kAny, kAny}}});
        return h_end;
      },
      {Tensor::of<double>({0.1, 0.2, -0.3, 0.4}, {2, 2}),
       Tensor::of<double>({0.5, -0.6, 0.7, 0.8}, {2, 2}), f64({0.1, -0.2})});
}

BOOST_AUTO_TEST_CASE(branches_in_loops_in_branches) {
  check(
      [](Graph& g, const Exprs& x) {
        Expr big = sum(x[0]) > 0.0;
        return cond(
            big,
            [&] {
              auto [i_end, y_end] = while_loop(
                  [](Expr i, Expr) { return i < 4; },
                  [&](Expr i, Expr y) {
                    Expr next = cond(
                        mod(i, 2) == 0, [&] { return y * x[1]; },
                        [&] {
                          return cond(
                              sum(y) > 0.0, [&] { return sin(y) + x[0]; }, [&] { return y * y; });
                        });
                    return std::tuple{i + 1, next};
                  },
                  std::tuple{g.constant(0), x[0]},
                  {.shape_invariants = {std::nullopt, Shape{kAny}}});
              return y_end * 1.0;
            },
            [&] { return x[1] * 1.0; });
      },
      {f64({0.3, 0.4}), f64({0.7, 1.1})});
}

BOOST_AUTO_TEST_CASE(loops_in_loops) {
  check(
      [](Graph& g, const Exprs& x) {
        auto [i_end, y_end] = while_loop(
            [](Expr i, Expr) { return i < 3; },
            [&](Expr i, Expr y) {
              auto [j_end, z_end, w_end] =
                  while_loop([&](Expr j, Expr, Expr) { return j < i; },
                             [&](Expr j, Expr z, Expr w) {
                               return std::tuple{j + 1, z * x[1] + sin(w), w + y * z};
                             },
                             std::tuple{g.constant(0), y, x[0] * y});
              return std::tuple{i + 1, z_end + w_end * 0.5};
            },
            std::tuple{g.constant(0), x[0]}, {.shape_invariants = {std::nullopt, Shape{kAny}}});
        return y_end;
      },
      {f64({0.3, -0.4}), f64({0.7, 1.1})});
}

BOOST_AUTO_TEST_CASE(lists_of_saved_lists) {
  check(
      [](Graph&, const Exprs& x) {
        auto inner = [&](Expr h) {
          return scan([&](Expr s, Expr e) { return tanh(s * e + h); }, x[0], h);
        };
        return scan([&](Expr h, Expr e) { return h * 0.5 + sum(inner(e)) * x[1]; }, x[0], x[1]);
      },
      {f64({0.3, -0.4, 0.5}), Tensor::scalar(0.7)});
}

BOOST_AUTO_TEST_CASE(lists_as_variables) {
  check(
      [](Graph& g, const Exprs& x) {
        auto [i_end, l_end] = while_loop(
            [](Expr i, Expr) { return i < 4; },
            [&](Expr i, Expr l) {
              Expr last = cond(
                  i == 0, [&] { return x[0] * 1.0; }, [&] { return list_read(l, i - 1) * x[1]; });
              return std::tuple{i + 1, list_push(l, sin(last) + last)};
            },
            std::tuple{g.constant(0), list_empty(g, {DType::f64, Shape{2}})});
        return list_stack(l_end);
      },
      {f64({0.3, -0.4}), f64({0.7, 1.1})});
  check(
      [](Graph& g, const Exprs& x) {  // a captured list, read in no order, and popped
        Expr l = list_unstack(x[0]);
        auto [i_end, y_end] = while_loop(
            [](Expr i, Expr) { return i < 4; },
            [&](Expr i, Expr y) {
              return std::tuple{i + 1, y * list_read(l, mod(i * 2, 3)) + list_pop(l).value};
            },
            std::tuple{g.constant(0), sum(x[0]) * 0.1});
        return y_end;
      },
      {f64({0.3, -0.4, 1.2})});
}

BOOST_AUTO_TEST_CASE(growing_values) {
  check(
      [](Graph& g, const Exprs& x) {
        auto [i_end, y_end] = while_loop(
            [](Expr i, Expr) { return i < 3; },
            [&](Expr i, Expr y) {
              return std::tuple{i + 1, concat({y * sum(y), x[1] * mean(y)}, 0)};
            },
            std::tuple{g.constant(0), x[0]}, {.shape_invariants = {std::nullopt, Shape{kAny}}});
        return y_end;
      },
      {f64({0.3, -0.4}), f64({0.7, 1.1})});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
