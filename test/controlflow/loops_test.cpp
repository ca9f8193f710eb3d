// Loops, maps, folds and scans with known results, and what is refused of them.
#include <boost/test/unit_test.hpp>

#include <limits>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(loops)

BOOST_AUTO_TEST_CASE(counting) {  // W1
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr r = while_loop([](Expr x) { return x < 10000.0; }, [](Expr x) { return x + 1.0; },
                            scalar(g, 0), {.parallel_iterations = 20});
        return {{}, {r}};
      },
      {Reals{10000}});
}

BOOST_AUTO_TEST_CASE(structured_variables) {  // W2, W3
  struct State {
    Expr i, s;
    auto members() { return std::tie(i, s); }
  };
  for (int limit : {-1, 3})
    for (bool is_vector : {false, true})
      run_all_configurations(
          [&](Graph& g) -> Scenario {
            Expr s0 =
                is_vector ? g.constant(Tensor::of<float>({1, 2, 3, 4, 5}, {5})) : scalar(g, 0);
            WhileOptions o;
            o.maximum_iterations = limit;
            State last = while_loop([](State v) { return v.i < 10.0; },
                                    [](State v) {
                                      return State{v.i + 1.0, v.s + v.i};
                                    },
                                    State{scalar(g, 0), s0}, o);
            return {{}, {last.s}};
          },
          {limit < 0 ? (is_vector ? Reals{46, 47, 48, 49, 50} : Reals{45})
                     : (is_vector ? Reals{4, 5, 6, 7, 8} : Reals{3})},
          2);
}

BOOST_AUTO_TEST_CASE(a_bound_that_the_graph_computes) {
  for (DType dtype : {DType::i32, DType::i64})
    for (int most : {-2, 0, 3, 100})
      run_all_configurations(
          [&](Graph& g) -> Scenario {
            Expr n = g.input("n", dtype, {}), x = scalar(g, 2), a = scalar(g, 3);
            auto [i, r] = while_loop([](Expr j, Expr) { return j < 5; },
                                     [&](Expr j, Expr v) {
                                       return std::tuple{j + 1, v * a};
                                     },
                                     std::tuple{g.constant(0), x}, {.maximum_iterations = n + 1});
            return {{{n, Tensor::scalar_as(dtype, most - 1)}}, {i, r, gradients(r, a)[0]}};
          },
          [&] {
            const double trips = std::clamp(most, 0, 5);
            return std::vector<Reals>{
                {trips}, {2 * std::pow(3, trips)}, {2 * trips * std::pow(3, trips - 1)}};
          }());
  Eager e;
  Expr i = while_loop([](Expr j) { return j < 5; }, [](Expr j) { return j + 1; }, e.constant(0),
                      {.maximum_iterations = e.constant(2) + 1});
  BOOST_TEST(i.value().at(0) == 3);
}

BOOST_AUTO_TEST_CASE(several_variables) {  // W5
  run_all_configurations(
      [](Graph& g) -> Scenario {
        auto [n_end, m_end, c_end, o_end] =
            while_loop([](Expr n, Expr, Expr, Expr) { return n < 100; },
                       [](Expr n, Expr m, Expr c, Expr o) {
                         Expr m1 = m + 1.0, c1 = c + 1.0;
                         return std::tuple{n + 1, m1, c1, o + m1 + c1};
                       },
                       std::tuple{g.constant(0), scalar(g, 0), scalar(g, 0), scalar(g, 0)});
        return {{}, {o_end}};
      },
      {Reals{10100}}, 2);
}

