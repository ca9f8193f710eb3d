// Loops whose small tensors are registers, against the lowered form of the same loop: operation by
// operation over special values, movements, lists, gradients and errors.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <limits>

#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/resident_forms.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(small_tensors_test)

using namespace forms;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Values that rounding, signs and infinities tell apart.
Tensor special(const Shape& shape) {
  const std::vector<float> values{
      0.1f,  -0.f, 0.f,  1.f / 3, -2.75f,     kInf, 1e-45f, 3e38f, -1e-3f, std::nanf(""), 7.f,
      -kInf, 1e7f, 0.7f, -0.3f,   16777217.f, 1.5f, -1e38f, 2.f,   0.11f,  -5.f,          0.9f};
  std::vector<float> all;
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    all.push_back(values[static_cast<std::size_t>(i) % values.size()]);
  return Tensor::of<float>(all, shape);
}
// Numbers of many sizes.
Tensor plain(const Shape& shape) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    all.push_back(static_cast<float>(std::sin(1.7 * static_cast<double>(i) + 0.3) *
                                     std::pow(10.0, static_cast<double>(i % 5) - 2)));
  return Tensor::of<float>(all, shape);
}

// `step` of a small variable and of x, in a loop of a few iterations.
std::string agree_on(const std::function<Expr(Expr v, Expr x)>& step, const Tensor& x,
                     DType dtype = DType::f32, bool has_step = true) {
  const Make make = [&](Graph& g, const Expr& given) {
    const Expr first = cast(given, dtype);
    auto [i_end, v_end, last] =
        while_loop([](Expr i, Expr, Expr) { return i < 3; },
                   [&](Expr i, Expr v, Expr) {
                     const Expr made = step(v, first);
                     return std::tuple{i + 1, v * cast(g.constant(0.5f), dtype) + first, made};
                   },
                   std::tuple{g.constant(0), first, zeros_like(step(first, first))});
    return Exprs{v_end, last};
  };
  const std::string text = run_resident(make, x, true).explanation;
  if (has_step) BOOST_TEST(has(text, "elements are registers"));
  return agree(make, x);
}

}  // namespace

BOOST_AUTO_TEST_CASE(small_pointwise_operations_are_the_kernels) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Tensor& x : {special({2, 3}), special({11}), plain({2, 2, 4})}) {
      agree_on([](Expr v, Expr) { return v + v; }, x, dtype);
      agree_on([](Expr v, Expr y) { return v - y; }, x, dtype);
      agree_on([](Expr v, Expr y) { return v * y; }, x, dtype);
      agree_on([](Expr v, Expr y) { return v / y; }, x, dtype);
      agree_on([](Expr v, Expr y) { return minimum(v, y) + maximum(v, 0.5); }, x, dtype);
      agree_on([](Expr v, Expr y) { return where(v < y, -v, abs(y)); }, x, dtype);
      agree_on([](Expr v, Expr) { return cast(v > 0.25, DType::i32); }, x, dtype);
    }
  // vectors of functions cost less than as many calls
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [a, b] : {std::pair(0.1f, -0.f),
                               {kInf, std::nanf("")},
                               {3e38f, -2.75f},
                               {-kInf, 1e-45f},
                               {0.7f, 16777217.f}}) {
      const Tensor x = Tensor::of<float>({a, b}, {2, 1});
      agree_on([](Expr v, Expr y) { return exp(v) + tanh(y) * sigmoid(v); }, x, dtype);
      agree_on([](Expr v, Expr y) { return sqrt(abs(v)) + square(y) - log(abs(v)); }, x, dtype);
      agree_on([](Expr v, Expr y) { return sin(v) * cos(y) + erf(v); }, x, dtype);
    }
  for (const DType dtype : {DType::i32, DType::i64})
    agree_on([](Expr v, Expr y) { return v * 3 - y + cast(v == y, v.dtype()); },
             Tensor::of<float>({1, -2, 3, 1e6f, 0, 7}, {3, 2}), dtype);
}

