// Updates of variables inside of branches, bodies and functions: what they are made of goes into
// them, and nothing else changes.
#include <boost/test/unit_test.hpp>

#include <troupe/actors/plan/pass_order.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(updates_test)

namespace {

using V = std::vector<double>;

const Tensor kStart = Tensor::of<double>({1, 2, 3});

/// How many updates of a program are fused when it comes to be run.
int fused(const Build& build) {
  Graph g;
  Scenario s = build(g);
  std::vector<Edge> feeds, fetches;
  for (const auto& [x, value] : s.feeds) feeds.push_back(x.edge());
  for (const Expr& e : s.fetches) fetches.push_back(e.edge());
  int n = 0;
  const Program program = optimize(g, feeds, fetches, {.optimize = true});
  for (const Node& node : program.graph.nodes()) n += node.op->name == "UpdateVariable";
  return n;
}

void same_everywhere(int updates, const Build& build, const std::vector<V>& expected) {
  BOOST_TEST(fused(build) == updates);
  run_all_configurations(build, expected);
}

}  // namespace

BOOST_AUTO_TEST_CASE(in_a_body) {  // momentum: the second update takes what the first made
  V weights{1, 2, 3}, momenta(3), sums(3);
  for (int i = 0; i < 4; ++i)
    for (std::size_t k = 0; k < 3; ++k) {
      momenta[k] = 0.9 * momenta[k] + 0.5 * weights[k];
      sums[k] += 10.0 * i;
      weights[k] -= 0.1 * momenta[k];
    }
  for (int parallel : {1, 8})
    same_everywhere(
        3,
        [parallel](Graph& g) -> Scenario {
          Variable w = g.variable("w", kStart), m = g.variable("m", Tensor::zeros(DType::f64, {3})),
                   seen = g.variable("seen", Tensor::zeros(DType::f64, {3}));
          Expr tens = g.input("tens", DType::f64, {3});
          Expr i = while_loop([](Expr n) { return n < 4; },
                              [&](Expr n) {
                                Expr slope = 0.5 * w.read(),
                                     moved = m.assign(0.9 * m.read() + slope);
                                seen.assign_add(tens * cast(n, DType::f64));
                                w.assign_sub(0.1 * moved);
                                return n + 1;
                              },
                              g.constant(0), {.parallel_iterations = parallel});
          auto last = g.after({i});
          return {{{tens, Tensor::of<double>({10, 10, 10})}}, {w.read(), m.read(), seen.read()}};
        },
        {weights, momenta, sums});
}

BOOST_AUTO_TEST_CASE(in_branches_that_are_taken_or_not) {
  for (bool yes : {true, false})
    same_everywhere(
        2,
        [yes](Graph& g) -> Scenario {
          Variable v = g.variable("v", kStart);
          Expr p = g.input("p", DType::boolean, Shape{}), x = g.input("x", DType::f64, {3});
          Expr r = cond(
              p, [&] { return v.assign_add(x * 2.0) + 1.0; },
              [&] { return v.assign(v.read() * x - x); });
          auto last = g.after({r});
          return {{{p, Tensor::scalar(yes)}, {x, Tensor::of<double>({10, 20, 30})}}, {r, v.read()}};
        },
        yes ? std::vector<V>{V{22, 43, 64}, V{21, 42, 63}}
            : std::vector<V>{V{0, 20, 60}, V{0, 20, 60}});
}

BOOST_AUTO_TEST_CASE(in_a_function_and_a_loop_in_a_loop) {
  same_everywhere(
      2,
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", kStart), w = g.variable("w", kStart);
        Expr tens = g.input("tens", DType::f64, {3});
        GraphFunction<Expr(Expr)> down(g, "down", {{DType::i64, Shape{}}}, {{DType::i64, Shape{}}});
        down.define([&](Expr n) {
          v.assign(v.read() * 2.0 + 1.0);
          return cond(
              n > 0, [&] { return down(n - 1); }, [&] { return n; });
        });
        Expr i = while_loop([](Expr n) { return n < 2; },
                            [&](Expr n) {
                              Expr inner =
                                  while_loop([&](Expr k) { return k < 3; },
                                             [&](Expr k) {
                                               w.assign_add(tens * cast(k + n, DType::f64));
                                               return k + 1;
                                             },
                                             n);
                              auto after = g.after({inner});
                              return n + 1;
                            },
                            g.constant(std::int64_t{0}));
        Expr end = down(i);
        auto last = g.after({end});
        return {{{tens, Tensor::of<double>({10, 10, 10})}}, {v.read(), w.read()}};
      },
      {V{15, 23, 31}, V{81, 82, 83}});
}