BOOST_AUTO_TEST_CASE(growing_shapes) {  // W7, W8
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.constant(Tensor::of<float>({1, 2, 3, 4, 5, 6}, {6}));
        auto [i_end, o_end] =
            while_loop([](Expr i, Expr) { return i < 6; },
                       [&](Expr i, Expr o) {
                         return std::tuple{i + 1, concat({o, reshape(gather(x, i), {1})}, 0)};
                       },
                       std::tuple{g.constant(0), g.zeros(DType::f32, {1})},
                       {.shape_invariants = {std::nullopt, Shape{kAny}}});
        return {{}, {o_end}};
      },
      {Reals{0, 1, 2, 3, 4, 5, 6}}, 2);
  run_all_configurations(
      [](Graph& g) -> Scenario {
        auto [i_end, j_end] = while_loop([](Expr i, Expr) { return i < 2; },
                                         [](Expr i, Expr j) {
                                           Expr k = concat({j, j}, 0);
                                           return std::tuple{i + 1, concat({k, k}, 1)};
                                         },
                                         std::tuple{g.constant(0), g.ones(DType::f32, {2, 2})},
                                         {.shape_invariants = {std::nullopt, Shape::unknown()}});
        return {{}, {j_end}};
      },
      {Reals(64, 1.0)});
}

BOOST_AUTO_TEST_CASE(nested_loops) {  // W15
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr r = while_loop([](Expr x) { return x < 3000.0; },
                            [](Expr x) {
                              Expr inner = while_loop([](Expr s) { return s < 20.0; },
                                                      [](Expr s) { return s + s; }, x);
                              return square(inner);
                            },
                            scalar(g, 2), {.parallel_iterations = 1});
        return {{}, {r}};
      },
      {Reals{1048576}}, 2);
  // A loop in every iteration, over captured values of both.
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr a = g.input("a", DType::f32, Shape{});
        auto [i_end, s_end] = while_loop([](Expr i, Expr) { return i < 5; },
                                         [&](Expr i, Expr s) {
                                           auto [j_end, t_end] =
                                               while_loop([&](Expr j, Expr) { return j < i; },
                                                          [&](Expr j, Expr t) {
                                                            return std::tuple{j + 1, t + a};
                                                          },
                                                          std::tuple{g.constant(0), s});
                                           return std::tuple{i + 1, t_end};
                                         },
                                         std::tuple{g.constant(0), scalar(g, 0)});
        return {{{a, Tensor::scalar(2.f)}}, {s_end}};
      },
      {Reals{20}}, 3);
}

BOOST_AUTO_TEST_CASE(outside_controls_run_once) {  // W17, W18
  for (bool is_constant : {false, true})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Variable v = g.variable("v", Tensor::scalar(0.f));
          Expr bump = v.assign_add(1.0);
          Expr r = while_loop([](Expr i) { return i < 2.0; },
                              [&](Expr i) {
                                auto after = g.after({bump});
                                return is_constant ? scalar(g, 5) : i + 1.0;
                              },
                              scalar(g, 0));
          auto last = g.after({r});
          return {{}, {r, v.read()}};
        },
        {Reals{is_constant ? 5. : 2.}, Reals{1}});
}

BOOST_AUTO_TEST_CASE(a_constant_ordered_after_the_variable) {  // W19
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr r = while_loop([](Expr i) { return i < 10.0; },
                            [&](Expr i) {
                              auto after = g.after({i});
                              return scalar(g, 12);
                            },
                            scalar(g, 0));
        return {{}, {r}};
      },
      {Reals{12}}, 2);
}

BOOST_AUTO_TEST_CASE(loops_in_branches_and_branches_in_loops) {  // W21, W22
  for (bool yes : {true, false})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr n = scalar(g, 0), p = g.input("p", DType::boolean, Shape{});
          auto loop = [&] {
            return while_loop([](Expr x) { return x < 10.0; }, [](Expr x) { return x + 1.0; }, n);
          };
          return {{{p, Tensor::scalar(yes)}},
                  {cond(p, loop, [&] { return n; }), cond(
                                                         p, [&] { return n + 1.0; }, loop)}};
        },
        {Reals{yes ? 10. : 0.}, Reals{yes ? 1. : 10.}}, 2);
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr p = g.input("p", DType::boolean, Shape{});
        Expr r = while_loop([](Expr x) { return x < 10.0; },
                            [&](Expr x) {
                              return cond(
                                  p, [&] { return x + 1.0; }, [&] { return x - 1.0; });
                            },
                            scalar(g, 0));
        return {{{p, Tensor::scalar(true)}}, {r}};
      },
      {Reals{10}}, 2);
  run_all_configurations(
      [](Graph& g) -> Scenario {  // a predicate that changes, effects in both branches
        Variable even = g.variable("even", Tensor::scalar(0.f)),
                 odd = g.variable("odd", Tensor::scalar(0.f));
        Expr r = while_loop([](Expr i) { return i < 7; },
                            [&](Expr i) {
                              cond(
                                  mod(i, 2) == 0, [&] { return even.assign_add(1.0); },
                                  [&] { return odd.assign_add(1.0); });
                              return i + 1;
                            },
                            g.constant(0));
        auto last = g.after({r});
        return {{}, {even.read(), odd.read()}};
      },
      {Reals{4}, Reals{3}});
}