BOOST_AUTO_TEST_CASE(small_operands_are_broadcast) {
  const Tensor x = special({2, 1, 3});
  agree_on([](Expr v, Expr y) { return v + y[0] * reshape(y[1], {3}); }, x);
  agree_on([](Expr v, Expr) { return v * transpose(v, {1, 0, 2}); }, x);
  agree_on([](Expr v, Expr) { return v + v[0][0][1] * 2.0; }, x);
  agree_on([](Expr v, Expr) { return broadcast_to(v, {2, 4, 3}); }, x);
  agree_on([](Expr v, Expr) { return reshape(v, {6, 1}) * reshape(v, {1, 6}); }, x);
}

BOOST_AUTO_TEST_CASE(small_sums_are_the_kernels) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const std::int64_t n : {1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 40, 63, 64})
      for (const Tensor& x : {special({n}), plain({n})}) {
        agree_on([](Expr v, Expr y) { return sum(v * y) + v; }, x, dtype);
        agree_on([](Expr v, Expr) { return v * mean(v); }, x, dtype);
      }
    for (const Tensor& x : {special({3, 2, 5}), plain({3, 2, 5}), plain({5, 1, 9}),
                            plain({2, 16, 2}), Tensor::of<float>({-0.f, -0.f}, {1, 2, 1})})
      for (const std::vector<std::int64_t>& axes : std::vector<std::vector<std::int64_t>>{
               {0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}}) {
        const bool has_step = axes != std::vector<std::int64_t>{0, 2} && x.shape()[1] < 8;
        agree_on([&](Expr v, Expr y) { return sum(v * y, axes, true) + y; }, x, dtype, has_step);
        agree_on([&](Expr v, Expr) { return sum(v, axes); }, x, dtype, has_step);
        agree_on([&](Expr v, Expr y) { return mean(-abs(v), axes, true) * y; }, x, dtype, has_step);
      }
  }
}

BOOST_AUTO_TEST_CASE(tiny_products_are_the_kernels) {
  struct Extents {
    std::int64_t m, k, n;
  };
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Extents e : {Extents{1, 2, 2},
                            {10, 2, 2},
                            {1, 1, 1},
                            {3, 5, 4},
                            {1, 16, 1},
                            {4, 16, 4},
                            {1, 17, 1},
                            {8, 8, 8},
                            {2, 1, 30}})
      for (const bool turns_a : {false, true})
        for (const bool turns_b : {false, true})
          for (const bool is_special : {false, true}) {
            const std::int64_t all = e.m * e.k + e.k * e.n;
            if (all > 64) continue;
            agree_on(
                [&](Expr v, Expr) {
                  const Expr a = reshape(slice(v, {0}, {e.m * e.k}),
                                         turns_a ? Shape{e.k, e.m} : Shape{e.m, e.k}),
                             b = reshape(slice(v, {e.m * e.k}, {e.k * e.n}),
                                         turns_b ? Shape{e.n, e.k} : Shape{e.k, e.n});
                  return matmul(a, b, turns_a, turns_b);
                },
                is_special ? special({all}) : plain({all}), dtype, e.k <= 16);
          }
}

BOOST_AUTO_TEST_CASE(small_elements_move_without_steps) {
  const Tensor x = special({2, 3, 4});
  agree_on([](Expr v, Expr) { return transpose(v, {2, 0, 1}); }, x);
  agree_on([](Expr v, Expr) { return slice(v, {1, -2, 1}, {1, 2, -1}) * 2.0; }, x);
  agree_on([](Expr v, Expr y) { return concat({v, y * 2.0, v}, 1)[0][8]; }, x);
  agree_on([](Expr v, Expr) { return concat(split(v, {1, 2}, 1), 1); }, x);
  agree_on([](Expr v, Expr) { return squeeze(expand_dims(v, 1), 1) + 1.0; }, x);
  agree_on([](Expr v, Expr) { return reshape(v, {4, 6}) * 0.5; }, x);
  agree_on([](Expr v, Expr) { return ones_like(v) - v; }, x);
}

