// The primitives as a user may wire them by hand.
#include <boost/test/unit_test.hpp>

#include <troupe/actors/executor/loop_report.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(primitives)

namespace {

using V = std::vector<double>;

// The interpreter walks functional nodes: programs of primitives run on the engine only.
void on_engines(const Build& build, const std::vector<V>& expected, int runs = 2) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Scenario b = build(g);
    Somewhere there(s);
    for (int r = 0; r < runs; ++r)
      compare(there.engine().run(g, b.feeds, b.fetches), expected, s.name);
  }
}

std::string error_of(const Build& build, const Setting& s = all_settings()[0]) {
  return refused([&] {
    Graph g;
    Scenario b = build(g);
    Somewhere there(s);
    there.engine().run(g, b.feeds, b.fetches);
  });
}

Expr one_to_six(Graph& g) { return g.constant(Tensor::of<float>({1, 2, 3, 4, 5, 6})); }

}  // namespace

BOOST_AUTO_TEST_CASE(in_and_out_of_a_frame) {  // P1
  on_engines(
      [](Graph& g) -> Scenario {
        Expr x = control::enter(one_to_six(g), "frame"),
             y = control::enter(g.constant(5.f), "frame");
        return {{}, {control::exit(x * y)}};
      },
      {V{5, 10, 15, 20, 25, 30}});
}

BOOST_AUTO_TEST_CASE(switch_and_merge) {  // P2, P3, P4
  for (bool yes : {true, false})
    on_engines(
        [&](Graph& g) -> Scenario {
          Expr p = g.input("p", DType::boolean, Shape{}), x = one_to_six(g);
          auto [f, t] = control::switch_(x, p);
          auto m = control::merge({f, t}), n = control::merge({f + 1.0, t}),
               o = control::merge({f + 1.0, t * 5.0});
          return {{{p, Tensor::scalar(yes)}}, {m.value, m.index, n.value, o.value}};
        },
        {V{1, 2, 3, 4, 5, 6}, V{yes ? 1. : 0.}, yes ? V{1, 2, 3, 4, 5, 6} : V{2, 3, 4, 5, 6, 7},
         yes ? V{5, 10, 15, 20, 25, 30} : V{2, 3, 4, 5, 6, 7}});
}

BOOST_AUTO_TEST_CASE(a_loop_that_nothing_in_it_decides_on) {
  for (const bool is_named : {true, false})
    on_engines(
        [&](Graph& g) -> Scenario {
          Expr goes_on = g.input("goes on", DType::boolean, Shape{}),
               p = control::enter(goes_on, "none", {.constant = true});
          auto m = control::merge({control::enter(one_to_six(g), "none")});
          auto [last, next] =
              control::switch_(m.value, control::loop_cond(is_named ? identity(p) : p));
          control::next_iteration(next * 2.0, m.value);
          return {{{goes_on, Tensor::scalar(false)}},
                  {control::exit(last), control::exit(last + 1.0)}};
        },
        {V{1, 2, 3, 4, 5, 6}, V{2, 3, 4, 5, 6, 7}});
}

BOOST_AUTO_TEST_CASE(a_dead_fetch_is_an_error) {  // P5
  for (const Setting& s : all_settings()) {
    const std::string why = error_of(
        [](Graph& g) -> Scenario {
          Expr p = g.input("p", DType::boolean, Shape{});
          return {{{p, Tensor::scalar(true)}}, {control::switch_(one_to_six(g), p).if_false * 1.5}};
        },
        s);
    BOOST_TEST(says(why, {"fetch 0", "does not have a value", "primitives_test.cpp:"}),
               s.name << ": " << why);
  }
}

BOOST_AUTO_TEST_CASE(dead_tokens_cross_devices) {  // P6, P7
  for (bool yes : {true, false})
    on_engines(
        [&](Graph& g) -> Scenario {
          Expr p = g.input("p", DType::boolean, Shape{});
          auto [f, t] = control::switch_(g.constant(1.f), p);
          Expr far;
          {
            auto d = g.on_device("sim:3");
            far = f + 1.0;
          }
          Expr here = control::merge({far * 10.0, t}).value;
          return {{{p, Tensor::scalar(yes)}}, {here}};
        },
        {V{yes ? 1. : 20.}});
}

