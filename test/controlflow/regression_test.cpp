// Programs that once went wrong, found by random_programs_test or by reading, and made small.
#include <boost/test/unit_test.hpp>

#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(regression_test)

namespace {

using V = std::vector<double>;

}  // namespace

// A second read after a write did not wait for it: the first read stood in the write's place.
BOOST_AUTO_TEST_CASE(every_read_after_a_write_sees_it) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", Tensor::scalar(1.f));
        Expr i = while_loop([](Expr n) { return n < 3; },
                            [&](Expr n) {
                              v.read();
                              v.assign(v.read() * 0.5 + 1.0);
                              return n + 1;
                            },
                            g.constant(0));
        auto last = g.after({i});
        return {{}, {v.read()}};
      },
      {V{1.875}}, 1);
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", Tensor::scalar(0.f));
        // The assigned value takes long to compute: a read that does not wait is faster.
        Expr late = while_loop([](Expr n) { return n < 20.0; }, [](Expr n) { return n + 1.0; },
                               g.constant(0.f));
        Expr set = v.assign_add(late), first = v.read(), second = v.read();
        return {{}, {set, first, second}};
      },
      {V{20}, V{20}, V{20}});
}

// An op that stands only beside an unused read was computed, and could fail: a read is no effect
// that has to happen.
BOOST_AUTO_TEST_CASE(an_unused_read_keeps_nothing) {
  Graph g;
  Variable v = g.variable("v", Tensor::scalar(1.f));
  Expr none = list_empty(g, {DType::f32, Shape{}}), n = g.input("n", DType::i64, Shape{});
  Expr i = while_loop([](Expr k) { return k < 2; },
                      [&](Expr k) {
                        Expr fails = list_read(none, k);
                        (void)cond(
                            k > 0, [&] { return v.read() + fails; }, [&] { return fails; });
                        return k + 1;
                      },
                      n);
  BOOST_TEST(Engine().run(g, {{n, Tensor::scalar(std::int64_t{0})}}, {i})[0].item<std::int64_t>() ==
             2);
}

// A list that went from a stream device to another kept its elements in that device's memory, not
// yet written.
BOOST_AUTO_TEST_CASE(a_list_crosses_devices_with_all_it_holds) {
  for (const char* there : {"cpu:0", "cpu:1", "sim:1"})
    for (const Setting& setting : settings()) {
      if (setting.is_deterministic) continue;  // a simulated device has threads of its own
      Graph g;
      Expr x = g.constant(Tensor::of<float>({1, 2, 3, 4}, {2, 2})), list, lists;
      {
        auto on = g.on_device("sim:0");
        list = list_unstack(x * 2.0);
        lists = list_push(list_empty(g, list.spec()), list);
      }
      auto on = g.on_device(there);
      Expr back = list_push(list_push(list_read(lists, 0), list_read(list, 1) + 1.0),
                            reshape(slice(x, {0, 0}, {1, 2}), {2}));
      auto again = g.on_device("sim:0");
      Exprs fetches{list_stack(list), list_stack(back)};
      Engine engine(options_of(setting));
      for (int run = 0; run < 3; ++run)
        compare(engine.run(g, {}, fetches), {V{2, 4, 6, 8}, V{2, 4, 6, 8, 7, 9, 1, 2}},
                setting.name);
    }
}

// The bound was left out without a word: the loop ended by its condition alone, or never.
BOOST_AUTO_TEST_CASE(a_bound_holds_where_the_rank_of_the_predicate_is_unknown) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr limit = g.input("limit", DType::f32, Shape::unknown());
        Expr v = while_loop([&](Expr x) { return x < limit; }, [](Expr x) { return x * 2.0; },
                            g.constant(1.f), {.maximum_iterations = 3});
        return {{{limit, Tensor::scalar(100.f)}}, {v}};
      },
      {V{8}});
}

