// Recomputation in the backward pass: the same values, gradients and draws as without, in graphs,
// loops, branches, tapes and traced functions; how many values are saved.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <troupe/actors/trace/traced_function.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/autodiff/recompute.hpp>
#include <troupe/autodiff/tape.hpp>
#include <troupe/controlflow/function.hpp>
#include <troupe/controlflow/functional.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/test/support/eager_scopes.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(recompute_test)

namespace {

using Map = std::function<Expr(Expr)>;

// A function as it is, or recomputed.
Map maybe(bool recomputes, const Map& f) {
  if (!recomputes) return f;
  return [f](const Expr& x) { return recompute(f)(x); };
}

Tensor wave(const Shape& shape, double step = 0.37) {
  Tensor t = Tensor::zeros(DType::f64, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i)
    t.mutable_data<double>()[i] = std::sin(step * static_cast<double>(i + 1));
  return t;
}

// Runs a program twice, with and without recomputation, and requires equal bits, or values within
// `tolerance` if sums are made in another order.
using Build = std::function<std::vector<Expr>(Graph&, const Expr& x, const Expr& w, bool)>;
void same_values(const Build& build, double tolerance = 0) {
  std::vector<std::vector<Tensor>> got;
  for (const bool recomputes : {false, true}) {
    Graph g;
    const Expr x = g.input("x", DType::f64, {4, 4}), w = g.input("w", DType::f64, {4, 4});
    const std::vector<Expr> fetches = build(g, x, w, recomputes);
    Engine engine;
    got.push_back(engine.run(g, {{x, wave({4, 4})}, {w, wave({4, 4}, 0.21)}}, fetches));
  }
  BOOST_REQUIRE(got[0].size() == got[1].size());
  for (std::size_t i = 0; i < got[0].size(); ++i)
    for (std::int64_t k = 0; k < got[0][i].elements(); ++k) {
      const double a = got[0][i].at(k), b = got[1][i].at(k);
      BOOST_TEST(std::abs(a - b) <= tolerance * std::max(1.0, std::abs(a)),
                 "fetch " << i << " differs: " << a << " and " << b);
    }
}

Expr layer(const Expr& x, const Expr& w) { return tanh(matmul(relu(matmul(x, w)), w)); }

}  // namespace

BOOST_AUTO_TEST_CASE(gradient_of_a_recomputed_square) {  // O4
  Graph g;
  const Expr x = g.input("x", DType::f64, {2});
  const Expr y = recompute([](const Expr& v) { return square(v) + v; })(x);
  const Expr dx = gradients({y}, {x}, {g.constant(Tensor::of<double>({2, 3}))})[0];
  Engine engine;
  const std::vector<Tensor> got = engine.run(g, {{x, Tensor::of<double>({5, 10})}}, {y, dx});
  BOOST_TEST(got[0].at(0) == 30);
  BOOST_TEST(got[0].at(1) == 110);
  BOOST_TEST(got[1].at(0) == 22);
  BOOST_TEST(got[1].at(1) == 63);
}

BOOST_AUTO_TEST_CASE(captured_values_have_their_gradients) {
  same_values([](Graph&, const Expr& x, const Expr& w, bool recomputes) {
    const Expr y = maybe(recomputes, [&](const Expr& v) { return layer(v, w); })(x);
    std::vector<Expr> all = gradients(sum(y * y), {x, w});
    all.push_back(y);
    return all;
  });
}

BOOST_AUTO_TEST_CASE(variables_read_inside_have_their_gradients) {
  same_values([](Graph& g, const Expr& x, const Expr& w, bool recomputes) {
    const Variable v = g.variable("v", wave({4, 4}, 0.11));
    const Expr y = maybe(recomputes, [&](const Expr& e) { return layer(e, v.read()) * w; })(x);
    return gradients(sum(y * y), {v, x, w});
  });
}

