// The primitives as a user may wire them by hand.
#include <boost/test/unit_test.hpp>

#include <troupe/test/controlflow/everywhere.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {
namespace {

using V = std::vector<double>;

// The interpreter walks functional nodes: programs of primitives run on the engine only.
void on_engines(const Build& build, const std::vector<V>& expected, int runs = 2) {
  for (const Setting& s : all_settings()) {
    Graph g;
    Scenario b = build(g);
    Somewhere there(s);
    for (int r = 0; r < runs; ++r) compare(there.engine().run(g, b.feeds, b.fetches), expected, s.name);
  }
}

std::string error_of(const Build& build, const Setting& s = settings()[0]) {
  return refused([&] {
    Graph g;
    Scenario b = build(g);
    Somewhere there(s);
    there.engine().run(g, b.feeds, b.fetches);
  });
}

Expr one_to_six(Graph& g) { return g.constant(Tensor::of<float>({1, 2, 3, 4, 5, 6})); }

}  // namespace

BOOST_AUTO_TEST_SUITE(primitives)

BOOST_AUTO_TEST_CASE(in_and_out_of_a_frame) {  // P1
  on_engines([](Graph& g) -> Scenario {
    Expr x = control::enter(one_to_six(g), "frame"), y = control::enter(g.constant(5.f), "frame");
    return {{}, {control::exit(x * y)}};
  }, {V{5, 10, 15, 20, 25, 30}});
}

BOOST_AUTO_TEST_CASE(switch_and_merge) {  // P2, P3, P4
  for (bool yes : {true, false})
    on_engines([&](Graph& g) -> Scenario {
      Expr p = g.input("p", DType::boolean, Shape{}), x = one_to_six(g);
      auto [f, t] = control::switch_(x, p);
      auto m = control::merge({f, t}), n = control::merge({f + 1.0, t}), o = control::merge({f + 1.0, t * 5.0});
      return {{{p, Tensor::scalar(yes)}}, {m.value, m.index, n.value, o.value}};
    }, {V{1, 2, 3, 4, 5, 6}, V{yes ? 1. : 0.}, yes ? V{1, 2, 3, 4, 5, 6} : V{2, 3, 4, 5, 6, 7}, yes ? V{5, 10, 15, 20, 25, 30} : V{2, 3, 4, 5, 6, 7}});
}

BOOST_AUTO_TEST_CASE(a_dead_fetch_is_an_error) {  // P5
  for (const Setting& s : all_settings()) {
    const std::string why = error_of([](Graph& g) -> Scenario {
      Expr p = g.input("p", DType::boolean, Shape{});
      return {{{p, Tensor::scalar(true)}}, {control::switch_(one_to_six(g), p).if_false * 1.5}};
    }, s);
    BOOST_TEST(says(why, {"fetch 0", "does not have a value", "primitives_test.cpp:"}), s.name << ": " << why);
  }
}

BOOST_AUTO_TEST_CASE(dead_tokens_cross_devices) {  // P6, P7
  for (bool yes : {true, false})
    on_engines([&](Graph& g) -> Scenario {
      Expr p = g.input("p", DType::boolean, Shape{});
      auto [f, t] = control::switch_(g.constant(1.f), p);
      Expr far;
      {
        auto d = g.on_device("sim:3");
        far = f + 1.0;
      }
      Expr here = control::merge({far * 10.0, t}).value;
      return {{{p, Tensor::scalar(yes)}}, {here}};
    }, {V{yes ? 1. : 20.}});
}

BOOST_AUTO_TEST_CASE(a_loop_by_hand) {  // P8
  for (const char* device : {"cpu:0", "sim:3"})
    for (int parallel : {1, 10})
      on_engines([&](Graph& g) -> Scenario {
        control::EnterOptions constant{.constant = true, .parallel_iterations = parallel}, variable{.parallel_iterations = parallel};
        Expr i = control::enter(g.constant(0), "count", variable), n = control::enter(g.constant(10), "count", constant),
             one = control::enter(g.constant(1), "count", constant);
        auto d = g.on_device(device);
        auto m = control::merge({i});
        Expr more = control::loop_cond(m.value < n);
        auto [last, next] = control::switch_(m.value, more);
        control::next_iteration(next + one, m.value);
        return {{}, {control::exit(last)}};
      }, {V{10}});
}

BOOST_AUTO_TEST_CASE(a_loop_in_a_branch_not_taken) {
  for (bool yes : {true, false})
    on_engines([&](Graph& g) -> Scenario {
      Expr p = g.input("p", DType::boolean, Shape{});
      auto [f, t] = control::switch_(g.constant(3.f), p);
      Expr n = control::enter(t, "inside");
      auto m = control::merge({n});
      auto [last, next] = control::switch_(m.value, control::loop_cond(m.value < control::enter(t * 10.0, "inside", {.constant = true})));
      control::next_iteration(next * 2.0, m.value);
      return {{{p, Tensor::scalar(yes)}}, {control::merge({control::exit(last), f - 1.0}).value}};
    }, {V{yes ? 48. : 2.}});
}

BOOST_AUTO_TEST_CASE(a_trigger_fires_for_dead_tokens_too) {
  on_engines([](Graph& g) -> Scenario {
    auto [f, t] = control::switch_(g.constant(3.f), g.constant(1.f) < 2.0);
    return {{}, {control::trigger({f * 2.0, t * 2.0})}};
  }, {V{1}});
}

BOOST_AUTO_TEST_CASE(wrong_wiring_is_refused) {
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
               Expr a = control::enter(g.constant(1.f), "one"), b = control::enter(g.constant(1.f), "two");
               return {{}, {control::exit(a + b)}};
             }), {"Add", "different frames", "loop 'one'", "loop 'two'", "primitives_test.cpp:"}));
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario { return {{}, {control::exit(g.constant(1.f) * 2.0)}}; }), {"Exit", "no frame"}));
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
               auto m = control::merge({control::enter(g.constant(1.f), "forever")});
               control::next_iteration(m.value, m.value);
               return {{}, {control::exit(m.value)}};
             }), {"never ends"}));
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
               return {{}, {control::enter(g.constant(1.f), "in") * 2.0}};
             }), {"inside loop 'in'"}));
  BOOST_TEST(says(error_of([](Graph& g) -> Scenario {
               auto m = control::merge({g.constant(1.f) * 2.0});
               control::next_iteration(m.value + 1.0, m.value);
               return {{}, {m.value}};
             }), {"closes a loop takes Enters only"}));
  Graph g;
  Expr x = g.constant(1.f);
  BOOST_CHECK_THROW(control::next_iteration(x, x), Error);
  BOOST_CHECK_THROW(control::switch_(x, x), Error);
  BOOST_CHECK_THROW(control::merge({x, g.constant(1)}), Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