BOOST_AUTO_TEST_CASE(variables_in_loops) {  // W26, W28
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", Tensor::of<float>({3, 4, 5}, {3}));
        Expr r = while_loop([](Expr j) { return j < 3; },
                            [&](Expr j) {
                              v.scatter_update(reshape(j, {1}),
                                               g.constant(Tensor::of<float>({10}, {1})));
                              return j + 1;
                            },
                            g.constant(0));
        auto last = g.after({r});
        return {{}, {v.read()}};
      },
      {Reals{10, 10, 10}});
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable a = g.variable("a", Tensor::scalar(0.f)), b = g.variable("b", Tensor::scalar(0.f));
        Expr r = while_loop([](Expr i) { return i < 10; },
                            [&](Expr i) {
                              a.assign_add(1.0);
                              b.assign_add(a);
                              return i + 1;
                            },
                            g.constant(0));
        auto last = g.after({r});
        return {{}, {a.read(), b.read()}};
      },
      {Reals{10}, Reals{55}});
}

BOOST_AUTO_TEST_CASE(state_in_the_condition) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable n = g.variable("n", Tensor::scalar(0.f));
        Expr r = while_loop(
            &g, [&](Expr) { return n.read() < 6.0; }, [&](Expr s) { return s + n.assign_add(2.0); },
            scalar(g, 0));
        auto last = g.after({r});
        return {{}, {r, n.read()}};
      },
      {Reals{12}, Reals{6}});
}

