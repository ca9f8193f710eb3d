// Gradients that are taken inside functions, loops and branches: of calls, with respect to what is
// outside, and where a path ends on the way.
#include <boost/test/unit_test.hpp>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/optimizer.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/test/support/programs/calls.hpp>
#include <troupe/test/support/programs/oracle.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(inner_gradient_test)

namespace {

using V = std::vector<double>;

const ValueSpec kDouble{DType::f64, Shape{}}, kRow{DType::f64, Shape{kAny}};

Expr real(Graph& g, const char* name) { return g.input(name, DType::f64, Shape{}); }

/// f(a) = a a k, with k = 2 and x = 3.
struct Square {
  explicit Square(Graph& g)
      : k(real(g, "k")), x(real(g, "x")),
        f(g, "f", {kDouble}, [this](Expr a) { return a * a * k; }) {}
  Feeds feeds() const { return {{k, Tensor::scalar(2.0)}, {x, Tensor::scalar(3.0)}}; }
  Expr k, x;
  One f;
};

struct Doubler : NodeActor {
  void receive(std::span<const Tensor> in, std::span<Tensor> out) override {
    out[0] = Tensor::scalar(in[0].item<double>() * 2);
  }
};
Expr doubled(Graph& g, const Expr& x) {
  return actor_node<Doubler>(g.current(), "doubler", {x}, {{DType::f64, Shape{}}})[0];
}

constexpr GradientOptions kZeros{.unconnected = Unconnected::zeros},
    kNone{.unconnected = Unconnected::none};

}  // namespace

// ---- functions

BOOST_AUTO_TEST_CASE(gradient_of_a_call_in_a_function) {  // D1
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Square s(g);
        One h(g, "h", {kDouble}, [&](Expr a) { return gradients(s.f(a), a)[0]; });
        Expr y = h(s.x);
        std::vector<Expr> dy = gradients(y, {s.x, s.k});
        return {s.feeds(), {y, dy[0], dy[1]}};
      },
      {V{12}, V{4}, V{6}}, 2);
}

BOOST_AUTO_TEST_CASE(oracle_runs_a_gradient_in_a_function) {
  Graph g;
  Square s(g);
  One h(g, "h", {kDouble}, [&](Expr a) { return gradients(s.f(a), a)[0]; });
  Expr y = h(s.x);
  std::vector<std::pair<Expr, OracleValue>> feeds;
  for (const auto& [e, t] : s.feeds()) feeds.emplace_back(e, OracleValue::of(t));
  BOOST_TEST(Oracle().run(g, feeds, {y})[0].array.v[0] == 12);
}

BOOST_AUTO_TEST_CASE(gradient_in_branches_and_loops_of_a_function) {  // D1
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Square s(g);
        const auto slope = [&](Expr a) { return gradients(s.f(a), a)[0]; };
        One branch(g, "branch", {kDouble}, [&](Expr a) {
          return cond(
              a > 0.0, [&] { return slope(a); }, [&] { return a; });
        });
        One loop(g, "loop", {kDouble}, [&](Expr a) {
          return std::get<1>(while_loop([](Expr n, Expr) { return n < 2; },
                                        [&](Expr n, Expr sum) {
                                          return std::tuple{n + 1, sum + slope(a)};
                                        },
                                        std::tuple{g.constant(0), g.constant(0.0)}));
        });
        One mapped(g, "mapped", {kRow}, [&](Expr row) { return sum(map(slope, row)); });
        Expr row = g.constant(Tensor::of<double>({1, 2, 3}));
        return {s.feeds(), {branch(s.x), loop(s.x), mapped(row)}};
      },
      {V{12}, V{24}, V{24}}, 2);
}

BOOST_AUTO_TEST_CASE(gradient_of_a_loop_that_calls) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Square s(g);
        One h(g, "h", {kDouble}, [&](Expr a) {
          Expr last = std::get<1>(while_loop([](Expr n, Expr) { return n < 2; },
                                             [&](Expr n, Expr v) {
                                               return std::tuple{n + 1, s.f(v)};
                                             },
                                             std::tuple{g.constant(0), a}));  // a^4 k^3
          std::vector<Expr> d = gradients(last, {Independent(a), s.k});
          return d[0] * 1000.0 + d[1];
        });
        return {s.feeds(), {h(s.x)}};
      },
      {V{864.0 * 1000 + 972}});
}