// At once it was not asked where the bound was reached, so what it does happened once less than in
// a graph.
BOOST_AUTO_TEST_CASE(condition_runs_once_more_than_the_body_at_a_bound) {
  for (std::int64_t most : {0, 3}) {
    const auto loop = [&](const Variable& asked, const Expr& start) {
      const auto condition = [&](Expr v) {
        asked.assign_add(1.0);
        return v < 100.0;
      };
      return while_loop(condition, [](Expr v) { return v + 1.0; }, start,
                        {.maximum_iterations = most});
    };
    Graph g;
    const Variable there = g.variable("asked", Tensor::scalar(0.f));
    const Expr y = loop(there, g.constant(0.f));
    Engine engine({.workers = 1});
    compare(engine.run(g, {}, {y}), {V{static_cast<double>(most)}}, "in a graph");
    Eager e;
    const Variable here = e.variable("asked", Tensor::scalar(0.f));
    BOOST_TEST(loop(here, e.constant(0.f)).value().item<float>() == static_cast<float>(most));
    BOOST_TEST(engine.get(there).item<float>() == static_cast<float>(most + 1));
    BOOST_TEST(here.read().value().item<float>() == static_cast<float>(most + 1));
  }
}

// The values past the end were read, or those too many were put out.
BOOST_AUTO_TEST_CASE(step_with_a_wrong_number_of_values_is_refused) {
  Graph g;
  Eager e;
  // states of another type do not compile; the number of values in a vector is known here only
  const auto first = [](const Exprs& s, Expr x) { return Exprs{s[0] + x}; };
  const auto both = [](const Exprs& s, Expr x) { return Exprs{s[0] + x, x}; };
  for (Reader* r : {static_cast<Reader*>(&g), static_cast<Reader*>(&e)}) {
    Expr xs = r->ones(DType::f32, {3}), a = r->constant(1.f), b = r->constant(2.f);
    BOOST_TEST(
        says(refused([&] {
               fold_left(first, xs, Exprs{a, b}, {.name = "sum"});
             }),
             {"fold 'sum' (regression_test.cpp:", "its step yields 1 values for a state of 2"}));
    BOOST_TEST(
        says(refused([&] {
               scan(first, xs, Exprs{a, b}, {.name = "n"});
             }),
             {"scan 'n' (regression_test.cpp:", "its step yields 1 values for a state of 2"}));
    BOOST_TEST(says(refused([&] { fold_right(both, xs, Exprs{a}); }),
                    {"fold (regression_test.cpp:", "its step yields 2 values for a state of 1"}));
    BOOST_TEST(says(refused([&] { scan(both, xs, Exprs{a}); }),
                    {"scan (regression_test.cpp:", "its step yields 2 values for a state of 1"}));
  }
}

// It was copied into the loop, folded into a product or left out as a factor of one, and what it
// starts after never happened.
BOOST_AUTO_TEST_CASE(predecessors_of_a_constant_run) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Variable v = g.variable("v", Tensor::scalar(0.f));
    Expr x = g.input("x", DType::f32, Shape{}), bump = v.assign_add(1.0), limit, two, one;
    {
      auto after = g.after({bump});
      limit = g.constant(2);
      two = g.constant(2.f);
      one = g.constant(1.f);
    }
    Expr n =
        while_loop([&](Expr i) { return i < limit; }, [](Expr i) { return i + 1; }, g.constant(0));
    Somewhere there(s);
    compare(there.engine().run(g, {}, {n}), {V{2}}, s.name);
    BOOST_TEST(there.engine().get(v).item<float>() == 1.f, s.name);
    compare(there.engine().run(g, {}, {two * 3.0}), {V{6}}, s.name);
    BOOST_TEST(there.engine().get(v).item<float>() == 2.f, s.name);
    compare(there.engine().run(g, {{x, Tensor::scalar(5.f)}}, {x * one}), {V{5}}, s.name);
    BOOST_TEST(there.engine().get(v).item<float>() == 3.f, s.name);
  }
}