BOOST_AUTO_TEST_CASE(queues_in_loops) {  // W30
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Queue q = g.fifo_queue("q", {{DType::i32, Shape{}}}, 100);
        Expr r = while_loop([](Expr i) { return i < 10; },
                            [&](Expr i) {
                              q.enqueue({i});
                              return i + 1;
                            },
                            g.constant(0));
        auto last = g.after({r});
        Expr out = map([&](Expr) { return q.dequeue()[0]; }, g.zeros(DType::f32, {10}));
        return {{}, {out}};
      },
      {Reals{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
}

BOOST_AUTO_TEST_CASE(draws_differ_by_iteration_and_agree_everywhere) {
  std::vector<Reals> first;
  auto build = [](Graph& g) -> Scenario {
    Expr all = map([&](Expr) { return g.random_uniform({2}); }, g.zeros(DType::f32, {4}));
    return {{}, {all}};
  };
  Graph g;
  Scenario s = build(g);
  Reals drawn = numbers(Eager().run(g, s.feeds, s.fetches)[0]);
  for (std::size_t i = 2; i < drawn.size(); ++i) BOOST_TEST(drawn[i] != drawn[i - 2]);
  for (const Setting& setting : settings()) {
    Graph again;
    Scenario t = build(again);
    EngineOptions o = options_of(setting);
    o.seed = 0;
    BOOST_TEST(numbers(Engine(o).run(again, t.feeds, t.fetches)[0]) == drawn,
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(maps_folds_and_scans) {  // F1, F7
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.constant(Tensor::of<float>({1, 2, 3, 4, 5, 6}, {6}));
        auto times = [](Expr a, Expr y) { return a * y; };
        Expr one = scalar(g, 1), two = scalar(g, 2);
        return {{},
                {map([](Expr y) { return (y + 3.0) * 2.0; }, x), scan(times, x, one),
                 scan(times, x, two), scan(times, x, one, {.reverse = true}),
                 scan(times, x, two, {.reverse = true}),
                 fold_left([](Expr a, Expr y) { return a - y; }, x, one),
                 fold_right([](Expr a, Expr y) { return a * 2.0 - y; }, x, one)}};
      },
      {Reals{8, 10, 12, 14, 16, 18}, Reals{1, 2, 6, 24, 120, 720}, Reals{2, 4, 12, 48, 240, 1440},
       Reals{720, 720, 360, 120, 30, 6}, Reals{1440, 1440, 720, 240, 60, 12}, Reals{-20},
       Reals{64 - 6 * 32 - 5 * 16 - 4 * 8 - 3 * 4 - 2 * 2 - 1}},
      2);
  run_all_configurations(
      [](Graph& g) -> Scenario {  // several elements, several states
        Expr x = g.constant(Tensor::of<float>({1, 2, 3}, {3})),
             y = g.constant(Tensor::of<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
        auto [s, p] = scan(
            [](std::tuple<Expr, Expr> state, std::tuple<Expr, Expr> element) {
              auto [a, b] = state;
              auto [u, w] = element;
              return std::tuple{a + u, b + w};
            },
            std::tuple{x, y}, std::tuple{scalar(g, 0), g.zeros(DType::f32, {2})});
        return {{}, {s, p, map([](Expr u, Expr w) { return u * w; }, std::tuple{x, y})}};
      },
      {Reals{1, 3, 6}, Reals{1, 2, 4, 6, 9, 12}, Reals{1, 2, 6, 8, 15, 18}}, 2);
}

BOOST_AUTO_TEST_CASE(a_state_that_grows) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.constant(Tensor::of<float>({1, 2, 3}, {3}));
        return {{},
                {fold_left(
                    [](Expr s, Expr u) {
                      return concat({s, expand_dims(u * 2.0, 0)}, 0);
                    },
                    x, g.zeros(DType::f32, {1}), {.shape_invariants = {Shape{kAny}}})}};
      },
      {Reals{0, 2, 4, 6}});
  Graph g;
  Expr x = g.input("x", DType::f64, Shape{}), e = g.constant(Tensor::of<double>({1, 2}, {2}));
  Expr y = fold_left([&](Expr s, Expr u) { return s * x + u; }, e, x, {.back_prop = false});
  BOOST_TEST(Engine().run(g, {{x, Tensor::scalar(3.0)}}, gradients(y + x, {x}))[0].at(0) == 1);
}