BOOST_AUTO_TEST_CASE(a_loop_by_hand) {  // P8
  for (const char* device : {"cpu:0", "sim:3"})
    for (int parallel : {1, 10})
      on_engines(
          [&](Graph& g) -> Scenario {
            control::EnterOptions constant{.constant = true, .parallel_iterations = parallel},
                variable{.parallel_iterations = parallel};
            Expr i = control::enter(g.constant(0), "count", variable),
                 n = control::enter(g.constant(10), "count", constant),
                 one = control::enter(g.constant(1), "count", constant);
            auto d = g.on_device(device);
            auto m = control::merge({i});
            Expr more = control::loop_cond(m.value < n);
            auto [last, next] = control::switch_(m.value, more);
            control::next_iteration(next + one, m.value);
            return {{}, {control::exit(last)}};
          },
          {V{10}});
}

// A primitive that starts or closes a loop elsewhere notified the wrong device's nodes.
BOOST_AUTO_TEST_CASE(a_loop_by_hand_that_is_written_on_two_devices) {  // P8
  for (int elsewhere : {0, 1, 2})  // the Enter, the Merge, the NextIteration
    on_engines(
        [&](Graph& g) -> Scenario {
          const auto device_of = [&](int what) { return what == elsewhere ? "sim:3" : "cpu:0"; };
          Expr n = control::enter(g.constant(10), "count", {.constant = true}), i, m;
          {
            auto d = g.on_device(device_of(0));
            i = control::enter(g.constant(0), "count");
          }
          {
            auto d = g.on_device(device_of(1));
            m = control::merge({i}).value;
          }
          auto [last, next] = control::switch_(m, control::loop_cond(m < n));
          {
            auto d = g.on_device(device_of(2));
            control::next_iteration(next + 1, m);
          }
          return {{}, {control::exit(last)}};
        },
        {V{10}});
}

// The value that continues as b was made before b's Merge: the way between them had a negative
// length.
BOOST_AUTO_TEST_CASE(a_report_on_a_loop_with_a_value_made_before_its_merge) {
  Graph g;
  Expr a0 = control::enter(g.constant(0), "hand"), b0 = control::enter(g.constant(5), "hand"),
       a = control::merge({a0}).value;
  Expr more = control::loop_cond(a < 10);
  auto [a_last, a_next] = control::switch_(a, more);
  Expr b = control::merge({b0}).value;
  auto [b_last, b_next] = control::switch_(b, more);
  control::next_iteration(a_next + 1, a);
  control::next_iteration(a_next, b);
  Engine engine;
  Function f = engine.compile(g, {}, {control::exit(a_last), control::exit(b_last)});
  compare(f({}), {V{10}, V{9}}, "one run");
  const std::vector<LoopReport> reports = f.loops();
  BOOST_REQUIRE_EQUAL(reports.size(), 1u);
  BOOST_TEST(reports[0].iterations == 10u);
}

// A variable that has ended is dead in the iterations that follow, whichever of the tokens for the
// next one comes first: the loop waited for one for ever.
BOOST_AUTO_TEST_CASE(loop_without_loop_cond_may_end_one_variable_early) {
  for (bool is_short_first : {true, false})
    for (const Setting& s : settings()) {
      Graph g;
      Expr ends[2];
      for (bool is_short : {is_short_first, !is_short_first}) {
        Expr v = control::merge({control::enter(g.constant(0), "uneven")}).value;
        auto [last, next] = control::switch_(v, v < (is_short ? 5 : 10));
        control::next_iteration(next + 1, v);
        ends[is_short ? 1 : 0] = control::exit(last);
      }
      Somewhere there(s);
      for (int r = 0; r < 2; ++r)
        compare(there.engine().run(g, {}, {ends[0], ends[1]}, {.timeout = std::chrono::minutes(1)}),
                {V{10}, V{5}}, s.name);
    }
}

