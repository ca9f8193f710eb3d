// Functions as nodes: calls, recursion, what bodies may use, what is refused and what goes wrong.
#include <boost/test/unit_test.hpp>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/controlflow/lower.hpp>
#include <troupe/test/support/programs/calls.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

One factorial_in(Reader& r) {
  One factorial(r, "factorial", {kCount}, {kCount});
  factorial.define([&](Expr n) {
    return cond(
        n <= 1, [&] { return r.constant(std::int64_t{1}); }, [&] { return n * factorial(n - 1); });
  });
  return factorial;
}

One fibonacci_in(Reader& r) {
  One fibonacci(r, "fibonacci", {kCount}, {kCount});
  fibonacci.define([&](Expr n) {
    return cond(
        n < 2, [&] { return n; }, [&] { return fibonacci(n - 1) + fibonacci(n - 2); });
  });
  return fibonacci;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(calls)

BOOST_AUTO_TEST_CASE(a_function_is_called_from_anywhere) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f32, Shape{});
        One square(g, "square", {kReal}, [](Expr v) { return v * v; });
        One fourth(g, "fourth", {kReal}, [&](Expr v) { return square(square(v)); });
        Expr in_branch = cond(
            x > 1.0, [&] { return fourth(x); }, [&] { return square(x + 5.0); });
        auto [i, in_body] = while_loop([](Expr n, Expr) { return n < 2; },
                                       [&](Expr n, Expr v) {
                                         return std::tuple{n + 1, square(v) + 1.0};
                                       },
                                       std::tuple{g.constant(0), x});
        return {{{x, Tensor::scalar(2.f)}}, {square(3.0), fourth(x), in_branch, in_body}};
      },
      {Reals{9}, Reals{16}, Reals{16}, Reals{26}}, 2);
}

BOOST_AUTO_TEST_CASE(structured_values) {
  struct Point {
    Expr x, y;
    auto members() { return std::tie(x, y); }
  };
  run_all_configurations(
      [](Graph& g) -> Scenario {
        GraphFunction<std::tuple<Expr, Expr>(Expr, Expr)> both(g, "both", {kReal, kReal},
                                                               [](Expr a, Expr b) {
                                                                 return std::tuple{a + b, a - b};
                                                               });
        GraphFunction<Point(Point, Expr)> moved(g, "moved", {kReal, kReal, kReal},
                                                [](Point p, Expr by) {
                                                  return Point{p.x + by, p.y * by};
                                                });
        GraphFunction<Expr()> seven(g, "seven", {}, [&] { return g.constant(7.f); });
        GraphFunction<Exprs(Exprs)> turned(g, "turned", {kReal, kReal}, [](const Exprs& v) {
          return Exprs{v[1], v[0]};
        });
        auto [sum, difference] = both(5.0, 3.0);
        Point p = moved({sum, difference}, 10.0);
        Exprs t = turned({p.x, p.y});
        return {{}, {sum, difference, p.x, p.y, seven(), t[0]}};
      },
      {Reals{8}, Reals{2}, Reals{18}, Reals{20}, Reals{7}, Reals{20}});
}

BOOST_AUTO_TEST_CASE(unknown_extents) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        One total(g, "total", {{DType::f32, {kAny}}}, [](Expr x) { return sum(x); });
        Expr x = g.input("x", DType::f32, {kAny});
        return {{{x, Tensor::of<float>({1, 2, 3})}}, {total(x), total(concat({x, x}, 0))}};
      },
      {Reals{6}, Reals{12}});
}

