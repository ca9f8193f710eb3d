// Loops and branches that put elements into a queue and take elements out of it: the two have no
// order with each other.
#include <boost/test/unit_test.hpp>

#include <troupe/test/support/programs/calls.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(queues_in_control_flow)

namespace {

// The interpreter runs one op after the other, and so refuses to wait.
void on_engines(const Build& build, const std::vector<Reals>& expected) {
  for (const Setting& s : all_settings()) {
    Graph g;
    const Scenario b = build(g);
    Somewhere there(s);
    for (int r = 0; r < 3; ++r)
      compare(there.engine().run(g, b.feeds, b.fetches, {.timeout = std::chrono::seconds(60)}),
              expected, s.name);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_loop_takes_what_others_put_in_while_it_puts_in_more) {
  // The second and third element fit once the loop has taken one.
  on_engines(
      [](Graph& g) -> Scenario {
        const Queue q = g.fifo_queue("q", {kReal}, 1);
        Exprs put;
        for (double s : {3.0, 2.0, 1.0}) put.push_back(q.enqueue({s}));
        auto [n, sum] = while_loop([](Expr i, Expr) { return i < 9; },
                                   [&](Expr i, Expr t) {
                                     const Expr x = q.dequeue()[0];
                                     when(x > 0.0, [&] { q.enqueue({x - 1.0}); });
                                     return std::tuple{i + 1, t + x};
                                   },
                                   std::tuple{g.constant(0), g.constant(0.f)});
        return {{}, {sum, put[0] * 0, put[1] * 0, put[2] * 0}};
      },
      {Reals{10}, Reals{0}, Reals{0}, Reals{0}});
}

BOOST_AUTO_TEST_CASE(a_branch_takes_before_what_it_puts_in_has_its_turn) {
  on_engines(
      [](Graph& g) -> Scenario {
        const Queue q = g.fifo_queue("q", {kReal}, 1);
        const Expr yes = g.input("yes", DType::boolean, Shape{}), first = q.enqueue({1.0}),
                   second = q.enqueue({2.0});
        const Expr taken = cond(
            yes,
            [&] {
              const Expr x = q.dequeue()[0];
              q.enqueue({x + 10.0});
              return x;
            },
            [&] { return g.constant(0.f); });
        const Expr next = q.dequeue()[0], last = q.dequeue()[0];
        return {{{yes, Tensor::scalar(true)}}, {taken, next, last, first * 0, second * 0}};
      },
      {Reals{1}, Reals{2}, Reals{11}, Reals{0}, Reals{0}});
}

// A call fires once: as such it would wait for the second element, for which there is room once the
// call has taken the first.
BOOST_AUTO_TEST_CASE(waiting_call_dequeues_before_its_own_enqueue_has_room) {
  for (bool waits : {false, true})
    for (bool is_waited_for : {false, true})
      on_engines(
          [=](Graph& g) -> Scenario {
            const Queue q = g.fifo_queue("q", {kReal}, 1);
            const Variable v = g.variable("v", Tensor::scalar(3.f));
            One f(g, "f", {kReal}, [&](Expr y) {
              const Expr x = q.dequeue()[0];
              q.enqueue({x + y});
              v.assign(y);
              return x;
            });
            const Expr ten = g.input("ten", DType::f32, Shape{}), first = q.enqueue({1.0}),
                       second = q.enqueue({2.0}), before = v.assign(4.0);
            Expr taken, after = g.constant(20.f);
            {
              auto scope = waits ? g.after({first, before}) : g.after({});
              taken = f(ten);
            }
            if (is_waited_for) {
              auto scope = g.after({taken});
              after = v + ten;
            }
            const Expr next = q.dequeue()[0], last = q.dequeue()[0];
            return {{{ten, Tensor::scalar(10.f)}},
                    {taken, next, last, after, first * 0, second * 0}};
          },
          {Reals{1}, Reals{2}, Reals{11}, Reals{20}, Reals{0}, Reals{0}});
}

// Operations of one kind stay in order, in a loop and around it.
BOOST_AUTO_TEST_CASE(elements_come_out_in_the_order_of_the_program) {
  on_engines(
      [](Graph& g) -> Scenario {
        const Queue q = g.fifo_queue("q", {kReal}, 20);
        const Expr first = q.enqueue({100.0});
        const Expr n = while_loop([](Expr i) { return i < 4; },
                                  [&](Expr i) {
                                    q.enqueue({cast(i, DType::f32)});
                                    when(i == 2, [&] { q.enqueue({q.dequeue()[0] + 1.0}); });
                                    return i + 1;
                                  },
                                  g.constant(0));
        const Expr last = q.enqueue({200.0});
        Exprs out;
        for (int i = 0; i < 6; ++i) out.push_back(q.dequeue()[0]);
        return {{}, {stack(out), n, first * 0, last * 0}};
      },
      {Reals{0, 1, 2, 101, 3, 200}, Reals{4}, Reals{0}, Reals{0}});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
