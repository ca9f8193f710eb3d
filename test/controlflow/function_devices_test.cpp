// Functions whose bodies are on several devices: what they yield, what goes wrong in them, and what
// bounds them.
#include <boost/test/unit_test.hpp>

#include <troupe/test/support/programs/calls.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(calls_over_devices)

namespace {

template <class F>
auto on(Graph& g, const char* device, F f) {
  auto there = g.on_device(device);
  return f();
}

// The sum, the leaves and what is taken off are on a device each.
One fibonacci_in(Graph& g, const char* sum = "cpu:1", const char* leaf = "cpu:2",
                 const char* less = "cpu:0") {
  One fibonacci(g, "fibonacci", {kCount}, {kCount});
  fibonacci.define([=, &g](Expr n) {
    return cond(
        n < 2, [&] { return on(g, leaf, [&] { return n * 1; }); },
        [&] {
          auto [a, b] = on(g, less, [&] { return std::tuple{n - 1, n - 2}; });
          Expr x = fibonacci(a), y = fibonacci(b);
          return on(g, sum, [&] { return x + y; });
        });
  });
  return fibonacci;
}

}  // namespace

BOOST_AUTO_TEST_CASE(fibonacci) {
  for (const char* leaf : {"cpu:2", "sim:0"})
    run_all_configurations(
        [=](Graph& g) -> Scenario {
          Expr n = count(g, "n");
          One f = fibonacci_in(g, "cpu:1", leaf);
          return {{{n, whole(9)}}, {f(n), f(1), f(4) + f(n - 6)}};
        },
        {Reals{34}, Reals{1}, Reals{5}}, 3);
}

// A call is where its function's home is, which the caller's device does not change.
BOOST_AUTO_TEST_CASE(a_call_in_a_scope_of_another_device) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        One split(g, "split", {kReal}, {kReal});
        split.define([&](Expr x) {
          return cond(
              x > 0.0, [&] { return on(g, "cpu:1", [&] { return split(x - 1.0); }); },
              [&] {
                Expr y = on(g, "cpu:2", [&] { return x + 3.0; });
                return on(g, "cpu:3", [&] { return y * x; });
              });
        });
        return {{}, {split(2.5)}};
      },
      {Reals{-1.25}});
}

BOOST_AUTO_TEST_CASE(mutual) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        const ValueSpec truth{DType::boolean, Shape{}};
        Expr zero = g.input("zero", DType::i64, Shape{}), n = count(g, "n");
        One even(g, "even", {kCount}, {truth}), odd(g, "odd", {kCount}, {truth});
        even.define([&](Expr k) {
          return cond(
              on(g, "cpu:1", [&] { return k == zero; }), [&] { return g.constant(true); },
              [&] { return odd(on(g, "cpu:1", [&] { return k - 1; })); });
        });
        odd.define([&](Expr k) {
          return cond(
              on(g, "cpu:2", [&] { return k == zero; }), [&] { return g.constant(false); },
              [&] { return even(on(g, "cpu:2", [&] { return k - 1; })); });
        });
        return {{{zero, whole(0)}, {n, whole(15)}}, {even(n), odd(n), even(10), odd(10)}};
      },
      {Reals{0}, Reals{1}, Reals{1}, Reals{0}}, 2);
}

BOOST_AUTO_TEST_CASE(in_loops_and_around_them) {
  // A loop whose body calls the function that it is in; its iterations go over two devices, and
  // outside of it others call.
  run_all_configurations(
      [](Graph& g) -> Scenario {
        One nested(g, "nested", {kCount}, {kCount});
        nested.define([&](Expr n) {
          auto [last, all] =
              while_loop([&](Expr k, Expr) { return k < n; },
                         [&](Expr k, Expr sum) {
                           Expr more = nested(k);
                           return std::tuple{k + 1, on(g, "cpu:1", [&] { return sum + more; })};
                         },
                         std::tuple{g.constant(std::int64_t{0}), g.constant(std::int64_t{1})},
                         {.parallel_iterations = 3});
          return on(g, "cpu:2", [&] { return all * 1; });
        });
        auto [i, s] =
            while_loop([](Expr n, Expr) { return n < 5; },
                       [&](Expr n, Expr sum) {
                         return std::tuple{n + 1, sum + nested(n)};
                       },
                       std::tuple{g.constant(std::int64_t{0}), g.constant(std::int64_t{0})});
        return {{}, {nested(5), s}};
      },
      {Reals{32}, Reals{31}}, 2);
}