BOOST_AUTO_TEST_CASE(outer_values_come_by_themselves) {
  // Variables of the outermost graph, used in a branch and in a loop of the body, and through a
  // function that does not use them.
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr a = g.input("a", DType::f32, Shape{}), b = g.input("b", DType::f32, Shape{}),
             never = g.input("never", DType::f32, Shape{});
        One scaled(g, "scaled", {kReal}, [&](Expr x) {
          Expr up = cond(
              x > 0.0, [&] { return x * a; }, [&] { return x * b; });
          auto [i, s] = while_loop([](Expr n, Expr) { return n < 3; },
                                   [&](Expr n, Expr v) {
                                     return std::tuple{n + 1, v + b};
                                   },
                                   std::tuple{g.constant(0), up});
          return s;
        });
        One twice(g, "twice", {kReal}, [&](Expr x) { return scaled(x) * 2.0; });
        One unused(g, "unused", {kReal}, [&](Expr x) { return x + never; });
        return {{{a, Tensor::scalar(10.f)}, {b, Tensor::scalar(1.f)}},
                {twice(2.0), twice(-2.0),
                 cond(
                     a > 0.0, [&] { return scaled(1.0); }, [&] { return a; })}};
      },
      {Reals{46}, Reals{2}, Reals{13}});
}

BOOST_AUTO_TEST_CASE(effects_happen_in_program_order) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", Tensor::scalar(1.f));
        One twice_plus(g, "twice_plus", {kReal},
                       [&](Expr x) { return v.assign(v.read() * 2.0 + x); });
        Expr first = twice_plus(1.0);  // 3
        Expr between = v.read();
        Expr second = twice_plus(5.0);   // 11
        Expr third = v.assign_add(1.0);  // 12
        return {{}, {first, between, second, third, v.read()}};
      },
      {Reals{3}, Reals{3}, Reals{11}, Reals{12}, Reals{12}});
}

BOOST_AUTO_TEST_CASE(a_call_in_an_untaken_branch_does_nothing) {
  for (const Setting& s : settings()) {
    Graph g;
    Variable v = g.variable("v", Tensor::scalar(0.f));
    One down(g, "down", {kCount}, {kReal});
    down.define([&](Expr n) {
      return cond(
          n > 0,
          [&] {
            v.assign_add(1.0);
            return down(n - 1);
          },
          [&] { return v.read(); });
    });
    Expr yes = g.input("yes", DType::boolean, Shape{});
    Expr r = cond(
        yes, [&] { return down(5); }, [&] { return g.constant(-1.f); });
    Engine engine(options_of(s));
    BOOST_TEST(engine.run(g, {{yes, Tensor::scalar(false)}}, {r})[0].item<float>() == -1.f, s.name);
    BOOST_TEST(engine.get(v).item<float>() == 0.f, s.name);
    BOOST_TEST(engine.run(g, {{yes, Tensor::scalar(true)}}, {r})[0].item<float>() == 5.f, s.name);
  }
}

// Whether it is replaced by its body or not.
BOOST_AUTO_TEST_CASE(a_call_does_nothing_before_its_arguments_are_there) {
  for (const Setting& s : all_settings()) {
    Graph g;
    const Variable times = g.variable("times", Tensor::scalar(0.f));
    const Queue q = g.fifo_queue("q", {kReal}, 1);
    One f(g, "f", {kReal}, [&](Expr x) {
      times.assign_add(1.0);
      return x + 1.0;
    });
    Two second(g, "second", {kReal, kReal}, [&](Expr, Expr y) {
      times.assign_add(1.0);
      return y;
    });
    One loops(g, "loops", {kReal}, [&](Expr x) {  // over nothing but a state
      while_loop(
          &g, [&](const Exprs&) { return times.read() < 5.0; },
          [&](const Exprs&) {
            times.assign_add(1.0);
            return Exprs{};
          },
          Exprs{});
      return x;
    });
    const Expr before = times.assign_add(0.0), taken = q.dequeue()[0], n = f(taken),
               m = second(taken, 1.0), put = q.enqueue({2.f}), k = loops(taken);
    Somewhere there(s);
    for (const Expr& r : {n, m, k})
      BOOST_CHECK_THROW(
          there.engine().run(g, {}, {before, r}, {.timeout = std::chrono::milliseconds(50)}),
          Error);
    there.engine().run(g, {}, {put});
    BOOST_TEST(there.engine().get(times).item<float>() == 0.f, s.name);
    compare(there.engine().run(g, {}, {n}), {Reals{3}}, s.name);
    BOOST_TEST(there.engine().get(times).item<float>() == 1.f, s.name);
  }
}