// Each node that the backward loop computes again took a frame of the stack.
BOOST_AUTO_TEST_CASE(a_long_chain_in_a_body_has_a_gradient) {
  constexpr int long_chain = 100'000;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), a = g.input("a", DType::f32, Shape{});
  Expr y = while_loop([](Expr v) { return v < 2.0; },
                      [&](Expr v) {
                        Expr s = a;
                        for (int i = 0; i < long_chain; ++i) s = s * a;
                        return v * s;
                      },
                      x);
  BOOST_TEST(gradients(y, {x})[0].shape().is_scalar());
}

// The step was called to see what it would put out, and its effects happened; with an element they
// threw.
BOOST_AUTO_TEST_CASE(over_no_elements_nothing_happens_at_once) {
  Eager e;
  Variable n = e.variable("n", Tensor::scalar(0.f));
  Expr none = e.zeros(DType::f32, {0, 2}), start = e.zeros(DType::f32, {2});
  Expr y = map(
      [&](Expr x) {
        n.assign_add(1.0);
        return x * n.assign_add(sum(x)) + n.read();
      },
      none);
  BOOST_TEST(y.shape().text() == "[0, 2]");
  const auto step = [&](Expr s, Expr x) {
    n.assign_add(1.0);
    return s + x;
  };
  BOOST_TEST(scan(step, none, start).shape().text() == "[0, 2]");
  BOOST_TEST(fold_left(step, none, start).shape().text() == "[2]");
  BOOST_TEST(n.read().value().item<float>() == 0.f);
  // It does not draw either: numbers drawn afterwards are equal.
  const auto drawn_after = [](bool draws) {
    Eager other;
    map([&](Expr x) { return draws ? x + other.random_uniform({2}) : x + 1.0; },
        other.zeros(DType::f32, {0, 2}));
    return numbers(other.random_uniform({4}).value());
  };
  BOOST_TEST(drawn_after(true) == drawn_after(false), boost::test_tools::per_element());
}

// The branch that is differentiated is in a copy of the body, and the user's function is bound to
// values of the body itself: they were refused as values of another graph.
BOOST_AUTO_TEST_CASE(a_users_gradient_in_a_branch_uses_the_body_around_it) {
  run_all_configurations(
      [](Graph& g) -> Scenario {
        Expr x = g.constant(2.f);
        const auto step = [](Expr v, Expr e) {
          const auto ten_times = [e](const Expr& dy, const Exprs&, const Expr&) {
            return Exprs{dy * e * 10.0};
          };
          return cond(
              e > 1.5, [&] { return with_gradient(v * e, {v}, ten_times); }, [&] { return v * e; });
        };
        Expr y = fold_left(step, g.constant(Tensor::of<float>({1, 2, 3}, {3})), x);
        return {{}, {y, gradients(y, x)[0]}};
      },
      {V{12}, V{600}}, 1);
}

// It read past the end of what it has, or asked a tensor that is none.
BOOST_AUTO_TEST_CASE(the_interpreter_refuses_what_the_engine_refuses) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), p = g.input("p", DType::boolean, Shape::unknown()),
       inner;
  Expr y = while_loop([](Expr v) { return v < 3.0; },
                      [&](Expr v) {
                        inner = v * 2.0;
                        return v + 1.0;
                      },
                      x);
  Expr z = cond(
      p, [&] { return x; }, [&] { return x + 1.0; });
  const Tensor one = Tensor::scalar(1.f);
  Eager run;
  BOOST_TEST(says(refused([&] {
                    run.run(g, {{x, one}}, {inner});
                  }),
                  {"fetch 0, Mul", "is inside the body of while_loop (regression_test.cpp:"}));
  BOOST_TEST(says(refused([&] {
                    run.run(g, {{inner, one}}, {y});
                  }),
                  {"feed 0, Mul", "is inside the body of while_loop (regression_test.cpp:"}));
  BOOST_TEST(says(refused([&] {
                    run.run(g, {{x, Tensor()}}, {y});
                  }),
                  {"Input 'x' (regression_test.cpp:", "takes f32[], not nothing"}));
  BOOST_TEST(
      says(refused([&] {
             run.run(g, {{x, one}, {p, Tensor::of<bool>({true, false}, {2})}}, {z});
           }),
           {"Case 'cond' (regression_test.cpp:", "its predicate must be a scalar, not [2]"}));
  const Feeds of_one{{x, one}, {p, Tensor::of<bool>({false}, {1})}};  // which an engine takes
  compare(run.run(g, of_one, {z}), {V{2}}, "interpreter");
  compare(Engine({.workers = 1}).run(g, of_one, {z}), {V{2}}, "engine");
  // And what starts after a value of a finished body is refused with the line that says so.
  BOOST_TEST(
      says(refused([&] { auto scope = g.after({inner}); }),
           {"at regression_test.cpp:", "is inside the body of while_loop (regression_test.cpp:"}));
}