BOOST_AUTO_TEST_CASE(lists_and_outer_values) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr scale = g.input("scale", DType::f32, Shape{});
        GraphFunction<Expr(Expr, Expr)> gathered(g, "gathered", {kCount, kReal.list_of()},
                                                 {kReal.list_of()});
        gathered.define([&](Expr n, Expr list) {
          return cond(
              n > 0,
              [&] {
                Expr value = on(g, "cpu:1", [&] { return cast(n, DType::f32) * scale; });
                Expr longer = on(g, "cpu:2", [&] { return list_push(list, value); });
                return gathered(n - 1, longer);
              },
              [&] { return on(g, "cpu:1", [&] { return list_push(list, scale); }); });
        });
        return {{{scale, Tensor::scalar(10.f)}}, {list_stack(gathered(4, list_empty(g, kReal)))}};
      },
      {Reals{40, 30, 20, 10, 10}}, 2);
}

BOOST_AUTO_TEST_CASE(effects_are_in_order) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v = on(g, "cpu:1", [&] { return g.variable("v", Tensor::scalar(0.0)); });
        Variable calls = on(g, "cpu:2", [&] { return g.variable("calls", Tensor::scalar(0.0)); });
        One walk(g, "walk", {kCount}, {kCount});
        auto digit = [&](const Expr& n) { v.assign(v.read() * 10.0 + cast(n, DType::f64)); };
        walk.define([&](Expr n) {
          calls.assign_add(1.0);
          return cond(
              n > 0,
              [&] {
                digit(n);
                Expr a = walk(n - 1);
                digit(n);
                return a + walk(n - 2);
              },
              [&] {
                digit(n * 0);
                return n * 0 + 1;
              });
        });
        Expr before = v.assign(9.0);
        Expr leaves = walk(3), digits = v.read();
        auto from = [&](double place, double many) { return mod(floor(digits / place), many); };
        return {{}, {leaves, from(1e9, 1e5), from(1e4, 1e5), from(1, 1e4), before, calls.read()}};
      },
      {Reals{5}, Reals{93210}, Reals{10203}, Reals{1010}, Reals{9}, Reals{9}});
}

BOOST_AUTO_TEST_CASE(slopes) {
  // x to the nth, its slope and that one's; a saved value lies in lists within lists, one a call.
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr n = count(g, "n"), x = g.input("x", DType::f32, Shape{});
        Two power(g, "power", {kCount, kReal}, {kReal});
        power.define([&](Expr k, Expr v) {
          return cond(
              k == 0, [&] { return on(g, "cpu:2", [&] { return v * 0.0 + 1.0; }); },
              [&] {
                Expr less = power(k - 1, v);
                return on(g, "cpu:1", [&] { return less * v; });
              });
        });
        Expr y = power(n, x), slope = gradients(y, x)[0], slope_of_slope = gradients(slope, x)[0];
        return {{{n, whole(5)}, {x, Tensor::scalar(2.f)}}, {y, slope, slope_of_slope}};
      },
      {Reals{32}, Reals{80}, Reals{160}}, 2);
  // Through a loop inside of the calls, and calls inside of the loop.
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f32, Shape{});
        Two nested(g, "nested", {kCount, kReal}, {kReal});
        nested.define([&](Expr k, Expr v) {
          auto [last, all] =
              while_loop([&](Expr i, Expr) { return i < k; },
                         [&](Expr i, Expr s) {
                           Expr inner = nested(i, s);
                           return std::tuple{i + 1, on(g, "cpu:1", [&] { return inner * v; })};
                         },
                         std::tuple{g.constant(std::int64_t{0}), v}, {.parallel_iterations = 2});
          return on(g, "cpu:2", [&] { return all * 1.0; });
        });
        Expr y = nested(2, x);  // n0 = v, n1 = v * v, n2 = n1(v * v) * v = v^5
        return {{{x, Tensor::scalar(2.f)}}, {y, gradients(y, x)[0]}};
      },
      {Reals{32}, Reals{80}});
}