BOOST_AUTO_TEST_CASE(a_call_with_a_dead_argument_does_nothing) {
  for (const Setting& s : all_settings()) {
    Graph g;
    const Variable times = g.variable("times", Tensor::scalar(0.f));
    One counts(g, "counts", {kReal}, [&](Expr u) {
      times.assign_add(1.0);
      return u + 1.0;
    });
    One five(g, "five", {kReal}, [&](Expr) { return g.constant(5.f); });
    One both(g, "both", {kReal}, [&](Expr) {
      times.assign_add(1.0);
      return g.constant(6.f);
    });
    Two first(g, "first", {kReal, kReal}, [](Expr u, Expr) { return u * 7.0; });
    const Expr x = g.input("x", DType::f32, Shape{}), yes = g.input("yes", DType::boolean, Shape{});
    // depends on values from outside alone
    One outer(g, "outer", {kReal}, [&](Expr) { return times.assign_add(x); });
    const auto [no_side, yes_side] = control::switch_(x, yes);
    const auto either = [&, other = no_side](const Expr& r) {
      return control::merge({r, other}).value;
    };
    const std::vector<Expr> fetches{either(counts(yes_side)), either(five(yes_side)),
                                    either(both(yes_side)), either(first(x, yes_side)),
                                    either(outer(yes_side))};
    Somewhere there(s);
    compare(
        there.engine().run(g, {{x, Tensor::scalar(1.f)}, {yes, Tensor::scalar(false)}}, fetches),
        {Reals{1}, Reals{1}, Reals{1}, Reals{1}, Reals{1}}, s.name);
    BOOST_TEST(there.engine().get(times).item<float>() == 0.f, s.name);
    compare(there.engine().run(g, {{x, Tensor::scalar(1.f)}, {yes, Tensor::scalar(true)}}, fetches),
            {Reals{2}, Reals{5}, Reals{6}, Reals{7}, Reals{3}}, s.name);
    BOOST_TEST(there.engine().get(times).item<float>() == 3.f, s.name);
  }
}

BOOST_AUTO_TEST_CASE(draws_differ_from_call_to_call) {
  for (const Setting& s : settings()) {
    Graph g;
    One noisy(g, "noisy", {kReal}, [&](Expr x) { return x + g.random_uniform({4}); });
    GraphFunction<Expr(Expr)> deep(g, "deep", {kCount}, {{DType::f32, {4}}});
    deep.define([&](Expr n) {
      return cond(
          n > 0, [&] { return deep(n - 1); }, [&] { return noisy(0.0); });
    });
    std::vector<Expr> fetches{noisy(0.0), noisy(0.0), deep(1), deep(2)};
    EngineOptions options = options_of(s);
    options.seed = 0;
    std::vector<Tensor> got = Engine(options).run(g, {}, fetches),
                        again = Eager().run(g, {}, fetches);
    for (std::size_t i = 0; i < got.size(); ++i) {
      BOOST_TEST(numbers(got[i]) == numbers(again[i]), boost::test_tools::per_element());
      for (std::size_t k = 0; k < i; ++k) BOOST_TEST((numbers(got[i]) != numbers(got[k])), s.name);
    }
  }
}