// Operands that are iterated together must be equally long: the longer was cut to the first.
BOOST_AUTO_TEST_CASE(elements_of_unequal_length_are_refused) {
  Graph g;
  auto add = [](Expr s, std::tuple<Expr, Expr> x) { return s + std::get<0>(x) * std::get<1>(x); };
  Expr three = g.ones(DType::f32, {3}), four = g.ones(DType::f32, {4}), one = scalar(g, 1);
  BOOST_TEST(says(refused([&] {
                    scan(add, std::tuple{three, four}, one, {.name = "both"});
                  }),
                  {"scan 'both' (loops_test.cpp:", "elements 0 and 1 are 3 and 4 long on axis 0"}));
  BOOST_TEST(says(refused([&] {
                    map([](Expr a, Expr b) { return a * b; }, std::tuple{four, three});
                  }),
                  {"map (", "4 and 3 long"}));
  BOOST_TEST(says(refused([&] {
                    fold_right(add, std::tuple{three, four}, one);
                  }),
                  {"fold (", "3 and 4 long"}));
  BOOST_TEST(says(refused([&] {
                    dynamic_rnn(
                        [](Expr h, std::tuple<Expr, Expr> x) {
                          return h + std::get<0>(x) + std::get<1>(x);
                        },
                        std::tuple{g.ones(DType::f32, {2, 1, 3}), g.ones(DType::f32, {5, 1, 3})},
                        g.zeros(DType::f32, {1, 3}));
                  }),
                  {"dynamic_rnn (loops_test.cpp:", "2 and 5 long"}));
  Expr a = g.input("a", DType::f32, {kAny}), b = g.input("b", DType::f32, {kAny});
  Expr y = map([](Expr p, Expr q) { return p * q; }, std::tuple{a, b}),
       d = gradients(sum(y), {b})[0];
  const Tensor two_long = Tensor::of<float>({1, 2}, {2}),
               four_long = Tensor::of<float>({1, 2, 3, 4}, {4});
  for (const Setting& s : settings()) {
    Engine engine(options_of(s));
    BOOST_TEST(says(refused([&] {
                      engine.run(g, {{a, two_long}, {b, four_long}}, {y, d});
                    }),
                    {"ListLength", "loops_test.cpp:", "2 elements and 4"}),
               s.name);
    BOOST_TEST(numbers(engine.run(g, {{a, two_long}, {b, two_long}}, {d})[0]) == (Reals{1, 2}),
               boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(no_elements_of_a_shape_known_in_the_run) {
  Graph g;
  Expr x = g.input("x", DType::f64, {kAny, kAny}), y = map([](Expr r) { return r * 2.0; }, x),
       d = gradients(sum(y), {x})[0];
  for (const Setting& s : settings()) {
    Engine engine(options_of(s));
    const auto out = engine.run(g, {{x, Tensor::of<double>({}, {0, 3})}}, {y, d});
    BOOST_TEST(out[0].elements() == 0);
    BOOST_TEST(out[1].shape().text() == "[0, 3]");
  }
}

BOOST_AUTO_TEST_CASE(values_of_two_loops_do_not_meet) {
  Graph g;
  Expr leak;
  auto few = [](Expr i) { return i < 3; };
  while_loop(few,
             [&](Expr i) {
               leak = i * 2;
               return i + 1;
             },
             g.constant(0), {.name = "first"});
  BOOST_TEST(
      says(refused([&] {
             while_loop(few, [&](Expr i) { return i + leak; }, g.constant(0), {.name = "second"});
           }),
           {"Add at loops_test.cpp:", "different frames", "Mul", "the body of while_loop 'first'",
            "Input", "the body of while_loop 'second'", "only the results"}));
}

BOOST_AUTO_TEST_CASE(an_integer_that_should_be_a_float_is_reported) {
  Graph g;
  Expr x = g.ones(DType::f32, {3});
  const auto add = [](Expr a, Expr b) { return a + b; };
  BOOST_TEST(says(refused([&] { fold_left(add, x, 0, {.name = "total"}); }),
                  {"Add", "i64[]", "f32[]",
                   "part 0 of the state of fold 'total' (loops_test.cpp:", "write 0.0 for f32"}));
  BOOST_TEST(says(refused([&] {
                    while_loop([](Expr i, Expr) { return i < 3; },
                               [&](Expr i, Expr v) {
                                 return std::tuple{i + 1, v * x};
                               },
                               std::tuple{g.constant(0), 7});
                  }),
                  {"variable 1 of while_loop (loops_test.cpp:",
                   "the number 7, which is i64: write 7.0 for f32"}));
  const auto three = [&](auto next) {
    return refused([&] {
      while_loop([](Expr i, Expr, Expr) { return i < 3; },
                 [&](Expr i, Expr v, Expr w) {
                   return std::tuple{i + 1, next(v), w};
                 },
                 std::tuple{g.constant(0), 7, 8});
    });
  };
  BOOST_TEST(says(three([&](Expr v) { return v * x; }),
                  {"; variable 1 of while_loop (",
                   "write 7.0 for f32; or variable 2 of while_loop (", "write 8.0 for f32"}));
  const std::string other = three([](Expr v) { return matmul(v, v); });
  BOOST_TEST(says(other, {"MatMul", "i64[]"}));
  BOOST_TEST(other.find("starts as the number") == std::string::npos, other);
  Eager e;
  BOOST_TEST(says(refused([&] { fold_left(add, e.ones(DType::f32, {3}), 0); }),
                  {"part 0 of the state of fold (loops_test.cpp:"}));
  BOOST_TEST((fold_left(add, x, 0.0).dtype() == DType::f32));
  BOOST_TEST((fold_left([](Expr n, Expr) { return n + 1; }, x, 0).dtype() == DType::i64));
}

BOOST_AUTO_TEST_CASE(literals_that_branches_and_bodies_yield_are_exact) {
  constexpr std::int64_t odd = (std::int64_t{1} << 53) + 1;  // no double
  for (const Setting& s : settings()) {
    Graph g;
    auto [n, last] = while_loop([](Expr i, Expr) { return i < 2; },
                                [&](Expr i, Expr) {
                                  return std::tuple{i + 1, odd};
                                },
                                std::tuple{g.constant(0), g.constant(std::int64_t{5})},
                                {.maximum_iterations = std::numeric_limits<std::int64_t>::max()});
    Expr chosen = cond(
        n == 2, [&] { return odd; }, [] { return 5; });
    GraphFunction<Expr(Expr)> same(g, "same", {{DType::i64, Shape{}}}, [](Expr x) { return x; });
    for (const Tensor& t : Engine(options_of(s)).run(g, {}, {last, chosen, same(odd)}))
      BOOST_TEST(t.item<std::int64_t>() == odd, s.name);
  }
}

BOOST_AUTO_TEST_CASE(any_window_may_be_asked_for) {
  for (const Setting& s : settings()) {
    Graph g;
    Expr n = while_loop([](Expr i) { return i < 5; }, [](Expr i) { return i + 1; }, g.constant(0),
                        {.parallel_iterations = std::numeric_limits<int>::max()});
    BOOST_TEST(Engine(options_of(s)).run(g, {}, {n})[0].at(0) == 5, s.name);
  }
}

BOOST_AUTO_TEST_CASE(lists_in_loops) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        auto [i_end, list_end] =
            while_loop([](Expr i, Expr) { return i < 4; },
                       [](Expr i, Expr l) {
                         return std::tuple{i + 1, list_push(l, cast(i, DType::f32))};
                       },
                       std::tuple{g.constant(0), list_empty(g, {DType::f32, Shape{}})});
        return {{}, {list_stack(list_end), list_read(list_end, 2), list_length(list_end)}};
      },
      {Reals{0, 1, 2, 3}, Reals{2}, Reals{4}}, 2);
}