BOOST_AUTO_TEST_CASE(draws_do_not_depend_on_devices) {
  for (const Setting& s : settings()) {
    std::vector<std::vector<double>> drawn;
    for (const char* there : {"", "cpu:1"}) {
      Graph g;
      One deep(g, "deep", {kCount}, {{DType::f32, {4}}});
      deep.define([&](Expr n) {
        Expr noise = on(g, there, [&] { return g.random_uniform({4}); });
        return cond(
            n > 0,
            [&] {
              Expr more = deep(n - 1);
              return on(g, *there ? "cpu:2" : "", [&] { return more + noise; });
            },
            [&] { return noise; });
      });
      EngineOptions options = options_of(s);
      options.seed = 0;
      for (const Tensor& t : Engine(options).run(g, {}, {deep(0), deep(3)}))
        drawn.push_back(numbers(t));
    }
    BOOST_TEST(drawn[0] == drawn[2], boost::test_tools::per_element());
    BOOST_TEST(drawn[1] == drawn[3], boost::test_tools::per_element());
    BOOST_TEST((drawn[0] != drawn[1]));
  }
}

BOOST_AUTO_TEST_CASE(a_call_in_an_untaken_branch_does_nothing) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Variable v = on(g, "cpu:1", [&] { return g.variable("v", Tensor::scalar(0.f)); });
    One down(g, "down", {kCount}, {kReal});
    down.define([&](Expr n) {
      return cond(
          n > 0,
          [&] {
            v.assign_add(1.0);
            return down(on(g, "cpu:2", [&] { return n - 1; }));
          },
          [&] { return v.read(); });
    });
    Expr yes = g.input("yes", DType::boolean, Shape{});
    Expr r = cond(
        yes, [&] { return down(5); }, [&] { return g.constant(-1.f); });
    Somewhere there(s);
    BOOST_TEST(there.engine().run(g, {{yes, Tensor::scalar(false)}}, {r})[0].item<float>() == -1.f,
               s.name);
    BOOST_TEST(there.engine().get(v).item<float>() == 0.f, s.name);
    BOOST_TEST(there.engine().run(g, {{yes, Tensor::scalar(true)}}, {r})[0].item<float>() == 5.f,
               s.name);
  }
}

BOOST_AUTO_TEST_CASE(a_wait_for_a_call_is_for_all_its_parts) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Variable v = on(g, "cpu:1", [&] { return g.variable("v", Tensor::scalar(0.f)); });
    One down(g, "down", {kCount}, {kCount});
    down.define([&](Expr n) {
      v.assign_add(1.0);
      return cond(
          n > 0, [&] { return down(on(g, "cpu:2", [&] { return n - 1; })); }, [&] { return n; });
    });
    Expr called = down(6);
    Expr seen = [&] {
      auto after = g.after({called});
      return v.read();
    }();
    Somewhere there(s);
    BOOST_TEST(there.engine().run(g, {}, {seen})[0].item<float>() == 7.f, s.name);
  }
}