BOOST_AUTO_TEST_CASE(functions_of_several_values_keep_their_structure) {
  same_values([](Graph&, const Expr& x, const Expr& w, bool recomputes) {
    const auto f = [](const Expr& a, const std::pair<Expr, Expr>& b) {
      return std::tuple{a * b.first, tanh(a + b.second)};
    };
    const auto [p, q] = recomputes ? recompute(f)(x, std::pair{w, x}) : f(x, std::pair{w, x});
    return gradients(sum(p) + sum(q * q), {x, w});
  });
}

BOOST_AUTO_TEST_CASE(recomputation_nests) {
  same_values(
      [](Graph&, const Expr& x, const Expr& w, bool recomputes) {
        const Map inner = maybe(recomputes, [&](const Expr& v) { return layer(v, w); });
        const Expr y =
            maybe(recomputes, [&](const Expr& v) { return inner(inner(v)) * exp(inner(v)); })(x);
        return gradients(sum(y), {x, w});
      },
      1e-12);
}

BOOST_AUTO_TEST_CASE(loops_and_branches_inside_are_computed_again) {
  same_values(
      [](Graph&, const Expr& x, const Expr& w, bool recomputes) {
        const Map f = maybe(recomputes, [&](const Expr& v) {
          const Expr end = for_loop(
              0, 3, [&](const Expr&, const Expr& u) { return layer(u, w); }, v);
          const Expr rows = scan([&](const Expr& h, const Expr& row) { return tanh(h + row * h); },
                                 end, reduce_max(v, {0}));
          return cond(
              sum(end) > 0.0, [&] { return rows * w; }, [&] { return sin(rows); });
        });
        return gradients(sum(f(x)), {x, w});
      },
      1e-12);
}

BOOST_AUTO_TEST_CASE(bodies_of_loops_recompute) {
  same_values(
      [](Graph&, const Expr& x, const Expr& w, bool recomputes) {
        const Map f = maybe(recomputes, [&](const Expr& v) { return layer(v, w); });
        const Expr y = for_loop(
            0, 4, [&](const Expr&, const Expr& v) { return v + f(v); }, x);
        const Expr states = scan([&](const Expr& h, const Expr& row) { return f(h) + row; },
                                 expand_dims(x, 1), reduce_max(expand_dims(x, 1), {0}));
        return gradients(sum(y * y) + sum(states), {x, w});
      },
      1e-12);
}

BOOST_AUTO_TEST_CASE(functions_of_a_graph_recompute) {
  same_values(
      [](Graph& g, const Expr& x, const Expr& w, bool recomputes) {
        const ValueSpec spec{DType::f64, {4, 4}};
        const GraphFunction<Expr(Expr, Expr)> f(
            g, "f", {spec, spec}, [&](const Expr& v, const Expr& u) {
              return maybe(recomputes, [&](const Expr& e) { return layer(e, u); })(v);
            });
        return gradients(sum(f(f(x, w), w)), {x, w});
      },
      1e-12);
}

BOOST_AUTO_TEST_CASE(gradients_of_gradients_go_through) {
  same_values(
      [](Graph&, const Expr& x, const Expr& w, bool recomputes) {
        const Expr y = maybe(recomputes, [&](const Expr& v) { return tanh(v) * v * w; })(x);
        const std::vector<Expr> d = gradients(sum(y * y), {x, w});
        return gradients(sum(d[0] * d[1]), {x, w});
      },
      1e-12);
}

BOOST_AUTO_TEST_CASE(effects_inside_happen_once) {
  Graph g;
  const Expr x = g.input("x", DType::f64, {});
  const Variable calls = g.variable("calls", Tensor::scalar(0.0));
  const Expr y = recompute([&](const Expr& v) {
    const Expr n = calls.assign_add(1.0);
    return exp(v) * n;
  })(x);
  const Expr dx = gradients(y, x)[0];
  Engine engine;
  for (int run = 1; run <= 3; ++run) {
    const std::vector<Tensor> got = engine.run(g, {{x, Tensor::scalar(0.0)}}, {y, dx});
    BOOST_TEST(got[0].at(0) == run);
    BOOST_TEST(got[1].at(0) == run);
  }
  BOOST_TEST(engine.get(calls).at(0) == 3);
}