// A variable's next value has the elements of others, or its own at other indices.
BOOST_AUTO_TEST_CASE(small_variables_exchange_elements) {
  const Make make = [](Graph& g, const Expr& x) {
    auto [i_end, a_end, b_end, c_end] =
        while_loop([](Expr i, Expr, Expr, Expr) { return i < 7; },
                   [](Expr i, Expr a, Expr b, Expr c) {
                     const Expr turned = transpose(a, {1, 0});
                     return std::tuple{i + 1, concat({slice(turned, {1, 0}, {1, 2}), b}, 0),
                                       slice(a, {0, 0}, {1, 2}), c + a};
                   },
                   std::tuple{g.constant(0), reshape(slice(x, {0}, {4}), {2, 2}),
                              reshape(slice(x, {4}, {2}), {1, 2}),
                              zeros_like(reshape(slice(x, {0}, {4}), {2, 2}))});
    return Exprs{a_end, b_end, c_end};
  };
  BOOST_TEST(has(run_resident(make, plain({6}), true).explanation, "are registers"));
  agree(make, plain({6}));
}

BOOST_AUTO_TEST_CASE(branches_and_loops_have_small_tensors) {
  const Make make = [](Graph& g, const Expr& x) {
    auto [i_end, v_end] = while_loop(
        [](Expr i, Expr) { return i < 9; },
        [&](Expr i, Expr v) {
          const Expr chosen = switch_case<std::function<Expr()>>(
              i % 3, {[&] { return v + x; }, [&] { return v; }, [&] { return v * x - 1.0; }});
          auto [k_end, w_end] = while_loop([&](Expr k, Expr) { return k < i; },
                                           [&](Expr k, Expr w) {
                                             return std::tuple{k + 1, w * 0.5 + chosen};
                                           },
                                           std::tuple{g.constant(0), chosen});
          return std::tuple{i + 1, w_end};
        },
        std::tuple{g.constant(0), x});
    return Exprs{v_end};
  };
  BOOST_TEST(has(run_resident(make, plain({2, 2}), true).explanation, "are registers"));
  agree(make, plain({2, 2}));
}

// Kernels see tensors.
BOOST_AUTO_TEST_CASE(kernels_have_small_operands_and_results) {
  agree(
      [](Graph& g, const Expr& x) {
        auto [i_end, v_end, w_end] =
            while_loop([](Expr i, Expr, Expr) { return i < 6; },
                       [&](Expr i, Expr v, Expr w) {
                         const Expr drawn = v + random_uniform_like(v);
                         const Expr row = gather(reshape(v, {2, 2}), i % 2);
                         return std::tuple{i + 1, cumsum(drawn * 0.5, 0) * x - v,
                                           w * 0.5 + row * row - sum(drawn)};
                       },
                       std::tuple{g.constant(0), x, slice(x, {0}, {2})});
        return Exprs{v_end, w_end};
      },
      plain({4}));
}

BOOST_AUTO_TEST_CASE(small_elements_of_lists_are_the_lowered_forms) {
  for (const std::int64_t n : {1, 2, 5}) {
    const Make make = [&](Graph& g, const Expr& x) {
      auto [i_end, v_end, all] =
          while_loop([](Expr i, Expr, Expr) { return i < 70; },
                     [&](Expr i, Expr v, Expr list) {
                       return std::tuple{i + 1, v * 0.75 + x * x, list_push(list, v - x)};
                     },
                     std::tuple{g.constant(0), x, list_empty(g, {DType::f32, Shape{n}})});
      auto [k_end, rest, total] =
          while_loop([&](Expr k, Expr, Expr) { return k < 60; },
                     [&](Expr k, Expr list, Expr sum_of) {
                       auto [shorter, last] = list_pop(list);
                       return std::tuple{k + 1, shorter, sum_of * 0.5 + last * list_read(all, k)};
                     },
                     std::tuple{g.constant(std::int64_t{0}), all, zeros_like(x)});
      return Exprs{v_end, list_stack(all), list_stack(rest), total};
    };
    agree(make, plain({n}));
  }
}