// In a device's memory it was requested again and again.
BOOST_AUTO_TEST_CASE(a_predicate_that_is_the_same_in_every_iteration) {
  for (bool yes : {true, false})
    on_engines(
        [&](Graph& g) -> Scenario {
          Expr x = g.input("x", DType::f32, {6}),
               chosen = control::enter(sum(x) > 20.0, "hand", {.constant = true});
          Expr i = control::merge({control::enter(g.constant(0), "hand")}).value;
          auto [last, next] = control::switch_(i, control::loop_cond(i < 3));
          auto [by_two, by_one] = control::switch_(next, chosen);
          control::next_iteration(control::merge({by_two + 2, by_one + 1}).value, i);
          return {{{x, Tensor::of<float>({1, 2, 3, 4, 5, yes ? 6.f : 0.f})}},
                  {control::exit(last)}};
        },
        {V{yes ? 3. : 4.}});
}

// Only the last of the Merges got the value: the run waited for the others.
BOOST_AUTO_TEST_CASE(several_merges_may_start_from_one_enter) {
  on_engines(
      [](Graph& g) -> Scenario {
        Expr zero = control::enter(g.constant(0), "hand"),
             n = control::enter(g.constant(5), "hand", {.constant = true});
        Expr i = control::merge({zero}).value, s = control::merge({zero}).value,
             more = control::loop_cond(i < n);
        auto [i_last, i_next] = control::switch_(i, more);
        auto [s_last, s_next] = control::switch_(s, more);
        control::next_iteration(i_next + 1, i);
        control::next_iteration(s_next + i_next, s);
        return {{}, {control::exit(i_last), control::exit(s_last)}};
      },
      {V{5}, V{10}});
}

// A function that is replaced by its body may be called in one; of another the error says what to
// do.
BOOST_AUTO_TEST_CASE(a_call_in_a_loop_by_hand) {
  const ValueSpec count{DType::i32, Shape{}};
  const auto loop = [&](Graph& g, const GraphFunction<Expr(Expr)>& f) -> Scenario {
    Expr one = control::enter(g.constant(1), "by_hand", {.constant = true}),
         n = control::enter(g.constant(10), "by_hand", {.constant = true});
    auto m = control::merge({control::enter(g.constant(0), "by_hand")});
    auto [last, next] = control::switch_(m.value, control::loop_cond(m.value < n));
    control::next_iteration(f(next) + one, m.value);
    return {{}, {control::exit(last)}};
  };
  on_engines(
      [&](Graph& g) {
        return loop(g, {g, "twice", {count}, [](Expr v) { return v + v; }});
      },
      {V{15}});
  const std::string why = error_of([&](Graph& g) {
    GraphFunction<Expr(Expr)> down(g, "down", {count}, {count});
    down.define([&](Expr v) {
      return cond(
          v > 3, [&] { return down(v - 1); }, [&] { return v; });
    });
    return loop(g, down);
  });
  BOOST_TEST(says(why, {"Call '", "(primitives_test.cpp:", "in loop 'by_hand'",
                        "built by hand: use while_loop"}),
             why);
}

BOOST_AUTO_TEST_CASE(a_loop_in_a_branch_not_taken) {
  for (bool yes : {true, false})
    on_engines(
        [&](Graph& g) -> Scenario {
          Expr p = g.input("p", DType::boolean, Shape{});
          auto [f, t] = control::switch_(g.constant(3.f), p);
          Expr n = control::enter(t, "inside");
          auto m = control::merge({n});
          auto [last, next] = control::switch_(
              m.value,
              control::loop_cond(m.value < control::enter(t * 10.0, "inside", {.constant = true})));
          control::next_iteration(next * 2.0, m.value);
          return {{{p, Tensor::scalar(yes)}},
                  {control::merge({control::exit(last), f - 1.0}).value}};
        },
        {V{yes ? 48. : 2.}});
}

BOOST_AUTO_TEST_CASE(a_trigger_fires_for_dead_tokens_too) {
  on_engines(
      [](Graph& g) -> Scenario {
        auto [f, t] = control::switch_(g.constant(3.f), g.constant(1.f) < 2.0);
        return {{}, {control::trigger({f * 2.0, t * 2.0})}};
      },
      {V{1}});
}