BOOST_AUTO_TEST_CASE(gradient_in_a_function_with_respect_to_an_outer_value) {  // D2
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Square s(g);
        One h(g, "h", {kDouble}, [&](Expr a) { return gradients(s.f(a), s.k)[0]; });
        return {s.feeds(), {h(s.x), gradients(h(s.x), s.x)[0]}};
      },
      {V{9}, V{6}}, 2);
}

BOOST_AUTO_TEST_CASE(gradient_with_respect_to_what_an_outer_value_is_made_of) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr u = real(g, "u"), x = real(g, "x"), k = u * u;
        Variable w = g.variable("w", Tensor::scalar(5.0));
        Expr m = w.read() * 2.0;
        One inner(g, "inner", {kDouble}, [&](Expr a) { return a * k; });
        One outer(g, "outer", {kDouble}, [&](Expr a) { return inner(a) * k + inner(a) * m; });
        // x u^4 + x u^2 2 w
        One h(g, "h", {kDouble}, [&](Expr a) {
          std::vector<Expr> d = gradients(outer(a), {Independent(u), w, a});
          return d[0] * 1e6 + d[1] * 1e3 + d[2];
        });
        return {{{u, Tensor::scalar(2.0)}, {x, Tensor::scalar(3.0)}}, {h(x)}};
      },
      {V{(96 + 120) * 1e6 + 24 * 1e3 + 56}}, 2);
}

BOOST_AUTO_TEST_CASE(gradient_of_a_recursion_in_a_function) {  // D2
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr k = real(g, "k"), x = real(g, "x"), n = g.input("n", DType::i64, Shape{});
        Two f(g, "f", {kCount, kDouble}, {kDouble});
        f.define([&](Expr i, Expr a) {
          return cond(
              i <= 0, [&] { return k; }, [&] { return a * f(i - 1, a); });
        });
        Two h(g, "h", {kCount, kDouble}, [&](Expr i, Expr a) { return gradients(f(i, a), k)[0]; });
        Two dh(g, "dh", {kCount, kDouble},
               [&](Expr i, Expr a) { return gradients(f(i, a), a)[0]; });
        return {{{k, Tensor::scalar(2.0)}, {x, Tensor::scalar(3.0)}, {n, whole(3)}},
                {h(n, x), dh(n, x)}};
      },
      {V{27}, V{54}}, 2);
}

BOOST_AUTO_TEST_CASE(gradient_in_a_recursion) {  // D2
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Square s(g);
        Two h(g, "h", {kCount, kDouble}, {kDouble});
        h.define([&](Expr i, Expr a) {
          return cond(
              i <= 0, [&] { return gradients(s.f(a), s.k)[0]; },
              [&] { return h(i - 1, a) + gradients(s.f(a), a)[0]; });
        });
        return {s.feeds(), {h(2, s.x)}};
      },
      {V{9 + 12 + 12}});
}

BOOST_AUTO_TEST_CASE(gradient_with_respect_to_an_outer_value_of_unknown_shape) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr k = g.input("k", DType::f64, Shape{kAny}), other = g.input("other", DType::f64, {}),
             x = real(g, "x");
        One f(g, "f", {kDouble}, [&](Expr a) { return sum(a * k * k) + other; });
        One h(g, "h", {kDouble}, {kRow});
        h.define([&](Expr a) {
          return cond(
              a > 0.0, [&] { return gradients(f(a), k)[0]; }, [&] { return k; });
        });
        return {{{k, Tensor::of<double>({1, 2})},
                 {other, Tensor::scalar(1.0)},
                 {x, Tensor::scalar(3.0)}},
                {h(x)}};
      },
      {V{6, 12}}, 2);
}

BOOST_AUTO_TEST_CASE(gradient_of_a_gradient_in_a_function) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr k = real(g, "k"), x = real(g, "x");
        One f(g, "f", {kDouble}, [&](Expr a) { return a * a * a * k * k; });
        One h(g, "h", {kDouble}, [&](Expr a) {
          Expr d = gradients(f(a), k)[0];  // 2 a^3 k
          return gradients(d, a)[0] * 1000.0 + gradients(d, k)[0];
        });
        One outer(g, "outer", {kDouble}, [&](Expr a) { return gradients(h(a), a)[0]; });
        return {{{k, Tensor::scalar(2.0)}, {x, Tensor::scalar(3.0)}}, {h(x), outer(x)}};
      },
      {V{108.0 * 1000 + 54}, V{72.0 * 1000 + 54}});
}