BOOST_AUTO_TEST_CASE(small_gradients_are_the_lowered_forms) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto leapfrogs = [&](std::int64_t chains, bool twice) {
      return [=](Graph& g, const Expr& given) {
        const Expr x = cast(given, dtype);
        const Expr precision =
            cast(g.constant(Tensor::of<float>({50.25f, -49.75f, -49.75f, 50.25f}, {2, 2})), dtype);
        const Expr eps = sum(x) * 1e-5 + 0.02;  // stable
        auto [i_end, q_end] = while_loop(
            [](Expr i, Expr) { return i < 4; },
            [&](Expr i, Expr q) {
              auto [k_end, at_end, momentum_end] = while_loop(
                  [](Expr k, Expr, Expr) { return k < 30; },
                  [&](Expr k, Expr at, Expr momentum) {
                    const Expr half = momentum - eps * 0.5 * matmul(at, precision);
                    const Expr next = at + eps * half;
                    return std::tuple{k + 1, next, half - eps * 0.5 * matmul(next, precision)};
                  },
                  std::tuple{g.constant(0), q, q * 0.5 + 0.25});
              const Expr energy = sum(matmul(at_end, precision) * at_end, {1}) * 0.5;
              const Expr accepted =
                  reshape(exp(-energy) < sum(momentum_end * momentum_end, {1}), {chains, 1});
              return std::tuple{i + 1, where(accepted, at_end, q)};
            },
            std::tuple{g.constant(0), x});
        const Expr first = gradients({sum(q_end * q_end)}, {given})[0];
        if (!twice) return Exprs{q_end, first};
        return Exprs{q_end, first, gradients({sum(first)}, {given})[0]};
      };
    };
    agree(leapfrogs(1, true), plain({1, 2}));
    agree(leapfrogs(7, false), plain({7, 2}));
  }
}

BOOST_AUTO_TEST_CASE(errors_beside_small_tensors_name_the_iteration) {
  const std::string error = agree(
      [](Graph& g, const Expr& x) {
        return Exprs{std::get<1>(while_loop([](Expr i, Expr) { return i < 9; },
                                            [&](Expr i, Expr v) {
                                              return std::tuple{i + 1, v * 0.5 + gather(x, i) * x};
                                            },
                                            std::tuple{g.constant(0), x}, {.name = "walk"}))};
      },
      plain({4}));
  for (const char* part : {"Gather", "in iteration 4 of loop 'walk/1'", "small_tensors_test.cpp"})
    BOOST_TEST(has(error, part));
  const std::string popped = agree(
      [](Graph& g, const Expr& x) {
        const Expr two = list_push(list_push(list_empty(g, {DType::f32, Shape{3}}), x), x * 2.0);
        auto [i_end, list, v_end] = while_loop([](Expr i, Expr, Expr) { return i < 9; },
                                               [&](Expr i, Expr rest, Expr v) {
                                                 auto [shorter, last] = list_pop(rest);
                                                 return std::tuple{i + 1, shorter, v + last};
                                               },
                                               std::tuple{g.constant(0), two, x}, {.name = "pops"});
        return Exprs{v_end};
      },
      plain({3}));
  BOOST_TEST(has(popped, "in iteration 2 of loop 'pops/1'"));
}

// A loop whose tensors kernels use as well keeps them whole.
BOOST_AUTO_TEST_CASE(tensors_of_kernels_are_no_registers) {
  const Make make = [](Graph& g, const Expr& x) {
    return Exprs{std::get<1>(while_loop([](Expr i, Expr) { return i < 4; },
                                        [&](Expr i, Expr v) {
                                          return std::tuple{i + 1, cumsum(sort(v)[0], 0) + x};
                                        },
                                        std::tuple{g.constant(0), x}))};
  };
  BOOST_TEST(!has(run_resident(make, plain({64}), true).explanation, "are registers"));
  agree(make, plain({64}));
}

// Values of registers are shown as those of slots are.
BOOST_AUTO_TEST_CASE(an_endless_loop_of_small_tensors_is_cancelled) {
  EngineOptions options;
  options.workers = 1;
  Engine engine(options);
  Graph g;
  const Expr x = g.input("x", DType::f32, {2});
  const Function endless = engine.compile(
      g, {x},
      {std::get<1>(while_loop([&](Expr y, Expr) { return y > 0.0; },
                              [&](Expr y, Expr v) {
                                return std::tuple{y * 0.5 + 1.0, v * 0.5 + x};
                              },
                              std::tuple{g.constant(1.f), x}, {.name = "endless"}))});
  BOOST_TEST(has(endless.explain(), "are registers"));
  RunHandle run = endless.start({plain({2})});
  run.cancel();
  BOOST_TEST((run.wait().code() == Code::cancelled));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
