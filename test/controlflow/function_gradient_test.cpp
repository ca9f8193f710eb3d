// Not under tsan: it builds and differentiates graphs on one thread; the executor runs elsewhere.
// Gradients of functions: a function too, of which recursion saves nested lists.
#include <boost/test/unit_test.hpp>

#include <troupe/autodiff/check.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/programs/oracle.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(function_gradients)

namespace {

using V = std::vector<double>;
using One = GraphFunction<Expr(Expr)>;
using Two = GraphFunction<Expr(Expr, Expr)>;

const ValueSpec kCount{DType::i64, Shape{}}, kReal{DType::f32, Shape{}},
    kDouble{DType::f64, Shape{}};

// x^n, n a number of the run, by repeated squaring.
Two power_in(Graph& g, const ValueSpec& real) {
  Two power(g, "power", {real, kCount}, {real});
  power.define([&](Expr x, Expr n) {
    return cond(
        n == 0, [&] { return x * 0.0 + 1.0; },
        [&] {
          Expr half = power(x * x, floor_div(n, 2));
          return cond(
              mod(n, 2) == 1, [&] { return half * x; }, [&] { return half; });
        });
  });
  return power;
}

// The gradient of a scalar loss with respect to one element, by central differences of what the
// oracle says.
double difference(const Graph& g, const Expr& loss, const Expr& x, const Tensor& at,
                  std::size_t element) {
  constexpr double kStep = 1e-5;
  auto shifted = [&](double by) {
    OracleValue v = OracleValue::of(at);
    v.array.v[element] += by;
    return Oracle().run(g, {{x, v}}, {loss})[0].array.v[0];
  };
  return (shifted(kStep) - shifted(-kStep)) / (2 * kStep);
}

}  // namespace

BOOST_AUTO_TEST_CASE(in_a_loop) {  // G33
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr v = g.constant(2.f);
        One fourth(g, "fourth", {kReal}, [](Expr x) { return x * x * x * x; });
        auto [i, r] = while_loop([](Expr n, Expr) { return n < 2; },
                                 [&](Expr n, Expr x) {
                                   return std::tuple{n + 1, fourth(x)};
                                 },
                                 std::tuple{g.constant(0), v});
        return {{}, {r, gradients(r, v)[0]}};
      },
      {V{65536}, V{524288}}, 2);
}

BOOST_AUTO_TEST_CASE(recursive_function_has_a_gradient) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f32, Shape{}), n = g.input("n", DType::i64, Shape{});
        Expr y = power_in(g, kReal)(x, n);
        return {{{x, Tensor::scalar(3.f)}, {n, Tensor::scalar(std::int64_t{5})}},
                {y, gradients(y, x)[0]}};
      },
      {V{243}, V{405}}, 3);
}

BOOST_AUTO_TEST_CASE(function_has_gradients_of_higher_order) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f64, Shape{}), n = g.input("n", DType::i64, Shape{});
        Expr y = power_in(g, kDouble)(x, n);
        Expr first = gradients(y, x)[0], second = gradients(first, x)[0],
             third = gradients(second, x)[0];
        return {{{x, Tensor::scalar(2.0)}, {n, Tensor::scalar(std::int64_t{6})}},
                {y, first, second, third}};
      },
      {V{64}, V{192}, V{480}, V{960}}, 2);
}

BOOST_AUTO_TEST_CASE(a_tree_of_calls) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        // f(x, n) = f(x, n-1) * f(x/2, n-2): of degree fibonacci(n + 1) in x.
        Expr x = g.input("x", DType::f64, Shape{});
        Two f(g, "f", {kDouble, kCount}, {kDouble});
        f.define([&](Expr v, Expr n) {
          return cond(
              n < 2, [&] { return v; }, [&] { return f(v, n - 1) * f(v * 0.5, n - 2); });
        });
        Expr y = f(x, 5);
        return {{{x, Tensor::scalar(2.0)}}, {y / y, gradients(log(y), x)[0]}};
      },
      {V{1}, V{4}});
}

BOOST_AUTO_TEST_CASE(with_respect_to_variables_and_outer_values) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr a = g.input("a", DType::f64, Shape{}), x = g.input("x", DType::f64, Shape{});
        Variable w = g.variable("w", Tensor::scalar(3.0));
        Two f(g, "f", {kDouble, kCount}, {kDouble});
        f.define([&](Expr v, Expr n) {
          return cond(
              n == 0, [&] { return v * a; }, [&] { return f(v * w.read(), n - 1) + a; });
        });
        Expr y = f(x, 2);  // x w^2 a + 2a
        std::vector<Expr> d = gradients(y, {x, Independent(a), w});
        return {{{a, Tensor::scalar(5.0)}, {x, Tensor::scalar(2.0)}}, {y, d[0], d[1], d[2]}};
      },
      {V{100}, V{45}, V{20}, V{60}});
}