BOOST_AUTO_TEST_CASE(outer_value_of_another_function_is_unconnected) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr u = real(g, "u");
        Square s(g);
        One other(g, "other", {kDouble}, [&](Expr a) { return a * u; });
        One h(g, "h", {kDouble}, [&](Expr a) {
          Expr y = s.f(a);
          BOOST_TEST(gradients(y, u, kNone)[0].is_empty());
          BOOST_TEST(!gradients(y, s.k, kNone)[0].is_empty());
          return other(y) + gradients(y, u)[0];
        });
        Feeds feeds = s.feeds();
        feeds.emplace_back(u, Tensor::scalar(5.0));
        return {feeds, {h(s.x)}};
      },
      {V{90}});
}

BOOST_AUTO_TEST_CASE(training_step_as_a_function) {  // D1
  for (const Setting& setting : settings()) {
    Graph g;
    Square s(g);
    Variable w = g.variable("w", Tensor::scalar(1.0));
    One loss(g, "loss", {kDouble}, [&](Expr a) { return square(s.f(a) * w.read() - 17.0); });
    GraphFunction<Expr(Expr)> step(g, "step", {kDouble}, [&](Expr a) {
      return Sgd({.learning_rate = 0.5}).minimize(loss(a), {w});
    });
    Expr done = step(s.x);
    Engine engine(options_of(setting));
    engine.run(g, s.feeds(), {done});
    BOOST_TEST(engine.get(w).item<double>() == 1.0 - 0.5 * 2.0 * (18.0 - 17.0) * 18.0,
               setting.name);
  }
}

// ---- loop variables and parameters

BOOST_AUTO_TEST_CASE(loop_variable_that_comes_of_an_x_is_refused) {  // D3
  Graph g;
  Expr x = real(g, "x");
  const auto build = [&](const std::function<Expr(Expr)>& first, const GradientOptions& options) {
    return std::get<1>(while_loop([](Expr n, Expr) { return n < 2; },
                                  [&](Expr n, Expr z) {
                                    return std::tuple{n + 1, gradients(2.0 * z, x, options)[0]};
                                  },
                                  std::tuple{g.constant(0), first(x)}));
  };
  const auto twice = [](Expr v) { return v * 2.0; };
  const std::string why = refused([&] { (void)build(twice, {}); });
  BOOST_TEST(says(why, {"gradients at inner_gradient_test.cpp:", "Input '",
                        "which depends on Input 'x'", "Unconnected::zeros"}));
  (void)build(twice, kZeros);
  (void)build([&](Expr) { return g.constant(2.0); }, {});
  (void)build([&](Expr v) { return stop_gradient(v); }, {});
}

BOOST_AUTO_TEST_CASE(loop_variable_that_becomes_of_an_x_is_refused) {
  Graph g;
  Expr x = real(g, "x");
  Variable w = g.variable("w", Tensor::scalar(1.0));
  const auto build = [&](const Independent& of, Expr factor) {
    (void)while_loop([](Expr z) { return z < 100.0; },
                     [&](Expr z) {
                       (void)cond(
                           z > 1.0, [&] { return gradients(2.0 * z, {of})[0]; }, [&] { return z; });
                       return z * factor;
                     },
                     g.constant(1.5));
  };
  BOOST_TEST(says(refused([&] { build(x, x); }), {"which depends on Input 'x'"}));
  BOOST_TEST(says(refused([&] { build(w, w.read()); }), {"which depends on variable 'w'"}));
  build(x, g.constant(2.0));
  build(w, g.constant(2.0));
}

BOOST_AUTO_TEST_CASE(inner_loop_variable_that_comes_of_an_x_is_refused) {
  Graph g;
  Expr x = real(g, "x");
  const auto build = [&](Expr first) {
    (void)while_loop([](Expr v) { return v < 100.0; },
                     [&](Expr v) {
                       return while_loop([](Expr z) { return z < 10.0; },
                                         [&](Expr z) { return 1.0 + gradients(z * z, x)[0]; }, v);
                     },
                     first);
  };
  BOOST_TEST(says(refused([&] { build(x * 3.0); }), {"which depends on Input 'x'"}));
  build(g.constant(3.0));
}