// The loop went on with the constant's own value, and the gradient counted by it.
BOOST_AUTO_TEST_CASE(feed_that_bypasses_a_loop_or_its_gradient_is_refused) {
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{}), most = g.constant(2),
       start = g.constant(std::int64_t{0}), free = g.constant(2);
  Expr n =
      while_loop([&](Expr i) { return i < most; }, [](Expr i) { return i + 1; }, g.constant(0));
  auto loop = while_loop([](Expr i, Expr) { return i < 4; },
                         [&](Expr i, Expr v) {
                           return std::tuple{i + 1, v * x};
                         },
                         std::tuple{start, x});
  Expr count = std::get<0>(loop), v = std::get<1>(loop);
  const std::pair<Expr, Tensor> two{x, Tensor::scalar(2.f)};
  const auto whole = [](std::int64_t i) { return Tensor::scalar(i); };
  Engine engine({.workers = 1});
  Eager interpreter;
  compare(engine.run(g, {two, {start, whole(2)}}, {v}), {V{8}}, "no gradient counts by it yet");
  Expr d = gradients(v, x)[0];
  const auto is_refused = [&](const Expr& e, const Tensor& value, const Expr& y) {
    for (const std::string& error : {refused([&] {
                                       engine.run(g, {two, {e, value}}, {y});
                                     }),
                                     refused([&] {
                                       interpreter.run(g, {two, {e, value}}, {y});
                                     })})
      BOOST_TEST(says(error, {"feed 1, ", "(regression_test.cpp:", "start from an input instead"}),
                 error);
  };
  is_refused(most, Tensor::scalar(std::int32_t{5}), n);
  is_refused(start, whole(2), d);
  is_refused(count, whole(3), d);
  compare(engine.run(g, {two, {free, Tensor::scalar(std::int32_t{5})}}, {d, free * 2}),
          {V{80}, V{10}}, "what nothing was built on");
  // The gradient has a copy of what the loop passes on, and of where a counter starts that it uses;
  // the loop goes by what is fed.
  Expr kept = g.constant(2), third = g.constant(3);
  auto scaled = while_loop([](Expr i, Expr, Expr) { return i < 5; },
                           [&](Expr i, Expr k, Expr y) {
                             return std::tuple{i + 1, k, y * x * cast(i + k, DType::f32)};
                           },
                           std::tuple{third, kept, x});
  Expr of_scaled = gradients(std::get<2>(scaled), x)[0];
  for (const Expr& e : {kept, third}) is_refused(e, Tensor::scalar(std::int32_t{4}), of_scaled);
  // But a start of 0 alone tells it which iteration it is in.
  Expr one = g.constant(std::int64_t{1});
  Expr power = std::get<1>(while_loop([](Expr i, Expr) { return i < 4; },
                                      [&](Expr i, Expr y) {
                                        return std::tuple{i + 1, y * x};
                                      },
                                      std::tuple{one, x}));
  Expr slope = gradients(power, x)[0];
  for (const Tensor& from : {whole(1), whole(2), whole(0)}) {
    const double times = 4 - from.at(0);
    const std::vector<V> expected{V{(times + 1) * std::pow(2.0, times)}};
    compare(engine.run(g, {two, {one, from}}, {slope}), expected, "engine");
    compare(interpreter.run(g, {two, {one, from}}, {slope}), expected, "interpreter");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