BOOST_AUTO_TEST_CASE(functional_nodes_in_a_loop_by_hand) {
  on_engines(
      [](Graph& g) -> Scenario {
        const control::EnterOptions constant{.constant = true};
        Expr i0 = control::enter(g.constant(0), "hand"),
             s0 = control::enter(g.constant(1.f), "hand"),
             n = control::enter(g.constant(6), "hand", constant),
             two = control::enter(g.constant(2.f), "hand", constant);
        auto i = control::merge({i0}), s = control::merge({s0});
        Expr more = control::loop_cond(i.value < n);
        auto [i_last, i_next] = control::switch_(i.value, more);
        auto [s_last, s_next] = control::switch_(s.value, more);
        // Bindings are no captures of lambdas.
        Expr at = i_next, from = s_next;
        Expr to = cond(
            mod(at, 2) == 0, [&] { return from * two; },
            [&] {
              auto [k, t] = while_loop([&](Expr j, Expr) { return j < at; },
                                       [&](Expr j, Expr u) {
                                         return std::tuple{j + 1, u + two};
                                       },
                                       std::tuple{at * 0, from});
              return t;
            });
        control::next_iteration(at + 1, i.value);
        control::next_iteration(to, s.value);
        return {{}, {control::exit(s_last), control::exit(i_last)}};
      },
      {V{38}, V{6}});
}

BOOST_AUTO_TEST_CASE(dead_tokens_pass_nested_loops_and_chained_switches) {
  for (bool yes : {true, false})
    on_engines(
        [&](Graph& g) -> Scenario {
          const control::EnterOptions constant{.constant = true};
          Expr p = g.input("p", DType::boolean, Shape{});
          auto [f, t] = control::switch_(g.constant(3.f), p);
          auto outer = control::merge({control::enter(t, "outer")});
          Expr four = control::enter(g.constant(4.f), "outer", constant);
          auto [last, next] =
              control::switch_(outer.value, control::loop_cond(outer.value < four * 2.5));
          auto inner = control::merge({control::enter(next, "inner")});
          auto [inner_last, inner_next] = control::switch_(
              inner.value,
              control::loop_cond(inner.value < control::enter(four + 1.0, "inner", constant)));
          control::next_iteration(inner_next + 1.0, inner.value);
          control::next_iteration(control::exit(inner_last) + four, outer.value);
          Expr out = control::exit(last);
          auto [no, again] = control::switch_(out, p);
          auto [never, at_last] = control::switch_(again, p);
          return {
              {{p, Tensor::scalar(yes)}},
              {control::merge({at_last * 2.0, f + 1.0}).value, control::trigger({no, never, out})}};
        },
        {V{yes ? 26. : 4.}, V{1}});
}

BOOST_AUTO_TEST_CASE(a_state_in_a_loop_by_hand) {
  auto counting = [](Graph& g, Variable v, const std::function<Scenario(Expr)>& then) {
    auto i = control::merge({control::enter(g.constant(0), "hand")});
    auto [last, next] = control::switch_(
        i.value,
        control::loop_cond(i.value < control::enter(g.constant(6), "hand", {.constant = true})));
    Expr added = v.assign_add(cast(next, DType::f32));
    {
      auto after = g.after({added});
      control::next_iteration(next + 1, i.value);
    }
    return then(control::exit(last));
  };
  for (const Setting& s : all_settings()) {
    Graph g;
    Variable v = g.variable("v", Tensor::scalar(1.f));
    Scenario b = counting(g, v, [](Expr out) { return Scenario{{}, {out}}; });
    Somewhere there(s);
    compare(there.engine().run(g, b.feeds, b.fetches), {V{6}}, s.name);
    BOOST_TEST(there.engine().get(v).item<float>() == 16.f, s.name);
  }
  const std::string why = error_of([&](Graph& g) {
    Variable v = g.variable("v", Tensor::scalar(1.f));
    return counting(g, v, [&](Expr out) {
      auto after = g.after({out});
      return Scenario{{}, {v.read()}};
    });
  });
  BOOST_TEST(says(why, {"ReadVariable", "primitives_test.cpp:", "in loop 'hand'",
                        "outside of loops", "no order with those elsewhere: use while_loop"}),
             why);
}