// Loops keep to the same rules at once and in a graph.
BOOST_AUTO_TEST_CASE(eager_loops_keep_to_the_rules) {
  Eager e;
  Graph g;
  const std::vector<std::pair<Expr, Expr>> starts{{e.constant(1.f), e.ones(DType::f32, {2})},
                                                  {g.constant(1.f), g.ones(DType::f32, {2})}};
  for (const auto& [one, two] : starts) {
    auto few = [](Expr x) { return sum(x) < 100.0; };
    BOOST_TEST(says(
        refused([&] {
          while_loop(few, [](Expr x) { return cast(x * 2.0, DType::f64); }, one, {.name = "wide"});
        }),
        {"while_loop 'wide' (loops_test.cpp:",
         "variable 0 is f32[] at first and f64[] after one iteration", "keep its dtype"}));
    BOOST_TEST(says(refused([&] {
                      while_loop(
                          few,
                          [](Expr x) {
                            return concat({x, x}, 0);
                          },
                          two);
                    }),
                    {"while_loop (", "variable 0 is f32[2] at first and f32[4] after one iteration",
                     "shape invariant"}));
    BOOST_TEST(refused([&] {
                 while_loop(few,
                            [](Expr x) {
                              return concat({x, x}, 0);
                            },
                            two, {.shape_invariants = {Shape{kAny}}});
               }) == "nothing was thrown");
    BOOST_TEST(says(refused([&] {
                      while_loop(few, [](Expr x) { return x; }, two,
                                 {.shape_invariants = {Shape{3}}});
                    }),
                    {"variable 0 starts as f32[2]", "does not cover"}));
    BOOST_TEST(says(refused([&] {
                      while_loop(few, [](Expr x) { return x; }, one, {.maximum_iterations = -5});
                    }),
                    {"maximum_iterations is -5", "-1 where there is none"}));
    BOOST_TEST(says(refused([&] {
                      while_loop(few, [](Expr x) { return x; }, one, {.parallel_iterations = 0});
                    }),
                    {"parallel_iterations must be at least 1"}));
    BOOST_TEST(
        says(refused([&] {
               scan([](Expr s, Expr) { return cast(s, DType::f64); }, two, one, {.name = "sums"});
             }),
             {"scan 'sums' (loops_test.cpp:",
              "part 0 of the state is f32[] at first and f64[] after one step", "keep its dtype"}));
    BOOST_TEST(
        says(refused([&] {
               fold_left(
                   [](std::tuple<Expr, Expr> s, Expr) {
                     return std::tuple{std::get<0>(s), concat({std::get<1>(s), std::get<1>(s)}, 0)};
                   },
                   two, std::tuple{one, two});
             }),
             {"fold (", "part 1 of the state is f32[2] at first and f32[4] after one step",
              "shape invariant"}));
    BOOST_TEST(refused([&] {
                 fold_left(
                     [](Expr s, Expr) {
                       return concat({s, s}, 0);
                     },
                     two, two, {.shape_invariants = {Shape{kAny}}});
               }) == "nothing was thrown");
  }
}