// ---- draws

namespace {

// x where a draw is below a half, and zero elsewhere, through work that is done again.
Expr dropped(const Expr& x) {
  const Expr kept = random_uniform_like(x) < 0.5;
  return where(kept, exp(log(x)), zeros_like(x));
}
// As it, with draws that are numbers.
Expr scaled(const Expr& x) { return exp(log(x)) * random_normal_like(x); }
// With a draw whose product is computed again.
Expr deep(const Expr& x) { return log(exp(dropped(x))) * 1.0; }

void require_same_draws(const Tensor& y, const Tensor& dx) {
  std::int64_t nothing = 0;
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    BOOST_TEST(std::abs(y.at(i) - dx.at(i)) < 1e-12, "element " << i);
    nothing += y.at(i) == 0;
  }
  BOOST_TEST(nothing < y.elements());
}

Tensor ones(const Shape& shape) {
  Tensor t = Tensor::zeros(DType::f64, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i) t.mutable_data<double>()[i] = 1;
  return t;
}

}  // namespace

BOOST_AUTO_TEST_CASE(draws_are_the_same_both_times) {
  for (Expr (*f)(const Expr&) : {dropped, scaled, deep}) {
    Graph g;
    const Expr x = g.input("x", DType::f64, {50});
    const Expr y = recompute([&](const Expr& v) { return f(v); })(x);
    const Expr dx = gradients(sum(y), x)[0];
    Engine engine;
    for (int run = 0; run < 3; ++run) {
      const std::vector<Tensor> got = engine.run(g, {{x, ones({50})}}, {y, dx});
      require_same_draws(got[0], got[1]);
    }
  }
}

BOOST_AUTO_TEST_CASE(draws_in_iterations_are_the_same_both_times) {
  for (Expr (*f)(const Expr&) : {dropped, scaled, deep}) {
    Graph g;
    const Expr x = g.input("x", DType::f64, {6, 20});
    const Expr y = map(
        [&](const Expr& row) { return recompute([&](const Expr& v) { return f(v); })(row); }, x);
    const Expr dx = gradients(sum(y), x)[0];
    Engine engine;
    const std::vector<Tensor> got = engine.run(g, {{x, ones({6, 20})}}, {y, dx});
    require_same_draws(got[0], got[1]);
  }
}

BOOST_AUTO_TEST_CASE(draws_of_a_tape_are_the_same_both_times) {
  in_each_scope([](Eager& e) {
    for (Expr (*f)(const Expr&) : {dropped, scaled, deep}) {
      const Expr x = e.constant(ones({50}));
      GradientTape tape;
      tape.watch(x);
      const Expr y = recompute([&](const Expr& v) { return f(v); })(x);
      require_same_draws(value_of(y), value_of(tape.gradient(y, x)));
    }
  });
}

BOOST_AUTO_TEST_CASE(draws_of_a_traced_function_are_the_same_both_times) {
  for (Expr (*f)(const Expr&) : {dropped, scaled, deep}) {
    Engine engine;
    Eager e(engine);
    const auto traced = function(
        "traced", [&](const Expr& v) { return recompute([&](const Expr& u) { return f(u); })(v); });
    const Expr x = e.constant(ones({50}));
    for (int call = 0; call < 3; ++call) {
      GradientTape tape;
      tape.watch(x);
      const Expr y = traced(x);
      require_same_draws(value_of(y), value_of(tape.gradient(y, x)));
    }
  }
}

// ---- at once, and in traced functions

