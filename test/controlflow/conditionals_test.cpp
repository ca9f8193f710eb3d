// Conditionals with known results, and what is refused of them.
#include <boost/test/unit_test.hpp>

#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(conditionals)

BOOST_AUTO_TEST_CASE(the_predicate_chooses) {  // C1, C2
  for (bool less : {true, false})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x = g.input("x", DType::f32, Shape{}), one = scalar(g, 1);
          Expr r = cond(
              less ? one < 2.0 : one < 0.0, [&] { return x + 1.0; }, [&] { return x - 1.0; });
          return {{{x, Tensor::scalar(10.f)}}, {r}};
        },
        {Reals{less ? 11. : 9.}}, 3);
}

BOOST_AUTO_TEST_CASE(nested) {  // C3
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.input("x", DType::f32, Shape{}), yes = scalar(g, 1) < 2.0;
        Expr r = cond(
            yes,
            [&] {
              return 1.0 + cond(
                               yes, [&] { return x + 1.0; }, [&] { return x - 1.0; });
            },
            [&] { return x - 1.0; });
        return {{{x, Tensor::scalar(10.f)}}, {r}};
      },
      {Reals{12}}, 3);
}

BOOST_AUTO_TEST_CASE(several_results) {  // C6
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = scalar(g, 10), y = scalar(g, 200);
        auto [a, b] = cond(
            x < y,
            [&] {
              return std::tuple{x + 1.0, x + 2.0};
            },
            [&] {
              return std::tuple{y, y};
            });
        return {{}, {a, b}};
      },
      {Reals{11}, Reals{12}});
}

BOOST_AUTO_TEST_CASE(all_effects_of_the_taken_branch) {  // C28
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v1 = g.variable("v1", Tensor::scalar(7.f)),
                 v2 = g.variable("v2", Tensor::scalar(7.f)),
                 v3 = g.variable("v3", Tensor::scalar(7.f));
        Expr three = scalar(g, 3);
        auto [a, b] = cond(
            three > 2.0,
            [&] {
              return std::tuple{v1.assign(1.0), v2.assign(2.0)};
            },
            [&] {
              Expr c = v3.assign(3.0);
              return std::tuple{c, c};
            });
        auto after = g.after({b});
        return {{}, {b, v1.read(), v2.read(), v3.read()}};
      },
      {Reals{2}, Reals{1}, Reals{2}, Reals{7}});
}

BOOST_AUTO_TEST_CASE(for_its_effects_alone) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", Tensor::scalar(7.f)), w = g.variable("w", Tensor::scalar(7.f));
        Expr yes = when(scalar(g, 1) < 2.0, [&] { v.assign(1.0); }),
             no = when(scalar(g, 1) > 2.0, [&] { w.assign(1.0); });
        auto after = g.after({yes, no});
        return {{}, {cast(yes, DType::i32), cast(no, DType::i32), v.read(), w.read()}};
      },
      {Reals{1}, Reals{0}, Reals{1}, Reals{7}});
}

BOOST_AUTO_TEST_CASE(branches_that_share_states_take_turns) {  // one order token for a and b
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable a = g.variable("a", Tensor::scalar(1.f)), b = g.variable("b", Tensor::scalar(2.f));
        auto swap = [&] {
          Expr old = a.read();
          a.assign(b);
          b.assign_add(old);
        };
        Expr i = while_loop([](Expr n) { return n < 6; },
                            [&](Expr n) {
                              when(mod(n, 2) == 0, swap);
                              when(n > 3, [&] {
                                b.assign(a * 10.0);
                                a.assign_add(b);
                              });
                              return n + 1;
                            },
                            g.constant(std::int64_t{0}));
        auto after = g.after({i});
        return {{}, {a.read(), b.read()}};
      },
      {Reals{605}, Reals{550}});
}

BOOST_AUTO_TEST_CASE(a_branch_holds_up_only_its_own_states_where_there_are_queues) {
  // The element that b waits for comes after a has been read.
  Graph g;
  Variable a = g.variable("a", Tensor::scalar(0.f)), b = g.variable("b", Tensor::scalar(0.f));
  Queue q = g.fifo_queue("q", {{DType::f32, Shape{}}}, 1);
  Expr element = q.dequeue()[0];
  Expr done = when(scalar(g, 1) < 2.0, [&] {
    a.assign(5.0);
    b.assign(element);
  });
  Expr put = q.enqueue({a.read()});
  Engine engine({.deterministic = true});
  engine.run(g, {}, {done, put});
  BOOST_TEST(engine.get(b).item<float>() == 5.f);
}

BOOST_AUTO_TEST_CASE(the_other_branch_never_runs) {  // C29
  for (const Setting& s : all_settings()) {
    Graph g;
    Variable v = g.variable("v", Tensor::scalar(7.f));
    Expr c = g.input("c", DType::i32, Shape{});
    Expr r = cond(
        c >= 1, [&] { return v.assign(1.0); }, [&] { return v.assign(2.0); });
    Somewhere there(s);
    for (int i : {2, 0, 5}) {
      there.engine().run(g, {{c, Tensor::scalar(i)}}, {r});
      BOOST_TEST(there.engine().get(v).item<float>() == (i >= 1 ? 1.f : 2.f), s.name);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_choice_of_several) {  // C32
  for (auto [k, expected] : {std::pair{0, 2.}, {1, 3.}, {2, 4.}, {-1, 4.}, {6, 4.}})
    run_all_configurations(
        [&](Graph& g) -> Scenario {
          Expr x = scalar(g, 1), index = g.input("k", DType::i32, Shape{});
          std::vector<std::function<Expr()>> branches{
              [&] { return 2.0 * x; }, [&] { return 3.0 * x; }, [&] { return 4.0 * x; }};
          return {{{index, Tensor::scalar(k)}}, {switch_case(index, branches)}};
        },
        {Reals{expected}}, 2);
}

// The branch is known, and the fetched result is none of the branch's effects.
BOOST_AUTO_TEST_CASE(effects_of_the_only_branch_run_with_any_result) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Variable v = g.variable("v", Tensor::scalar(7.f));
    Expr x = g.input("x", DType::f32, Shape{});
    const std::vector<std::function<Expr()>> branches{[&] {
      v.assign(2.0);
      return x;
    }};
    Expr r = switch_case(g.constant(0), branches);
    Somewhere there(s);
    BOOST_TEST(there.engine().run(g, {{x, Tensor::scalar(3.f)}}, {r})[0].item<float>() == 3.f);
    BOOST_TEST(there.engine().get(v).item<float>() == 2.f, s.name);
  }
}