BOOST_AUTO_TEST_CASE(nodes_that_only_forward_tokens_may_wait) {  // Enter, NextIteration, Exit
  on_engines(
      [](Graph& g) -> Scenario {
        Variable v = g.variable("v", Tensor::scalar(1.f));
        Expr first = v.assign_add(1.0), n, from;
        {
          auto after = g.after({first});
          n = control::enter(g.constant(5), "hand", {.constant = true});
          from = control::enter(g.constant(0), "hand");
        }
        auto i = control::merge({from});
        Expr more = control::loop_cond(i.value < n);
        auto [last, next] = control::switch_(i.value, more);
        Expr twice = cast(next, DType::f32) * 2.0,
             ready = control::trigger({cast(last, DType::f32) * 3.0}), out;
        {
          auto after = g.after({twice, ready});
          control::next_iteration(next + 1, i.value);
        }
        {
          auto after = g.after({ready});
          out = control::exit(last);
        }
        Expr later;
        {
          auto after = g.after({out});
          later = control::enter(out, "second");
        }
        return {{}, {out, control::exit(later * 2), first}};
      },
      {V{5}, V{10}, V{2}}, 1);
  const std::string dead = error_of([](Graph& g) -> Scenario {
    auto i = control::merge({control::enter(g.constant(0), "hand")});
    auto [last, next] = control::switch_(
        i.value,
        control::loop_cond(i.value < control::enter(g.constant(5), "hand", {.constant = true})));
    control::next_iteration(next + 1, i.value);
    Expr twice = next * 2;  // which is dead where the loop ends
    auto after = g.after({twice});
    return {{}, {control::exit(last)}};
  });
  BOOST_TEST(says(dead, {"does not have a value"}), dead);
  const std::string merge = error_of([](Graph& g) -> Scenario {
    Expr n = control::enter(g.constant(5), "hand", {.constant = true}),
         from = control::enter(g.constant(0), "hand");
    Expr first = n * 2;
    auto after = g.after({first});
    auto i = control::merge({from});
    auto [last, next] = control::switch_(i.value, control::loop_cond(i.value < n));
    control::next_iteration(next + 1, i.value);
    return {{}, {control::exit(last)}};
  });
  BOOST_TEST(says(merge, {"Merge", "primitives_test.cpp:", "waits for nothing else", "Mul"}),
             merge);
}

// It came twice to iterations that it had opened itself, and went on in a run that had failed.
BOOST_AUTO_TEST_CASE(lone_loop_constant_arrives_once_and_ends_with_its_run) {
  for (const char* how : {"directly", "merged"}) {
    Graph g;
    Expr k = g.input("k", DType::i32, Shape{}),
         same = control::enter(k + 1, "endless", {.constant = true});
    Expr m = control::merge({control::enter(g.constant(0), "endless")}).value,
         n = control::merge({control::enter(g.constant(0), "endless")}).value;
    auto [last, next] = control::switch_(n, n < 1000);
    control::next_iteration(next + m * 0 + 1, n);
    control::next_iteration(
        how == std::string("directly") ? same : control::merge({same, next}).value, m);
    Engine engine({.deterministic = true});
    RunHandle run =
        engine.compile(g, {k}, {control::exit(last)}).start({Tensor::scalar(std::int32_t{1})});
    for (int step = 0; step < 300; ++step) engine.take_step();
    BOOST_TEST(!run.is_done(), how);
    run.cancel();
    while (engine.take_step()) {}
    BOOST_TEST((run.wait().code() == Code::cancelled), how);
  }
  const std::string empty = error_of([](Graph& g) -> Scenario {
    Expr m = control::merge({control::enter(g.constant(0), "empty")}).value,
         k = g.input("k", DType::i32, Shape{});
    control::next_iteration(control::enter(k + 1, "empty", {.constant = true}), m);
    return {{{k, Tensor::scalar(std::int32_t{1})}}, {control::exit(m)}};
  });
  BOOST_TEST(
      says(empty, {"Exit", "primitives_test.cpp:", "two iterations of loop 'empty' leave by it"}),
      empty);
}