BOOST_AUTO_TEST_CASE(wrong_functions_are_refused_while_building) {
  Graph g;
  Expr x = g.input("x", DType::f32, {3}), n = count(g, "n");
  One f(g, "f", {kReal}, [](Expr v) { return v; });
  BOOST_TEST(says(refused([&] { f(x); }), {"function 'f' (function_test.cpp:",
                                           "argument 0 is f32[3], and it takes f32[]"}));
  BOOST_TEST(says(refused([&] { f(n); }), {"function 'f'", "argument 0 is i64[]"}));
  One count(g, "count", {kCount}, [](Expr v) { return v; });
  BOOST_TEST(
      says(refused([&] { count(2.5); }), {"function_test.cpp:", "the literal 2.5 is no i64"}));
  BOOST_TEST(says(refused([&] { One(g, "f", {kReal}, {kReal}); }),
                  {"function 'f'", "the name is taken", "function_test.cpp:"}));
  BOOST_TEST(says(refused([&] { f.define([](Expr v) { return v; }); }),
                  {"function 'f'", "defined already"}));
  One later(g, "later", {kReal}, {kReal});
  BOOST_TEST(says(refused([&] { later(1.0); }), {"function 'later'", "not defined yet"}));
  One calls_later(g, "calls_later", {kReal}, [&](Expr v) { return later(v); });
  BOOST_TEST(says(refused([&] { calls_later(1.0); }),
                  {"function 'calls_later'", "a call of 'later', declared at function_test.cpp:"}));
  BOOST_TEST(says(refused([&] { later.define([&](Expr) { return x; }); }),
                  {"function 'later'", "result 0 is f32[3], and f32[] was declared"}));
  GraphFunction<std::tuple<Expr, Expr>(Expr)> two(g, "two", {kReal}, {kReal});
  BOOST_TEST(says(refused([&] { two.define([](Expr v) {
                                  return std::tuple{v, v};
                                }); }),
                  {"function 'two'", "yields 2 values, and 1 were declared"}));
  Expr leaked;
  One leaky(g, "leaky", {kReal}, [&](Expr v) {
    leaked = v + 1.0;
    return leaked;
  });
  BOOST_TEST(says(refused([&] { (void)(leaked * 2.0); }),
                  {"Mul at function_test.cpp:", "inside the body of function 'leaky'"}));
  BOOST_TEST(says(refused([&] {
                    cond(
                        n > 0,
                        [&] {
                          One inner(g, "inner", {kReal}, [](Expr v) { return v; });
                          return inner(1.0);
                        },
                        [&] { return g.constant(1.f); });
                  }),
                  {"function 'inner'", "declared inside the true branch of cond"}));
}

// Values past the end were read, in the body or where it was called.
BOOST_AUTO_TEST_CASE(a_signature_and_specs_that_disagree_are_refused) {
  Graph g;
  Eager e;
  for (Reader* r : {static_cast<Reader*>(&g), static_cast<Reader*>(&e)}) {
    const auto self = [](Expr x) { return x; };
    BOOST_TEST(says(refused([&] { One f(*r, "f", {}, self); }),
                    {"function 'f' (function_test.cpp:",
                     "its signature takes 1 values, and 0 parameters are given"}));
    BOOST_TEST(says(refused([&] { Two h(*r, "h", {kReal}, [](Expr a, Expr b) { return a + b; }); }),
                    {"function 'h' (function_test.cpp:", "takes 2 values, and 1 parameters"}));
    // a body of another structure does not compile: house/structures_test
  }
  GraphFunction<Exprs(Exprs)> few(e, "few", {kReal}, {kReal, kReal});
  few.define([](const Exprs& v) { return v; });
  BOOST_TEST(says(
      refused([&] { few(Exprs{e.constant(1.f)}); }),
      {"function 'few' (function_test.cpp:", "its body yields 1 values, and 2 were declared"}));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(recursion)

BOOST_AUTO_TEST_CASE(factorial) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr n = count(g, "n");
        One f = factorial_in(g);
        return {{{n, whole(10)}}, {f(n), f(1), f(5) + f(n - 7)}};
      },
      {Reals{3628800}, Reals{1}, Reals{126}}, 3);
}

BOOST_AUTO_TEST_CASE(fibonacci) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr n = count(g, "n");
        return {{{n, whole(12)}}, {fibonacci_in(g)(n)}};
      },
      {Reals{144}}, 3);
}

BOOST_AUTO_TEST_CASE(mutual) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        const ValueSpec truth{DType::boolean, Shape{}};
        Expr zero = g.input("zero", DType::i64, Shape{}), n = count(g, "n");
        One even(g, "even", {kCount}, {truth}), odd(g, "odd", {kCount}, {truth});
        even.define([&](Expr k) {
          return cond(
              k == zero, [&] { return g.constant(true); }, [&] { return odd(k - 1); });
        });
        odd.define([&](Expr k) {
          return cond(
              k == zero, [&] { return g.constant(false); }, [&] { return even(k - 1); });
        });
        return {{{zero, whole(0)}, {n, whole(31)}}, {even(n), odd(n), even(10), odd(10)}};
      },
      {Reals{0}, Reals{1}, Reals{1}, Reals{0}}, 2);
}