BOOST_AUTO_TEST_CASE(mutual_recursion) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f64, Shape{});
        Two up(g, "up", {kDouble, kCount}, {kDouble}),
            down(g, "down", {kDouble, kCount}, {kDouble});
        up.define([&](Expr v, Expr n) {
          return cond(
              n == 0, [&] { return v; }, [&] { return down(v * v, n - 1); });
        });
        down.define([&](Expr v, Expr n) {
          return cond(
              n == 0, [&] { return v; }, [&] { return up(v * 3.0, n - 1); });
        });
        Expr y = up(x, 4);  // 3 (3 x^2)^2
        return {{{x, Tensor::scalar(2.0)}}, {y, gradients(y, x)[0]}};
      },
      {V{432}, V{864}});
}

BOOST_AUTO_TEST_CASE(several_results_of_which_some_count) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f64, Shape{});
        GraphFunction<std::tuple<Expr, Expr>(Expr, Expr)> f(g, "f", {kDouble, kCount},
                                                            {kDouble, kDouble});
        f.define([&](Expr v, Expr n) {
          return cond(
              n == 0,
              [&] {
                return std::tuple{v, v * v};
              },
              [&] {
                auto [a, b] = f(v * 2.0, n - 1);
                return std::tuple{a * v, b + v};
              });
        });
        auto [a, b] = f(x, 2);  // a = 4x * 2x * x, b = 16 x^2 + 2x + x
        Expr da = gradients(a, x)[0], db = gradients(b, x)[0], both = gradients({a, b}, x)[0],
             again = gradients(a, x)[0];
        return {{{x, Tensor::scalar(3.0)}}, {a, b, da, db, both, again}};
      },
      {V{216}, V{153}, V{216}, V{99}, V{315}, V{216}});
}

BOOST_AUTO_TEST_CASE(inside_branches_and_bodies) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f64, Shape{});
        Two power = power_in(g, kDouble);
        Expr in_branch = cond(
            x > 0.0, [&] { return power(x, 3); }, [&] { return x; });
        auto [i, s] = while_loop([](Expr n, Expr) { return n < 3; },
                                 [&](Expr n, Expr v) {
                                   return std::tuple{n + 1, v + power(x, n)};
                                 },
                                 std::tuple{g.constant(std::int64_t{0}), x * 0.0});  // 1 + x + x^2
        Expr y = in_branch + s, d = gradients(y, x)[0];
        // A gradient taken in a body, and in a function's body.
        One slope(g, "slope", {kDouble}, [&](Expr v) { return gradients(power(v, 4), v)[0]; });
        Expr four = slope(x);
        return {{{x, Tensor::scalar(2.0)}}, {y, d, four, gradients(four, x)[0]}};
      },
      {V{15}, V{17}, V{32}, V{48}});
}

BOOST_AUTO_TEST_CASE(loops_in_a_recursion_save_lists_in_lists) {
  // f(x, n): tanh three times over f(x, n-1), so that every call saves a list of its own.
  for (const Setting& s : settings()) {
    Graph g;
    Expr x = g.input("x", DType::f64, {3});
    Two f(g, "f", {{DType::f64, {3}}, kCount}, {{DType::f64, {3}}});
    f.define([&](Expr v, Expr n) {
      return cond(
          n == 0, [&] { return v; },
          [&] {
            auto [i, out] = while_loop([&](Expr k, Expr) { return k < n; },
                                       [&](Expr k, Expr u) {
                                         return std::tuple{k + 1, tanh(u * 1.5) + v * 0.1};
                                       },
                                       std::tuple{g.constant(std::int64_t{0}), f(sin(v), n - 1)});
            return out;
          });
    });
    Expr loss = sum(f(x, 4)), d = gradients(loss, x)[0];
    const Tensor at = Tensor::of<double>({0.3, -0.8, 1.1});
    Tensor got = Engine(options_of(s)).run(g, {{x, at}}, {d})[0];
    for (std::size_t k = 0; k < 3; ++k)
      BOOST_TEST(
          std::abs(got.at(static_cast<std::int64_t>(k)) - difference(g, loss, x, at, k)) < 1e-8,
          s.name);
  }
}