BOOST_AUTO_TEST_CASE(a_tape_recomputes) {
  in_each_scope([](Eager& e) {
    const Expr x = e.constant(wave({4, 4})), w = e.constant(wave({4, 4}, 0.21));
    const Variable v = e.variable("v", wave({4, 4}, 0.11));
    std::vector<std::vector<Expr>> got;
    for (const bool recomputes : {false, true}) {
      GradientTape tape;
      tape.watch(x);
      tape.watch(w);
      const Expr y = maybe(recomputes, [&](const Expr& u) { return layer(u, w) * v.read(); })(x);
      got.push_back(tape.gradient(sum(y * y), {x, w, v}));
    }
    for (std::size_t i = 0; i < got[0].size(); ++i)
      BOOST_TEST(identical(value_of(got[0][i]), value_of(got[1][i])));
  });
}

BOOST_AUTO_TEST_CASE(a_traced_step_recomputes) {
  Engine engine;
  Eager e(engine);
  const Expr x = e.constant(wave({4, 4})), w = e.constant(wave({4, 4}, 0.21));
  std::vector<Expr> got;
  for (const bool recomputes : {false, true}) {
    const auto step = function("step", [&](const Expr& u) {
      GradientTape tape;
      tape.watch(u);
      const Expr y = maybe(recomputes, [&](const Expr& t) { return layer(t, w); })(u);
      return tape.gradient(sum(y * y), u);
    });
    got.push_back(step(x));
  }
  BOOST_TEST(identical(value_of(got[0]), value_of(got[1])));
}

BOOST_AUTO_TEST_CASE(without_a_tape_the_code_runs_as_it_is) {
  Eager e;
  int calls = 0;
  const Expr y = recompute([&](const Expr& v) {
    ++calls;
    return v * 2.0;
  })(e.constant(3.0));
  BOOST_TEST(number(y) == 6);
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(recompute_refuses_arguments_without_an_expression) {
  BOOST_CHECK_EXCEPTION(recompute([](double v) { return Expr(nullptr, Tensor::scalar(v)); })(1.0),
                        Error, [](const Error& e) {
                          return says(e, Code::invalid_argument,
                                      {"recompute at recompute_test.cpp:", "no argument is"});
                        });
}

// ---- what is saved

namespace {

constexpr std::int64_t kRows = 64;

// How many values of eight blocks of four layers the backward pass reads: by a loop, the lists in
// which each iteration saves one.
std::size_t saved_values(bool recomputes, bool in_loop) {
  Graph g;
  const Expr x = g.input("x", DType::f64, {kRows, 16}), w = g.input("w", DType::f64, {16, 16});
  const Map block = maybe(recomputes, [&](const Expr& v) {
    Expr u = v;
    for (int i = 0; i < 4; ++i) u = sin(matmul(cos(u), w));
    return u;
  });
  Expr y = x;
  if (in_loop)
    y = for_loop(
        0, 8, [&](const Expr&, const Expr& v) { return block(v); }, x);
  else
    for (int i = 0; i < 8; ++i) y = block(y);
  const Expr loss = sum(y * y);
  const std::int32_t forward = g.size();
  gradients(loss, {x, w});
  std::set<Edge> read;
  std::size_t lists = 0;
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (id < forward && n.op->name == "While")
      for (const ValueSpec& s : n.outputs) lists += s.is_list();
    for (std::size_t i = 0; id >= forward && i < n.inputs.size(); ++i) {
      const ValueSpec& spec = g.spec(n.inputs[i]);
      if (n.inputs[i].node < forward && !n.op->takes_only_shape(i) && !spec.is_list() &&
          spec.shape == Shape{kRows, 16})
        read.insert(n.inputs[i]);
    }
  }
  return in_loop ? lists : read.size();
}

}  // namespace

BOOST_AUTO_TEST_CASE(fewer_values_are_saved) {
  const std::size_t all = saved_values(false, false), few = saved_values(true, false);
  BOOST_TEST(all >= 64u, all << " values are saved");
  BOOST_TEST(few <= 9u, few << " values are saved");
  const std::size_t all_lists = saved_values(false, true), few_lists = saved_values(true, true);
  BOOST_TEST(all_lists >= 8u, all_lists << " lists are saved");
  BOOST_TEST(few_lists <= 2u, few_lists << " lists are saved");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