BOOST_AUTO_TEST_CASE(ackermann) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Two a(g, "ackermann", {kCount, kCount}, {kCount});
        a.define([&](Expr m, Expr n) {
          return cond(
              m == 0, [&] { return n + 1; },
              [&] {
                return cond(
                    n == 0, [&] { return a(m - 1, 1); }, [&] { return a(m - 1, a(m, n - 1)); });
              });
        });
        Expr m = count(g, "m");
        return {{{m, whole(2)}}, {a(m, 3)}};
      },
      {Reals{9}});
}

BOOST_AUTO_TEST_CASE(on_lists) {
  // Quicksort: lists through calls, and two calls whose results are joined.
  run_all_configurations(
      [](Graph& g) -> Scenario {
        const ValueSpec list = kReal.list_of();
        One sorted(g, "sorted", {list}, {list});
        sorted.define([&](Expr l) {
          return cond(
              list_length(l) < 2, [&] { return l; },
              [&] {
                auto [rest, pivot] = list_pop(l);
                auto [i, below, above] =
                    while_loop([&](Expr k, Expr, Expr) { return k < list_length(rest); },
                               [&](Expr k, Expr low, Expr high) {
                                 Expr x = list_read(rest, k);
                                 auto [next_low, next_high] = cond(
                                     x < pivot,
                                     [&] {
                                       return std::tuple{list_push(low, x), high};
                                     },
                                     [&] {
                                       return std::tuple{low, list_push(high, x)};
                                     });
                                 return std::tuple{k + 1, next_low, next_high};
                               },
                               std::tuple{g.constant(std::int64_t{0}), list_empty(g, kReal),
                                          list_empty(g, kReal)});
                Expr first = list_push(sorted(below), pivot), last = sorted(above);
                auto [j, all] =
                    while_loop([&](Expr k, Expr) { return k < list_length(last); },
                               [&](Expr k, Expr out) {
                                 return std::tuple{k + 1, list_push(out, list_read(last, k))};
                               },
                               std::tuple{g.constant(std::int64_t{0}), first});
                return all;
              });
        });
        Expr x = g.input("x", DType::f32, {kAny});
        return {{{x, Tensor::of<float>({5, 1, 4, 1, 9, 2, 6})}},
                {list_stack(sorted(list_unstack(x)))}};
      },
      {Reals{1, 1, 2, 4, 5, 6, 9}}, 2);
}

BOOST_AUTO_TEST_CASE(in_loops_and_around_them) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        One f = factorial_in(g);
        auto [i, s] =
            while_loop([](Expr n, Expr) { return n < 6; },
                       [&](Expr n, Expr sum) {
                         return std::tuple{n + 1, sum + f(n)};
                       },
                       std::tuple{g.constant(std::int64_t{1}), g.constant(std::int64_t{0})});
        // a loop whose body calls the function that it is in
        One nested(g, "nested", {kCount}, {kCount});
        nested.define([&](Expr n) {
          return std::get<1>(
              while_loop([&](Expr k, Expr) { return k < n; },
                         [&](Expr k, Expr sum) {
                           return std::tuple{k + 1, sum + nested(k)};
                         },
                         std::tuple{g.constant(std::int64_t{0}), g.constant(std::int64_t{1})}));
        });
        return {{}, {s, nested(6)}};
      },
      {Reals{153}, Reals{64}}, 2);
}

BOOST_AUTO_TEST_CASE(effects_of_a_recursion_are_in_order) {
  // Digits appended to a number, before and after the calls within.
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", Tensor::scalar(0.0));
        One walk(g, "walk", {kCount}, {kCount});
        auto digit = [&](const Expr& n) { v.assign(v.read() * 10.0 + cast(n, DType::f64)); };
        walk.define([&](Expr n) {
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
        return {{}, {leaves, from(1e9, 1e5), from(1e4, 1e5), from(1, 1e4), before}};
      },
      {Reals{5}, Reals{93210}, Reals{10203}, Reals{1010}, Reals{9}});
}

