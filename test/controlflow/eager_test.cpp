// Control flow replayed node by node: on an eager scope it yields what the engine yields, and
// inlined into another graph it means the same; random draws agree bit for bit.
#include <boost/test/unit_test.hpp>

#include <cstring>

#include <troupe/test/support/programs/calls.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(eager_test)

namespace {

bool has_bits_of(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(),
                     static_cast<std::size_t>(a.elements()) * size_of(a.dtype())) == 0;
}

Scenario loop_of_draws(Graph& g) {
  auto [i, x] = while_loop([](Expr n, Expr) { return n < 5; },
                           [&](Expr n, Expr v) {
                             return std::tuple{n + 1, v * 0.5 + g.random_normal({3})};
                           },
                           std::tuple{g.constant(0), g.zeros(DType::f32, {3})});
  return {{}, {i, x, g.random_uniform({2})}};
}

Scenario nested_loops_with_a_branch(Graph& g) {
  auto [i, x] = while_loop([](Expr n, Expr) { return n < 4; },
                           [&](Expr n, Expr v) {
                             auto [k, w] = while_loop([&](Expr m, Expr) { return m < n; },
                                                      [&](Expr m, Expr u) {
                                                        Expr more = cond(
                                                            mod(m, 2) == 0,
                                                            [&] { return g.random_uniform({2}); },
                                                            [&] { return u * 2.0; });
                                                        return std::tuple{m + 1, u + more};
                                                      },
                                                      std::tuple{g.constant(0), v});
                             return std::tuple{n + 1, w};
                           },
                           std::tuple{g.constant(0), g.zeros(DType::f32, {2})});
  return {{}, {i, x}};
}

Scenario recursion_of_draws(Graph& g) {
  GraphFunction<Expr(Expr)> sum(g, "sum", {kCount}, {{DType::f32, {2}}});
  sum.define([&](Expr n) {
    return cond(
        n > 0, [&] { return sum(n - 1) + g.random_uniform({2}); },
        [&] { return g.zeros(DType::f32, {2}); });
  });
  return {{}, {sum(0), sum(3), sum(3)}};
}

Scenario lists_in_a_loop(Graph& g) {
  const Expr x = g.input("x", DType::f32, {2});
  auto [i, all] = while_loop(
      [](Expr n, Expr) { return n < 4; },
      [&](Expr n, Expr list) {
        return std::tuple{n + 1, list_push(list, x * cast(n, DType::f32) + g.random_uniform({2}))};
      },
      std::tuple{g.constant(0), list_empty(g, {DType::f32, Shape{2}})});
  return {{{x, Tensor::of<float>({1, -1})}}, {list_stack(all), list_length(all)}};
}

Scenario variable_updates(Graph& g) {
  const Variable v = g.variable("v", Tensor::scalar(1.f));
  Expr n = while_loop([](Expr i) { return i < 6; },
                      [&](Expr i) {
                        switch_case<std::function<Expr()>>(
                            mod(i, 3),
                            {[&] { return v.assign_add(g.random_uniform({})); },
                             [&] { return v.assign(v.read() * 2.0); }, [&] { return v.read(); }});
                        return i + 1;
                      },
                      g.constant(0));
  auto last = g.after({n});
  return {{}, {n, v.read()}};
}

Scenario queue_in_a_loop(Graph& g) {
  const Queue q = g.shuffling_queue("q", {kReal}, 8, 0, 5);
  Expr n = while_loop([](Expr i) { return i < 6; },
                      [&](Expr i) {
                        q.enqueue({cast(i, DType::f32)});
                        return i + 1;
                      },
                      g.constant(0));
  auto last = g.after({n});
  return {{}, {map([&](Expr) { return q.dequeue()[0]; }, g.zeros(DType::f32, {6})), q.size()}};
}

Scenario gradient_of_a_loop(Graph& g) {
  const Expr x = g.constant(Tensor::of<float>({0.5, 2}));
  auto [i, y] = while_loop([](Expr n, Expr) { return n < 3; },
                           [&](Expr n, Expr v) {
                             return std::tuple{n + 1, tanh(v * x) + g.random_uniform({2})};
                           },
                           std::tuple{g.constant(0), x});
  return {{}, {y, gradients(y, x)[0]}};
}

struct Row {
  const char* name;
  Build build;
};
const std::vector<Row>& rows() {
  static const std::vector<Row> all = {{"loop of draws", loop_of_draws},
                                       {"nested loops with a branch", nested_loops_with_a_branch},
                                       {"recursion of draws", recursion_of_draws},
                                       {"lists in a loop", lists_in_a_loop},
                                       {"variable updates", variable_updates},
                                       {"queue in a loop", queue_in_a_loop},
                                       {"gradient of a loop", gradient_of_a_loop}};
  return all;
}

constexpr std::uint64_t kSeed = 11;
constexpr int kRuns = 2;  // the second with another step, and with the states of the first

std::vector<Tensor> on_engine(const Graph& g, const Scenario& s) {
  EngineOptions options;
  options.workers = 1;
  options.seed = kSeed;
  Engine engine(options);
  std::vector<Tensor> all;
  for (int r = 0; r < kRuns; ++r)
    for (Tensor& t : engine.run(g, s.feeds, s.fetches)) all.push_back(std::move(t));
  return all;
}