BOOST_AUTO_TEST_CASE(wrong_loops_are_refused_while_building) {
  Graph g;
  Expr i = g.constant(0), x = g.ones(DType::f32, {2, 2});
  BOOST_TEST(says(refused([&] {  // W9
                    while_loop([](Expr n, Expr) { return n < 2; },
                               [](Expr n, Expr j) {
                                 return std::tuple{n + 1, concat({j, j}, 0)};
                               },
                               std::tuple{i, x}, {.name = "grow"});
                  }),
                  {"while_loop 'grow' (loops_test.cpp:", "variable 1", "f32[2, 2]", "f32[4, 2]",
                   "after one iteration", "shape invariant"}));
  BOOST_TEST(says(refused([&] {
                    while_loop([&](Expr n) { return n < x; }, [](Expr n) { return n; },
                               cast(i, DType::f32));
                  }),
                  {"while_loop (", "condition must yield a bool scalar", "bool[2, 2]"}));
  BOOST_TEST(
      says(refused([&] { while_loop([](Expr n) { return n; }, [](Expr n) { return n; }, i); }),
           {"condition must yield a bool scalar", "i32[]"}));
  BOOST_TEST(says(refused([&] {
                    while_loop([](Expr n) { return n < 2; }, [](Expr) { return 2.5; }, i,
                               {.name = "half"});
                  }),
                  {"the body of while_loop 'half' (loops_test.cpp:", "value 0", "2.5 is no i32"}));
  BOOST_TEST(says(refused([&] {
                    while_loop([](Expr n) { return n < 2; }, [](Expr n) { return n + 1; }, i,
                               {.name = "most", .maximum_iterations = x});
                  }),
                  {"while_loop 'most' (loops_test.cpp:",
                   "maximum_iterations must be an i32 or i64 scalar, not f32[2, 2]"}));
  BOOST_TEST(says(refused([&] {
                    while_loop([](Expr n) { return n < 2; }, [](Expr n) { return n + 1; }, i,
                               {.maximum_iterations = 2.5});
                  }),
                  {"maximum_iterations", "loops_test.cpp:", "2.5 is no i64"}));
  BOOST_TEST(says(refused([&] {
                    while_loop([](Expr n) { return n < 2; }, [](Expr n) { return n + 1; }, i,
                               {.maximum_iterations = -2});
                  }),
                  {"maximum_iterations is -2"}));
  BOOST_TEST(says(refused([&] {
                    while_loop(
                        &g, [&] { return i < 2; }, [] { return std::tuple<>{}; }, std::tuple<>{});
                  }),
                  {"loops_test.cpp:", "has no variables"}));
  BOOST_TEST(says(refused([&] {
                    while_loop([](Expr n) { return n < 2; },
                               [](Expr n) { return cast(n, DType::f32); }, i);
                  }),
                  {"variable 0", "i32[]", "f32[]", "dtype"}));
  BOOST_TEST(says(refused([&] {
                    Expr inner;
                    while_loop([](Expr n) { return n < 2; },
                               [&](Expr n) {
                                 inner = n * 3;
                                 return n + 1;
                               },
                               i, {.name = "hidden"});
                    Engine engine;
                    engine.run(g, {}, {inner});
                  }),
                  {"fetch 0", "the body of while_loop 'hidden'"}));  // P16
}