BOOST_AUTO_TEST_CASE(nodes_of_a_branch_run_only_when_it_is_taken) {
  // An op on outer values, a constant, a random draw and a failing op: none runs unless its branch
  // does.
  for (const Setting& s : settings()) {
    Graph g;
    Expr x = g.input("x", DType::i64, Shape{1}), yes = g.input("yes", DType::boolean, Shape{});
    Expr table = g.constant(Tensor::of<float>({1, 2, 3}, {3}));
    Expr r = cond(
        yes, [&] { return gather(table, x); }, [&] { return g.random_uniform({1}) + 100.0; });
    Engine engine(options_of(s));
    Tensor outside = Tensor::of<std::int64_t>({77}, {1}),
           inside = Tensor::of<std::int64_t>({2}, {1});
    BOOST_TEST(
        numbers(engine.run(g, {{x, outside}, {yes, Tensor::scalar(false)}}, {r})[0])[0] >= 100.0,
        s.name);
    BOOST_TEST(numbers(engine.run(g, {{x, inside}, {yes, Tensor::scalar(true)}}, {r})[0])[0] == 3.0,
               s.name);
    BOOST_CHECK_THROW(engine.run(g, {{x, outside}, {yes, Tensor::scalar(true)}}, {r}), Error);
    BOOST_TEST(numbers(engine.run(g, {{x, inside}, {yes, Tensor::scalar(true)}}, {r})[0])[0] == 3.0,
               s.name);
  }
}

BOOST_AUTO_TEST_CASE(wrong_conditionals_are_refused_while_building) {
  Graph g;
  Expr x = g.input("x", DType::f32, {3}), p = g.input("p", DType::boolean, {3}),
       f = g.input("f", DType::f32, Shape{});
  auto self = [&] { return x; };
  BOOST_TEST(says(refused([&] { cond(p, self, self, {.name = "pick"}); }),
                  {"cond 'pick' (conditionals_test.cpp:", "must be a scalar", "bool[3]"}));
  BOOST_TEST(says(refused([&] { cond(f, self, self); }),
                  {"cond (conditionals_test.cpp:", "must be bool", "f32[]"}));
  Expr yes = f > 0.0;
  BOOST_TEST(says(refused([&] { cond(yes, self, [&] { return cast(x, DType::i32); }); }),
                  {"cond (", "output 0", "f32", "i32", "the true branch"}));
  BOOST_TEST(says(refused([&] {
                    Expr inner;
                    cond(yes,
                         [&] {
                           inner = x * 2.0;
                           return inner;
                         },
                         self, {.name = "leak"});
                    (void)(inner + 1.0);
                  }),
                  {"Add at conditionals_test.cpp:", "inside the true branch of cond 'leak'"}));
}

BOOST_AUTO_TEST_CASE(eager) {
  Eager e;
  Expr x = e.constant(10.f);
  BOOST_TEST(cond(
                 x > 3.0, [&] { return x + 1.0; }, [&] { return x - 1.0; })
                 .value()
                 .item<float>() == 11.f);
  auto [i_end, s_end] =
      while_loop([](Expr i, Expr) { return i < 10; },
                 [](Expr i, Expr s) {
                   return std::tuple{i + 1, s + i};
                 },
                 std::tuple{e.constant(std::int64_t{0}), e.constant(std::int64_t{0})});
  BOOST_TEST(s_end.value().item<std::int64_t>() == 45);
  Expr all = scan([](Expr a, Expr y) { return a * y; },
                  e.constant(Tensor::of<float>({1, 2, 3, 4}, {4})), e.constant(2.f));
  BOOST_TEST(numbers(all.value()) == (Reals{2, 4, 12, 48}), boost::test_tools::per_element());
}

// Over no elements nothing is computed, and what comes out has the shape that it would have.
BOOST_AUTO_TEST_CASE(eager_over_no_elements) {
  Eager e;
  Expr none = e.constant(Tensor::of<float>({}, {0, 3})), start = e.zeros(DType::f32, {3});
  int calls = 0;
  auto step = [&](Expr s, Expr x) { return ++calls, s + x; };
  BOOST_TEST(scan(step, none, start).shape().text() == "[0, 3]");
  BOOST_TEST(fold_left(step, none, start).shape().text() == "[3]");
  auto [doubled, sums] = map([](Expr x) { return std::tuple{x * 2.0, sum(x) % 2.0}; }, none);
  BOOST_TEST(doubled.shape().text() == "[0, 3]");
  BOOST_TEST(sums.shape().text() == "[0]");
  BOOST_TEST((doubled.dtype() == DType::f32 && sums.dtype() == DType::f32));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