void require_same(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted,
                  const char* name) {
  BOOST_REQUIRE_EQUAL(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    BOOST_CHECK_MESSAGE(has_bits_of(got[i], wanted[i]), name << ", fetch " << i << ": "
                                                             << got[i].text() << " is not "
                                                             << wanted[i].text());
}

std::vector<Expr> keys_of(const Feeds& feeds) {
  std::vector<Expr> keys;
  for (const auto& [key, value] : feeds) keys.push_back(key);
  return keys;
}

// The scenario's program, inlined into `to`.
Scenario inlined(const Graph& from, const Scenario& s, Graph& to) {
  Scenario made;
  Exprs arguments;
  for (const auto& [key, value] : s.feeds) {
    arguments.push_back(
        to.input("in" + std::to_string(arguments.size()), value.dtype(), value.shape()));
    made.feeds.emplace_back(arguments.back(), value);
  }
  made.fetches = replay(from, to, keys_of(s.feeds), arguments, s.fetches);
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(eager_scope_yields_what_the_engine_yields) {
  for (const Row& row : rows()) {
    Graph g;
    const Scenario s = row.build(g);
    Eager eager;
    eager.set_seed(kSeed);
    std::vector<Tensor> got;
    for (int r = 0; r < kRuns; ++r)
      for (Tensor& t : eager.run(g, s.feeds, s.fetches)) got.push_back(std::move(t));
    require_same(got, on_engine(g, s), row.name);
  }
}

BOOST_AUTO_TEST_CASE(inlined_program_yields_what_the_program_yields) {
  for (const Row& row : rows()) {
    Graph g, h;
    const Scenario s = row.build(g);
    const Scenario t = inlined(g, s, h);
    require_same(on_engine(h, t), on_engine(g, s), row.name);
  }
}

BOOST_AUTO_TEST_CASE(copies_in_one_graph_draw_independently) {
  for (const Row& row : {rows()[0], rows()[2]}) {
    Graph g, h;
    const Scenario s = row.build(g);
    Scenario both = inlined(g, s, h);
    for (const Expr& e : inlined(g, s, h).fetches) both.fetches.push_back(e);
    const std::vector<Tensor> got = on_engine(h, both), alone = on_engine(g, s);
    const std::size_t n = s.fetches.size();
    for (std::size_t i = 0; i < n; ++i) {
      BOOST_TEST(has_bits_of(got[i], alone[i]), row.name);
      // a counter and sum(0) draw nothing
      BOOST_TEST(has_bits_of(got[n + i], alone[i]) == (i == 0), row.name);
    }
  }
}

BOOST_AUTO_TEST_CASE(program_inlined_into_a_loop_runs_in_each_iteration) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {});
  const Expr y = cond(
      x > 3.0, [&] { return x * 2.0; }, [&] { return x + 1.0; });
  Graph h;
  Expr out = while_loop([](Expr v) { return v < 20.0; },
                        [&](Expr v) { return replay(g, h, {x}, std::vector{v}, {y})[0]; },
                        h.constant(1.f));
  BOOST_TEST(Engine().run(h, {}, {out})[0].item<float>() == 32.f);
  BOOST_TEST(Eager().run(h, {}, {out})[0].item<float>() == 32.f);
}

BOOST_AUTO_TEST_CASE(lists_stay_lists_on_an_eager_scope) {
  Graph g;
  const Expr x = g.input("x", DType::f32, {2});
  const Expr list = list_push(list_push(list_empty(g, {DType::f32, Shape{2}}), x), x * 2.0);
  Eager eager;
  const Exprs out =
      replay(g, eager, {x}, std::vector{eager.constant(Tensor::of<float>({1, 3}))}, {list});
  BOOST_TEST(out[0].spec().is_list());
  BOOST_TEST((list_stack(out[0]).value().to_vector<float>() == std::vector<float>{1, 3, 2, 6}));
}

BOOST_AUTO_TEST_CASE(eager_queue_without_elements_refuses_a_dequeue) {
  Graph g;
  const Queue q = g.fifo_queue("q", {kReal}, 1);
  const Expr y = cond(
      g.constant(true), [&] { return q.dequeue()[0]; }, [&] { return scalar(g, 0); });
  BOOST_TEST(says(refused([&] { Eager().run(g, {}, {y}); }),
                  {"Dequeue", "eager_test.cpp:", "queue 'q' is empty"}));
}

BOOST_AUTO_TEST_CASE(eager_recursion_without_end_is_refused) {
  Graph g;
  GraphFunction<Expr(Expr)> down(g, "down", {kCount}, {kCount});
  down.define([&](Expr n) { return down(n - 1); });
  const Expr y = down(1);
  Eager eager;
  BOOST_TEST(says(refused([&] { eager.run(g, {}, {y}); }),
                  {"function 'down'", "does its recursion end?"}));
  const Expr z = g.constant(2.f) * 2.0;
  BOOST_TEST(eager.run(g, {}, {z})[0].item<float>() == 4.f);  // and the scope is usable afterwards
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