// A recursive network over a tree given by arrays: node i has children left[i] and right[i], or
// none (-1) and a word.
BOOST_AUTO_TEST_CASE(a_recursive_network_over_a_tree) {
  for (const Setting& s : settings()) {
    Graph g;
    Expr words = g.input("words", DType::f64, {3, 2}),
         weights = g.input("weights", DType::f64, {4, 2});
    Expr left = g.constant(Tensor::of<std::int64_t>({1, 3, -1, -1, -1})),
         right = g.constant(Tensor::of<std::int64_t>({2, 4, -1, -1, -1}));
    Expr word = g.constant(Tensor::of<std::int64_t>({-1, -1, 0, 1, 2}));
    One meaning(g, "meaning", {kCount}, {{DType::f64, {2}}});
    meaning.define([&](Expr i) {
      return cond(
          gather(left, i) < 0, [&] { return gather(words, gather(word, i)); },
          [&] {
            Expr below = concat({meaning(gather(left, i)), meaning(gather(right, i))}, 0);
            return reshape(tanh(matmul(reshape(below, {1, 4}), weights)), {2});
          });
    });
    Expr loss = sum(square(meaning(0)));
    std::vector<Expr> d = gradients(loss, {words, weights});
    const Tensor w = Tensor::of<double>({0.1, -0.4, 0.8, 0.3, -0.6, 0.5}, {3, 2}),
                 u = Tensor::of<double>({0.5, -0.3, 0.2, 0.9, -0.7, 0.4, 0.6, 0.1}, {4, 2});
    Graph plain;  // a function of both, for differences
    auto value = [&](const Tensor& a, const Tensor& b) {
      return Oracle()
          .run(g, {{words, OracleValue::of(a)}, {weights, OracleValue::of(b)}}, {loss})[0]
          .array.v[0];
    };
    std::vector<Tensor> got = Engine(options_of(s)).run(g, {{words, w}, {weights, u}}, d);
    for (int which = 0; which < 2; ++which)
      for (std::int64_t k = 0; k < got[static_cast<std::size_t>(which)].shape().elements(); ++k) {
        auto moved = [&](double by) {
          std::vector<double> a = numbers(w), b = numbers(u);
          (which == 0 ? a : b)[static_cast<std::size_t>(k)] += by;
          return value(Tensor::of<double>(a, {3, 2}), Tensor::of<double>(b, {4, 2}));
        };
        const double expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        BOOST_TEST(std::abs(got[static_cast<std::size_t>(which)].at(k) - expected) < 1e-8,
                   s.name << " input " << which << " element " << k);
      }
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_saved_where_no_gradient_is_fetched) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), y = power_in(g, kReal)(x, 9), d = gradients(y, x)[0];
  Engine engine;
  auto saves = [&](const std::vector<Expr>& fetches) {
    return engine.compile(g, {x}, fetches).explain().find("ListPush") != std::string::npos;
  };
  BOOST_TEST(saves({y, d}));
  BOOST_TEST(!saves({y}));
}

BOOST_AUTO_TEST_CASE(deep) {
  Graph g;
  Expr x = g.input("x", DType::f64, Shape{});
  Two f(g, "f", {kDouble, kCount}, {kDouble});
  f.define([&](Expr v, Expr n) {
    return cond(
        n == 0, [&] { return v; }, [&] { return f(v * 1.0001, n - 1) + v; });
  });
  Expr y = f(x, 9'000), d = gradients(y, x)[0];
  Engine engine;
  Function run = engine.compile(g, {x}, {y, d});
  for (int i = 0; i < 2; ++i) {
    std::vector<Tensor> out = run({Tensor::scalar(2.0)});
    BOOST_TEST(std::abs(out[1].item<double>() * 2.0 / out[0].item<double>() - 1.0) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(after_one_that_could_not_be_built) {
  Graph g;
  bool is_missing = true;
  Expr x = g.input("x", DType::f64, Shape{});
  Two f(g, "f", {kDouble, kCount}, {kDouble}), h(g, "h", {kDouble, kCount}, {kDouble});
  f.define([&](Expr v, Expr n) {
    return cond(
        n == 0, [&] { return v; },
        [&] {
          return with_gradient(h(v, n - 1) * 2.0, {v},
                               [&](const Expr& dy, const std::vector<Expr>&, const Expr&) {
                                 if (is_missing)
                                   throw Error(Code::unimplemented, "not written yet");
                                 return std::vector<Expr>{dy * 3.0};
                               });
        });
  });
  h.define([&](Expr v, Expr n) { return f(v, n) * v; });
  Expr y = h(x, 2);
  for (int i = 0; i < 2; ++i)
    BOOST_TEST(
        says(refused([&] { (void)gradients(y, x); }), {"the gradient of Call", "not written yet"}));
  is_missing = false;
  // y = x f(x, 2), of f a slope of 3 is said; f(x, 2) = 2 h(x, 1) = 2 x f(x, 1) = 4 x^3
  Expr d = gradients(y, x)[0];
  for (const Setting& s : settings()) {
    std::vector<Tensor> out = Engine(options_of(s)).run(g, {{x, Tensor::scalar(2.0)}}, {y, d});
    BOOST_TEST(out[0].item<double>() == 64.0, s.name);
    BOOST_TEST(out[1].item<double>() == 32.0 + 2.0 * 3.0, s.name);
  }
}

BOOST_AUTO_TEST_CASE(before_the_body_is_finished) {
  Graph g;
  One f(g, "f", {kReal}, {kReal});
  BOOST_TEST(says(refused([&] { f.define([&](Expr x) { return gradients(f(x), x)[0]; }); }),
                  {"function 'f' (function_gradient_test.cpp:", "has no body yet"}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