// Updates of one state take turns: slow ops stay beside them, and iterations overlap. An op that
// reads the variable takes its turn anyhow.
BOOST_AUTO_TEST_CASE(slow_ops_in_loops_are_not_fused_into_updates) {
  const auto sum_of = [](double x) { return 1 + 3 * std::exp(x); };
  same_everywhere(0,
                  [](Graph& g) -> Scenario {
                    Variable v = g.variable("v", Tensor::of<double>({1, 1, 1}));
                    Expr x = g.input("x", DType::f64, {3});
                    Expr i = while_loop([](Expr n) { return n < 3; },
                                        [&](Expr n) {
                                          v.assign_add(exp(x));
                                          return n + 1;
                                        },
                                        g.constant(0));
                    auto last = g.after({i});
                    return {{{x, Tensor::of<double>({0, 1, 2})}}, {v.read()}};
                  },
                  {V{sum_of(0), sum_of(1), sum_of(2)}});
  same_everywhere(1,
                  [](Graph& g) -> Scenario {
                    Variable v = g.variable("v", Tensor::of<double>({0, 0, 0}));
                    Expr i = while_loop([](Expr n) { return n < 2; },
                                        [&](Expr n) {
                                          v.assign(exp(v.read()));
                                          return n + 1;
                                        },
                                        g.constant(0));
                    auto last = g.after({i});
                    return {{}, {v.read()}};
                  },
                  {V{std::exp(1), std::exp(1), std::exp(1)}});
}

// A write in between, by whatever comes between: the snapshot is of before, and not what is
// updated.
BOOST_AUTO_TEST_CASE(a_snapshot_of_before_another_write) {
  same_everywhere(0,
                  [](Graph& g) -> Scenario {
                    Variable v = g.variable("v", kStart);
                    Expr i =
                        while_loop([](Expr n) { return n < 2; },
                                   [&](Expr n) {
                                     Expr before = v.read() * 2.0;
                                     when(n >= 0, [&] { v.assign(Tensor::of<double>({7, 7, 7})); });
                                     v.assign(before);
                                     return n + 1;
                                   },
                                   g.constant(0));
                    auto last = g.after({i});
                    return {{}, {v.read()}};
                  },
                  {V{4, 8, 12}});
}

BOOST_AUTO_TEST_CASE(a_variable_that_lives_elsewhere) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v;
        {
          auto there = g.on_device("cpu:1");
          v = g.variable("v", kStart);
        }
        Expr i = while_loop([](Expr n) { return n < 2; },
                            [&](Expr n) {
                              v.assign(v.read() * 3.0);
                              auto there = g.on_device("cpu:1");
                              v.assign_add(v.read() * 1.0);
                              return n + 1;
                            },
                            g.constant(0));
        auto last = g.after({i});
        return {{}, {v.read()}};
      },
      {V{36, 72, 108}});
}

BOOST_AUTO_TEST_CASE(
    several_runs_in_flight) {  // single updates are atomic, and no snapshot is torn
  for (const Setting& s : settings()) {
    Graph g;
    Variable v = g.variable("v", Tensor::zeros(DType::f64, {1000}));
    Expr x = g.input("x", DType::f64, {1000});
    auto [end, worst] =
        while_loop([](Expr n, Expr) { return n < 20; },
                   [&](Expr n, Expr apart) {
                     Expr seen = v.assign_add(x * 2.0);
                     return std::tuple{n + 1, maximum(apart, reduce_max(seen) - reduce_min(seen))};
                   },
                   std::tuple{g.constant(0), g.constant(0.0)});
    Engine engine(options_of(s));
    Function f = engine.compile(g, {x}, {worst});
    std::vector<RunHandle> runs;
    for (int r = 0; r < 6; ++r) runs.push_back(f.start({Tensor::of(V(1000, 0.5), Shape{1000})}));
    for (RunHandle& r : runs) BOOST_TEST(r.get()[0].item<double>() == 0, s.name);
    BOOST_TEST(engine.get(v).at(7) == 120, s.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