BOOST_AUTO_TEST_CASE(an_error_deep_inside_names_its_place) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Expr table = g.constant(Tensor::of<float>({1, 2, 3}, {3})), n = count(g, "n");
    One look(g, "look", {kCount}, {kReal});
    look.define([&](Expr k) {
      Expr more = on(g, "cpu:2", [&] { return k > 5; });
      return cond(
          more, [&] { return look(on(g, "cpu:2", [&] { return k - 1; })); },
          [&] { return on(g, "cpu:1", [&] { return gather(table, k); }); });
    });
    Expr r = look(n);
    Somewhere there(s);
    for (int i = 0; i < 3; ++i) {
      const std::string error = refused([&] { there.engine().run(g, {{n, whole(40)}}, {r}); });
      BOOST_TEST(says(error, {"Gather 'look/", "(function_devices_test.cpp:",
                              "in a call of 'look', 36 deep", "index 5"}),
                 s.name << ": " << error);
      BOOST_TEST(there.engine().run(g, {{n, whole(2)}}, {r})[0].item<float>() == 3.f, s.name);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_depth_of_calls_is_limited) {
  for (Setting s : all_settings()) {
    Graph g;
    One forever(g, "forever", {kCount}, {kCount});
    forever.define([&](Expr n) {
      Expr deeper = forever(on(g, "cpu:1", [&] { return n + 1; }));
      return on(g, "cpu:2", [&] { return deeper + 1; });
    });
    EngineOptions options = options_of(s);
    options.call_depth = 50;
    std::optional<Nodes> nodes;
    std::optional<Engine> alone;
    if (s.nodes > 1) nodes.emplace(s.nodes, options);
    else alone.emplace(options);
    Engine& engine = nodes ? nodes->engine() : *alone;
    Expr r = forever(0);
    const std::string error = refused([&] { engine.run(g, {}, {r}); });
    BOOST_TEST(says(error, {"function 'forever' (function_devices_test.cpp:",
                            "is called at function_devices_test.cpp:", "inside 50 calls"}),
               s.name << ": " << error);
    Expr x = fibonacci_in(g)(7);
    BOOST_TEST(engine.run(g, {}, {x})[0].item<std::int64_t>() == 13, s.name);
  }
}