BOOST_AUTO_TEST_CASE(deep_tail_calls) {
  // Each result goes through the Merges of all callers, and each call ends with the one inside.
  for (bool optimize : {true, false}) {
    Graph g;
    GraphFunction<std::tuple<Expr, Expr>(Expr, Expr)> sum(g, "sum", {kCount, kCount},
                                                          {kCount, kCount});
    sum.define([&](Expr n, Expr s) {
      return cond(
          n == 0,
          [&] {
            return std::tuple{s, s};
          },
          [&] {
            auto [a, unused] = sum(n - 1, s + n);
            return std::tuple{a, n * n};
          });
    });
    Expr n = count(g, "n");
    auto [all, last] = sum(n, 0);
    EngineOptions options;
    options.workers = 1;
    options.optimize = optimize;
    Engine engine(options);
    Function f = engine.compile(g, {n}, {all, last});
    for (int i = 0; i < 3; ++i) BOOST_TEST(f({whole(9'999)})[0].item<std::int64_t>() == 49'995'000);
    // without the unused results it is another function than the first call's
    BOOST_TEST(says(refused([&] { f({whole(10'001)}); }),
                    {"function 'sum' (function_test.cpp:", "inside 10000 calls", "Call 'sum/",
                     "(function_test.cpp:"}));
    BOOST_TEST(f({whole(100)})[0].item<std::int64_t>() == 5050);
  }
}

BOOST_AUTO_TEST_CASE(the_depth_of_calls_is_limited) {
  for (const Setting& s : settings()) {
    Graph g;
    One forever(g, "forever", {kCount}, {kCount});
    forever.define([&](Expr n) { return forever(n + 1) + 1; });
    EngineOptions options = options_of(s);
    options.call_depth = 50;
    Engine engine(options);
    Expr r = forever(0);
    std::string error = refused([&] { engine.run(g, {}, {r}); });
    BOOST_TEST(says(error, {"function 'forever' (function_test.cpp:",
                            "is called at function_test.cpp:", "inside 50 calls"}),
               s.name);
    Expr x = factorial_in(g)(20);
    BOOST_TEST(engine.run(g, {}, {x})[0].item<std::int64_t>() == 2432902008176640000, s.name);
  }
  Graph g;
  One forever(g, "forever", {kCount}, {kCount});
  forever.define([&](Expr n) { return forever(n + 1); });
  Expr r = forever(0);
  BOOST_TEST(
      says(refused([&] { Eager().run(g, {}, {r}); }), {"function 'forever'", "inside 500 calls"}));
}

BOOST_AUTO_TEST_CASE(a_recursion_that_takes_for_ever_is_ended) {
  for (const Setting& s : settings()) {
    if (s.is_deterministic) continue;
    Graph g;
    One tree(g, "tree", {kCount}, {kCount});
    tree.define([&](Expr n) {
      return cond(
          n == 0, [&] { return g.constant(std::int64_t{1}); },
          [&] { return tree(n - 1) + tree(n - 1); });
    });
    Expr n = count(g, "n"), r = tree(n);
    Engine engine(options_of(s));
    ends_when_it_is_told_to(engine, g, n, r, s.name);
  }
}

BOOST_AUTO_TEST_CASE(an_error_deep_inside_names_its_place) {
  for (const Setting& s : settings()) {
    Graph g;
    Expr table = g.constant(Tensor::of<float>({1, 2, 3}, {3})), n = count(g, "n");
    One look(g, "look", {kCount}, {kReal});
    look.define([&](Expr k) {
      return cond(
          k > 5, [&] { return look(k - 1); }, [&] { return gather(table, k); });
    });
    Expr r = look(n);
    Engine engine(options_of(s));
    BOOST_TEST(says(refused([&] {
                      engine.run(g, {{n, whole(40)}}, {r});
                    }),
                    {"Gather 'look/", "(function_test.cpp:", "5"}),
               s.name);
    BOOST_TEST(engine.run(g, {{n, whole(2)}}, {r})[0].item<float>() == 3.f, s.name);
  }
}

BOOST_AUTO_TEST_CASE(several_runs_at_once) {
  Graph g;
  Expr n = count(g, "n"), r = fibonacci_in(g)(n);
  EngineOptions options;
  options.workers = 2;
  Engine engine(options);
  Function f = engine.compile(g, {n}, {r});
  std::vector<RunHandle> runs;
  for (std::int64_t i = 0; i < 15; ++i) runs.push_back(f.start({whole(i)}));
  const Reals expected{0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377};
  for (std::size_t i = 0; i < runs.size(); ++i)
    BOOST_TEST(numbers(runs[i].get()[0])[0] == expected[i]);
  BOOST_TEST(f.loops().empty());
}

// Each of n functions calls the one before twice: f_n(x) = x k (k + 1/2)^n.
BOOST_AUTO_TEST_CASE(calls_stay_where_bodies_would_be_too_many_nodes) {
  const auto calls_left = [](int n) {
    Graph g;
    Expr x = g.input("x", DType::f64, Shape{}), k = g.input("k", DType::f64, Shape{});
    const ValueSpec real{DType::f64, Shape{}};
    std::vector<One> all;
    for (int i = 0; i <= n; ++i)
      all.emplace_back(g, "f" + std::to_string(i), std::vector<ValueSpec>{real}, [&](Expr v) {
        return all.empty() ? v * k : all.back()(v * 0.5) + all.back()(v * k);
      });
    Expr y = all.back()(x), dy = gradients(y, x)[0];
    Engine engine({.workers = 2});
    const Function f = engine.compile(g, {x, k}, {y, dy});
    const std::vector<Tensor> got = f({Tensor::scalar(3.0), Tensor::scalar(0.5)});
    BOOST_TEST(got[0].item<double>() == 1.5);
    BOOST_TEST(got[1].item<double>() == 0.5);
    int calls = 0;
    const Program lowered = lower(prune(g, {x.edge(), k.edge()}, {y.edge(), dy.edge()}));
    for (const Node& node : lowered.graph.nodes()) calls += node.op->name == "Call";
    BOOST_TEST(lowered.graph.size() < 200'000);
    return calls;
  };
  BOOST_TEST(calls_left(5) == 0);
  BOOST_TEST(calls_left(14) > 0);
}

BOOST_AUTO_TEST_CASE(beside_other_devices) {
  // The function runs on one device; calls of it are in a loop that spans two.
  for (const char* home : {"", "cpu:1", "sim:0"}) {
    Graph g;
    One f = factorial_in(g);
    Expr n = count(g, "n");
    auto [i, s] = while_loop([&](Expr k, Expr) { return k < n; },
                             [&](Expr k, Expr sum) {
                               Expr called = [&] {
                                 auto there = g.on_device(home);
                                 return f(k);
                               }();
                               auto here = g.on_device("cpu:2");
                               return std::tuple{k + 1, sum + called};
                             },
                             std::tuple{g.constant(std::int64_t{1}), g.constant(std::int64_t{0})});
    EngineOptions options;
    options.workers = 2;
    Engine engine(options);
    BOOST_TEST(engine.run(g, {{n, whole(6)}}, {s})[0].item<std::int64_t>() == 153);
  }
}

BOOST_AUTO_TEST_CASE(eager) {
  Eager e;
  BOOST_TEST(factorial_in(e)(10).value().item<std::int64_t>() == 3628800);
  BOOST_TEST(fibonacci_in(e)(10).value().item<std::int64_t>() == 55);
  One forever(e, "forever", {kCount}, {kCount});
  forever.define([&](Expr n) { return forever(n + 1); });
  BOOST_TEST(says(refused([&] { forever(0); }),
                  {"function 'forever' (function_test.cpp:", "inside 500 calls"}));
  BOOST_TEST(says(refused([&] { forever(1.5f + e.constant(1.f)); }),
                  {"argument 0 is f32[], and it takes i64[]"}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