BOOST_AUTO_TEST_CASE(wrong_wiring_is_refused) {
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
                    Expr a = control::enter(g.constant(1.f), "one"),
                         b = control::enter(g.constant(1.f), "two");
                    return {{}, {control::exit(a + b)}};
                  }),
                  {"Add", "different frames", "loop 'one'", "loop 'two'", "primitives_test.cpp:"}));
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
                    return {{}, {control::exit(g.constant(1.f) * 2.0)}};
                  }),
                  {"Exit", "no frame"}));
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
                    auto m = control::merge({control::enter(g.constant(1.f), "forever")});
                    control::next_iteration(m.value, m.value);
                    return {{}, {control::exit(m.value)}};
                  }),
                  {"never ends"}));
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
                    return {{}, {control::enter(g.constant(1.f), "in") * 2.0}};
                  }),
                  {"inside loop 'in'"}));
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
                    auto m = control::merge({g.constant(1.f) * 2.0});
                    control::next_iteration(m.value + 1.0, m.value);
                    return {{}, {m.value}};
                  }),
                  {"closes a loop takes Enters only"}));
  // Two tokens would come where one is awaited, or none.
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
                    auto m = control::merge({control::enter(g.constant(0), "closed")});
                    auto [last, next] = control::switch_(m.value, control::loop_cond(m.value < 10));
                    control::next_iteration(next + 1, m.value);
                    control::next_iteration(next + 2, m.value);
                    return {{}, {control::exit(last)}};
                  }),
                  {"NextIteration", "closes the loop at", "already", "primitives_test.cpp:"}));
  const auto starts = [](const std::function<Expr(Graph&, std::vector<Expr>&)>& also) {
    return error_of([&](Graph& g) -> Scenario {
      std::vector<Expr> from;
      const Expr step = also(g, from);
      auto m = control::merge(from);
      auto [last, next] = control::switch_(m.value, control::loop_cond(m.value < 10));
      control::next_iteration(next + step, m.value);
      return {{}, {control::exit(last)}};
    });
  };
  BOOST_TEST(says(
      starts([](Graph& g, std::vector<Expr>& from) {
        from = {control::enter(g.constant(0), "starts"), control::enter(g.constant(1), "starts")};
        return g.constant(1);
      }),
      {"Merge", "takes one Enter", "primitives_test.cpp:"}));
  BOOST_TEST(says(starts([](Graph& g, std::vector<Expr>& from) {
                    from = {control::enter(g.constant(0), "starts", {.constant = true})};
                    return g.constant(1);
                  }),
                  {"Merge", "is constant", "primitives_test.cpp:"}));
  BOOST_TEST(says(
      starts([](Graph& g, std::vector<Expr>& from) {
        from = {control::enter(g.constant(0), "starts")};
        return control::enter(g.constant(1), "starts");
      }),
      {"Add", "first iteration of loop 'starts' only", "constant Enter", "primitives_test.cpp:"}));
  for (bool is_constant : {true, false})
    BOOST_TEST(says(error_of([is_constant](Graph& g) -> Scenario {
                      Expr p = g.input("p", DType::boolean, Shape{}),
                           yes = is_constant ? g.constant(true) : p;
                      return {{{p, Tensor::scalar(true)}},
                              {cast(control::loop_cond(yes), DType::i32), cast(p, DType::i32)}};
                    }),
                    {"LoopCond", "primitives_test.cpp:", "no value of a loop"}));
  BOOST_TEST(says(
      error_of([](Graph& g) -> Scenario {
        Expr i = control::merge({control::enter(g.constant(0), "endless")}).value;
        control::next_iteration(i + 1, i);
        return {{}, {control::exit(i)}};
      }),
      {"Exit 'Exit_", "primitives_test.cpp:", "two iterations of loop 'endless' leave by it"}));
  Graph g;
  Expr x = g.constant(1.f);
  BOOST_CHECK_THROW(control::next_iteration(x, x), Error);
  BOOST_CHECK_THROW(control::switch_(x, x), Error);
  BOOST_CHECK_THROW(control::merge({x, g.constant(1)}), Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