BOOST_AUTO_TEST_CASE(deep_calls) {
  Graph g;
  Two sum(g, "sum", {kCount, kCount}, {kCount});
  sum.define([&](Expr n, Expr s) {
    return cond(
        n == 0, [&] { return s; },
        [&] { return sum(n - 1, on(g, "cpu:1", [&] { return s + n; })); });
  });
  Expr n = count(g, "n");
  EngineOptions options;
  options.workers = 2;
  Engine engine(options);
  Function f = engine.compile(g, {n}, {sum(n, 0)});
  for (int i = 0; i < 3; ++i) BOOST_TEST(f({whole(9'999)})[0].item<std::int64_t>() == 49'995'000);
  BOOST_TEST(says(refused([&] { f({whole(10'000)}); }), {"function 'sum'", "inside 10000 calls"}));
  BOOST_TEST(f({whole(100)})[0].item<std::int64_t>() == 5050);
}

BOOST_AUTO_TEST_CASE(a_recursion_that_takes_for_ever_is_ended) {
  for (const Setting& s : all_settings()) {
    if (s.is_deterministic) continue;
    Graph g;
    One tree(g, "tree", {kCount}, {kCount});
    tree.define([&](Expr n) {
      return cond(
          n == 0, [&] { return g.constant(std::int64_t{1}); },
          [&] {
            Expr less = on(g, "cpu:1", [&] { return n - 1; }), left = tree(less),
                 right = tree(less);
            return on(g, "cpu:2", [&] { return left + right; });
          });
    });
    Expr n = count(g, "n"), r = tree(n);
    Somewhere there(s);
    Engine& engine = there.engine();
    ends_when_it_is_told_to(engine, g, n, r, s.name);
  }
}

BOOST_AUTO_TEST_CASE(several_runs_at_once) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Expr n = count(g, "n"), r = fibonacci_in(g)(n);
    Somewhere there(s);
    Function f = there.engine().compile(g, {n}, {r});
    std::vector<RunHandle> runs;
    const Reals expected{0, 1, 1, 2, 3, 5, 8, 13, 21, 34};
    for (std::size_t i = 0; i < expected.size(); ++i)
      runs.push_back(f.start({whole(static_cast<std::int64_t>(i))}));
    for (std::size_t i = 0; i < runs.size(); ++i)
      BOOST_TEST(numbers(runs[i].get()[0])[0] == expected[i], s.name);
  }
}

// At most 32 calls of equal depth are in flight; the others take the slots of those that end.
// (test/model/call.pml asserts that there are no more.)
BOOST_AUTO_TEST_CASE(more_calls_side_by_side_than_there_are_places) {
  for (const Setting& s : all_settings()) {
    Graph g;
    One all(g, "all", {kCount}, {kCount});
    all.define([&](Expr n) {
      Expr leaf = on(g, "cpu:2", [&] { return n == 0; });
      return cond(
          leaf,
          [&] {
            return on(g, "cpu:1", [&] {
              return while_loop([](Expr k) { return k < 200; }, [](Expr k) { return k + 1; },
                                g.constant(std::int64_t{0}), {.name = "leaf"});
            });
          },
          [&] {
            auto [last, sum] =
                while_loop([&](Expr k, Expr) { return k < 100; },
                           [&](Expr k, Expr t) {
                             return std::tuple{k + 1, t + all(n - 1)};
                           },
                           std::tuple{g.constant(std::int64_t{0}), g.constant(std::int64_t{0})},
                           {.parallel_iterations = 100});
            return sum;
          });
    });
    Somewhere there(s);
    BOOST_TEST(there.engine().run(g, {}, {all(1)})[0].item<std::int64_t>() == 20'000, s.name);
  }
}

BOOST_AUTO_TEST_CASE(a_wait_in_a_call_is_named) {
  Graph g;
  Queue q = on(g, "cpu:1", [&] { return g.fifo_queue("values", {kReal}, 2); });
  One wait(g, "wait", {kCount}, {kReal});
  wait.define([&](Expr n) {
    Expr deeper = on(g, "cpu:2", [&] { return n > 0; });
    return cond(
        deeper, [&] { return wait(n - 1); }, [&] { return q.dequeue()[0]; });
  });
  EngineOptions options;
  options.deterministic = true;
  Engine engine(options);
  RunHandle run = engine.start(g, {}, {wait(2)});
  while (engine.take_step()) {}
  const std::vector<std::string> said = diagnose(engine.snapshot());
  BOOST_REQUIRE(said.size() == 1u);
  BOOST_TEST(says(said[0], {"Dequeue 'wait/", "(function_devices_test.cpp:",
                            "a call of 'wait', 3 deep", "on cpu:1", "queue 'values'"}));
  Expr x = g.input("x", DType::f32, Shape{});
  engine.run(g, {{x, Tensor::scalar(7.f)}}, {q.enqueue({x})});
  BOOST_TEST(run.get()[0].item<float>() == 7.f);
}

// These counts decide whether a token is in flight. A partition that reported the end of its part
// of a call did not count that message. More had arrived than was sent, which made up for a token
// in flight.
BOOST_AUTO_TEST_CASE(the_end_of_a_call_follows_its_tokens) {
  Graph g;
  Queue q = on(g, "cpu:1", [&] { return g.fifo_queue("values", {kReal}, 2); });
  Expr x = g.input("x", DType::f32, Shape{}), put = q.enqueue({x});
  One wait(g, "wait", {kCount}, {kReal});
  wait.define([&](Expr n) {
    Expr deeper = on(g, "cpu:2", [&] { return n > 0; });
    return cond(
        deeper, [&] { return wait(n - 1); }, [&] { return q.dequeue()[0]; });
  });
  EngineOptions options;
  options.deterministic = true;
  Engine engine(options);
  engine.run(g, {{x, Tensor::scalar(7.f)}}, {put});
  RunHandle run = engine.start(g, {}, {wait(2) + wait(1)});  // one of the calls ends
  while (engine.take_step()) {}
  const EngineSnapshot s = engine.snapshot();
  std::uint64_t sent = 0, received = 0;
  for (const PartitionSnapshot& p : s.runs.at(0).partitions) {
    BOOST_REQUIRE(p.runs.size() == 1u);
    sent += p.runs[0].sent, received += p.runs[0].received;
  }
  BOOST_TEST(received > 0u);
  BOOST_TEST(sent == received);
  engine.run(g, {{x, Tensor::scalar(8.f)}}, {put});
  BOOST_TEST(run.get()[0].item<float>() == 15.f);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