BOOST_AUTO_TEST_CASE(parameter_that_comes_of_an_x_is_refused) {  // D3
  Graph g;
  Expr x = real(g, "x"), y = real(g, "y");
  One h(g, "h", {kDouble}, [&](Expr a) { return gradients(2.0 * a, x)[0]; });
  One held(g, "held", {kDouble}, [&](Expr a) { return gradients(2.0 * a, x, kZeros)[0]; });
  One between(g, "between", {kDouble}, [&](Expr a) { return h(a * a); });
  BOOST_TEST(says(refused([&] { (void)h(x * 2.0); }),
                  {"gradients at inner_gradient_test.cpp:", "which depends on Input 'x'"}));
  BOOST_TEST(says(refused([&] { (void)between(x); }), {"which depends on Input 'x'"}));
  (void)h(y);
  (void)between(y);
  (void)held(x);
}

BOOST_AUTO_TEST_CASE(call_before_the_definition_is_refused_with_it) {
  Graph g;
  Expr x = real(g, "x");
  One h(g, "h", {kDouble}, {kDouble});
  One before(g, "before", {kDouble}, [&](Expr a) { return h(a * x); });
  BOOST_TEST(says(refused([&] { h.define([&](Expr a) { return gradients(2.0 * a, x)[0]; }); }),
                  {"which depends on Input 'x'"}));
}

// ---- actors and integers

BOOST_AUTO_TEST_CASE(path_through_an_actor_is_refused) {  // D5
  Graph g;
  Expr x = real(g, "x"), y = doubled(g, x) + x;
  BOOST_TEST(says(refused([&] { (void)gradients(y, x); }),
                  {"gradients at inner_gradient_test.cpp:", "from Input 'x'", "through Actor",
                   "Unconnected::zeros", "stop_gradient"}));
  BOOST_TEST(says(refused([&] { (void)gradients(y, x, kNone); }), {"through Actor"}));
  Expr zeros = gradients(y, x, kZeros)[0],
       stopped = gradients(doubled(g, stop_gradient(x)) + x, x)[0];
  Expr own = gradients(with_gradient(doubled(g, x), {x},
                                     [](const Expr& dy, const std::vector<Expr>&, const Expr&) {
                                       return std::vector<Expr>{dy * 2.0};
                                     }),
                       x)[0];
  Engine engine;
  for (auto [e, d] : {std::pair{zeros, 1.0}, {stopped, 1.0}, {own, 2.0}})
    BOOST_TEST(engine.run(g, {{x, Tensor::scalar(3.0)}}, {e})[0].item<double>() == d);
}

BOOST_AUTO_TEST_CASE(path_through_an_actor_inside_is_refused) {
  Graph g;
  Expr x = real(g, "x");
  One f(g, "f", {kDouble}, [&](Expr a) { return doubled(g, a); });
  const std::vector<std::function<Expr()>> ys{
      [&] {
        return cond(
            x > 0.0, [&] { return doubled(g, x); }, [&] { return x; });
      },
      [&] {
        return while_loop([](Expr z) { return z < 9.0; }, [&](Expr z) { return doubled(g, z); }, x);
      },
      [&] { return f(x); },
      [&] {
        Variable v = g.variable("v", Tensor::scalar(0.0));
        return v.assign(x * 2.0) + x;
      }};
  for (const auto& y : ys)
    BOOST_TEST(says(refused([&] { (void)gradients(y() + x, x); }), {"from Input 'x'", "through "}));
}