BOOST_AUTO_TEST_CASE(a_loop_without_end_is_stopped) {  // W32
  const Setting real[]{{"two workers", 2, Granularity::partition, false},
                       {"an actor an op", 2, Granularity::op, false},
                       cluster_settings()[0]};
  for (const Setting& s : real) {
    Graph g;
    Expr forever = while_loop([](Expr x) { return x >= 0.0; }, [](Expr x) { return x * 1.0 + 0.0; },
                              scalar(g, 1)),
         y = scalar(g, 1) + 1.0;
    Somewhere there(s);
    Engine& engine = there.engine();
    RunOptions quick;
    quick.timeout = std::chrono::milliseconds(1);
    std::string why = refused([&] { engine.run(g, {}, {forever}, quick); });
    BOOST_TEST(says(why, {"time-out"}), s.name << ": " << why);
    RunHandle h = engine.start(g, {}, {forever});
    h.cancel();
    BOOST_TEST((h.wait().code() == Code::cancelled));
    BOOST_TEST(engine.run(g, {}, {y})[0].item<float>() == 2.f);
  }
}

BOOST_AUTO_TEST_CASE(a_loop_reports_its_bottleneck) {
  // Independent bodies run ahead as far as they may; a chain cannot.
  for (bool is_chain : {false, true}) {
    Graph g;
    Expr x = g.ones(DType::f32, {64, 64});
    auto [n_end, s_end] = while_loop([](Expr i, Expr) { return i < 50; },
                                     [&](Expr i, Expr s) {
                                       Expr of = is_chain ? s : x + cast(i, DType::f32);
                                       Expr y = tanh(matmul(of, x) * 0.01);
                                       return std::tuple{i + 1, is_chain ? y : s + sum(y) * 0.0};
                                     },
                                     std::tuple{g.constant(0), is_chain ? x : scalar(g, 1)},
                                     {.name = "work", .parallel_iterations = 4});
    Engine engine;
    CompileOptions in_nodes;  // whose iterations overlap
    in_nodes.resident_loops = false;
    Function f = engine.compile(g, {}, {n_end, s_end}, in_nodes);
    f({});
    f({});
    std::vector<LoopReport> reports = f.loops();
    BOOST_REQUIRE_EQUAL(reports.size(), 1u);
    const LoopReport& r = reports[0];
    BOOST_TEST_MESSAGE(r.text());
    BOOST_TEST(r.executions == 2u);
    BOOST_TEST(r.iterations == 100u);
    BOOST_TEST(r.parallel_iterations == 4);
    BOOST_TEST(r.most_parallel <= 4u);
    BOOST_TEST(r.achieved_parallelism >= 1.0);
    BOOST_TEST(r.iteration_us > 0.0);
    BOOST_TEST(r.recurrence_us <= r.iteration_us);
    if (is_chain) {
      // The product and the tanh stand between a value and the next: nearly all of an iteration.
      BOOST_TEST(says(r.limiting_dependence, {"Fused 'work/", "loops_test.cpp:"}));
      BOOST_TEST(r.recurrence_us > 0.5 * r.iteration_us);
    } else {
      BOOST_TEST(r.recurrence_us < 0.5 * r.iteration_us);
      BOOST_TEST(r.limited_by_window > 0.5);  // the limit was seen to bind
    }
  }
}

BOOST_AUTO_TEST_CASE(an_error_in_a_loop_ends_it) {
  for (const Setting& s : settings()) {
    Graph g;
    Expr table = g.constant(Tensor::of<float>({1, 2, 3}, {3}));
    auto [i_end, sum_end] = while_loop([](Expr i, Expr) { return i < 1000000000; },
                                       [&](Expr i, Expr a) {
                                         return std::tuple{i + 1, a + gather(table, i)};
                                       },
                                       std::tuple{g.constant(0), scalar(g, 0)}, {.name = "reads"});
    Engine engine(options_of(s));
    std::string why = refused([&] { engine.run(g, {}, {sum_end}); });
    BOOST_TEST(says(why, {"Gather 'reads/", "loops_test.cpp:"}), s.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