BOOST_AUTO_TEST_CASE(path_through_a_state_is_refused) {  // D5
  Graph g;
  Expr x = real(g, "x"), p = x > 0.0;
  int names = 0;
  const auto variable = [&] {
    return g.variable("v" + std::to_string(++names), Tensor::scalar(0.0));
  };
  const auto queue = [&] { return g.fifo_queue("q" + std::to_string(++names), {kDouble}, 4); };
  Variable shared = variable();
  One reads(g, "reads", {kDouble}, [&](Expr a) { return a + shared.read(); });
  struct Case {
    std::string what;
    std::function<Expr()> y;
  };
  const std::vector<Case> cases{
      {"a read",
       [&] {
         Variable v = variable();
         v.assign(x * 2.0);
         return v.read() + x;
       }},
      {"a sum that is assigned",
       [&] {
         Variable v = variable();
         v.assign_add(x);
         return v.read() * 3.0;
       }},
      {"a read in a branch",
       [&] {
         Variable v = variable();
         v.assign(x * 2.0);
         return cond(
             p, [&] { return v.read(); }, [&] { return x; });
       }},
      {"a write in a branch",
       [&] {
         Variable v = variable();
         cond(
             p, [&] { return v.assign(x * 2.0); }, [&] { return x; });
         return v.read() + x;
       }},
      {"both in a loop's body",
       [&] {
         Variable v = variable();
         return while_loop([](Expr z) { return z < 9.0; },
                           [&](Expr z) {
                             v.assign(z * 2.0);
                             return z + v.read();
                           },
                           x);
       }},
      {"a read in a function",
       [&] {
         shared.assign(x * 2.0);
         return reads(x);
       }},
      {"a value that depends on another state",
       [&] {
         Variable v = variable(), w = variable();
         v.assign(x);
         w.assign(v.read() * 2.0);
         return w.read() + x;
       }},
      {"an element of a queue",
       [&] {
         Queue q = queue();
         q.enqueue({x * 2.0});
         return q.dequeue()[0] + x;
       }},
  };
  for (const Case& c : cases) {
    BOOST_TEST_CONTEXT(c.what) {
      Expr y = c.y();
      BOOST_TEST(says(refused([&] { (void)gradients(y, x); }), {"from Input 'x'", "through "}));
      BOOST_TEST((gradients(y, x, kZeros)[0].dtype() == DType::f64));
    }
  }
}

BOOST_AUTO_TEST_CASE(writes_that_no_gradient_misses) {
  const auto slope = [](const std::function<Expr(Graph&, Expr, Variable)>& build, bool of_v) {
    Graph g;
    Expr x = real(g, "x");
    Variable v = g.variable("v", Tensor::scalar(5.0));
    Expr y = build(g, x, v);
    Expr d = of_v ? gradients(y, v)[0] : gradients(y, x)[0];
    return Engine({.log = [](const LogRecord&) {}})
        .run(g, {{x, Tensor::scalar(3.0)}}, {d})[0]
        .item<double>();
  };
  const auto of_x = [&](const auto& build) { return slope(build, false); };
  BOOST_TEST(of_x([](Graph&, Expr x, Variable v) {
               Expr before = v.read();
               v.assign(x);
               return before * x;
             }) == 5);
  BOOST_TEST(of_x([](Graph&, Expr x, Variable v) {
               v.assign(x);
               v.assign(1.0);
               return v.read() + x;
             }) == 1);
  BOOST_TEST(of_x([](Graph&, Expr x, Variable v) {
               v.assign(stop_gradient(x));
               return v.read() + x;
             }) == 1);
  BOOST_TEST(of_x([](Graph& g, Expr x, Variable v) {
               v.assign(x);
               return g.variable("w", Tensor::scalar(2.0)) * x;
             }) == 2);
  // the gradient of a variable is the sum over its reads
  BOOST_TEST(slope(
                 [](Graph&, Expr x, Variable v) {
                   Expr before = v.read() * 2.0;
                   v.assign(before * x);
                   return before + v.read();
                 },
                 true) == 3);
  // two optimizers take turns
  Graph g;
  Variable u = g.variable("u", Tensor::scalar(1.0)), w = g.variable("w", Tensor::scalar(1.0));
  Expr first = Sgd().minimize(square(u.read() * w.read()), {w});
  Expr second = Sgd().minimize(square(u.read() + w.read()), {u});
  Engine().run(g, {}, {first, second});
}

BOOST_AUTO_TEST_CASE(path_by_integers_only_is_refused) {  // D5
  Graph g;
  Expr x = real(g, "x");
  Expr steps = cast(cast(x, DType::i32), DType::f64);
  BOOST_TEST(says(refused([&] { (void)gradients(steps * 2.0, x); }),
                  {"depends on Input 'x'", "by integers only", "Cast", "Unconnected::zeros"}));
  One f(g, "f", {kDouble}, [&](Expr a) { return cast(cast(a, DType::i64), DType::f64); });
  BOOST_TEST(says(refused([&] { (void)gradients(f(x), x); }), {"by integers only"}));
  Expr zero = gradients(steps * 2.0, x, kZeros)[0], beside = gradients(steps * x, x)[0],
       free = gradients(real(g, "y"), x)[0];
  std::vector<Tensor> out = Engine().run(g, {{x, Tensor::scalar(3.5)}}, {zero, beside, free});
  BOOST_TEST(out[0].item<double>() == 0);
  BOOST_TEST(out[1].item<double>() == 3);
  BOOST_TEST(out[2].item<double>() == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
