// State: variables, and queues with their order, limits and ends.
#include <boost/test/unit_test.hpp>

#include <set>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/eager/run_kernel.hpp>
#include <troupe/ops/graph/actor_node.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/variable.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(state_test, TROUPE_ONE_THREAD)

namespace {

namespace tools = boost::test_tools;
using Numbers = std::vector<double>;

Numbers numbers(const Tensor& t) {
  Numbers out;
  for (std::int64_t i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
  return out;
}

bool says(const Error& e, Code code, const std::string& part) {
  bool ok = e.code() == code && std::string(e.what()).find(part) != std::string::npos;
  if (!ok) BOOST_TEST_MESSAGE(e.what());
  return ok;
}

StateSpec queue_spec(std::int64_t capacity, bool shuffles = false, std::int64_t min_after = 0) {
  StateSpec s;
  s.kind = shuffles ? StateSpec::Kind::shuffling_queue : StateSpec::Kind::fifo_queue;
  s.name = "q";
  s.values = {{DType::i64, Shape{}}};
  s.capacity = capacity;
  s.min_after_dequeue = min_after;
  s.seed = 5;
  return s;
}

// The result of one waiting call.
struct Answer {
  int calls = 0;
  Status status;
  std::int64_t value = -1;
  QueueState::Done done() {
    return [this](Status s, std::vector<Value> element) {
      ++calls;
      status = s;
      if (!element.empty()) value = element[0].tensor().item<std::int64_t>();
    };
  }
};
std::vector<Value> element(std::int64_t v) { return {Tensor::scalar(v)}; }

struct NumberedRun : RunInfo {
  explicit NumberedRun(std::uint64_t number) { id = number; }
};
const NumberedRun run1(1), run2(2), run3(3);

}  // namespace

BOOST_AUTO_TEST_CASE(variables_eagerly) {
  Eager e;
  Variable v = e.variable("v", Tensor::of<float>({1, 2, 3}));
  Expr before = v.read();
  BOOST_TEST(
      numbers(v.assign_add(e.constant(Tensor::of<float>({1, 1, 1}))).value()) == (Numbers{2, 3, 4}),
      tools::per_element());
  BOOST_TEST(
      numbers(v.assign_sub(e.constant(Tensor::of<float>({0, 1, 2}))).value()) == (Numbers{2, 2, 2}),
      tools::per_element());
  BOOST_TEST(numbers(v.assign(Tensor::of<float>({7, 8, 9})).value()) == (Numbers{7, 8, 9}),
             tools::per_element());
  BOOST_TEST(numbers(before.value()) == (Numbers{1, 2, 3}), tools::per_element());  // a snapshot
  BOOST_TEST(numbers((v * 2.0).value()) == (Numbers{14, 16, 18}), tools::per_element());
}

BOOST_AUTO_TEST_CASE(rows_of_variables) {
  Eager e;
  Variable v = e.variable("v", Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
  Expr twice = e.constant(Tensor::of<std::int32_t>({2, 0, 2}));
  Expr rows = e.constant(Tensor::of<double>({1, 1, 10, 10, 2, 2}, {3, 2}));
  BOOST_TEST(numbers(v.scatter_add(twice, rows).value()) == (Numbers{11, 12, 3, 4, 8, 9}),
             tools::per_element());
  BOOST_TEST(numbers(v.scatter_sub(twice, rows).value()) == (Numbers{1, 2, 3, 4, 5, 6}),
             tools::per_element());
  // the last wins
  BOOST_TEST(numbers(v.scatter_update(twice, rows).value()) == (Numbers{10, 10, 3, 4, 2, 2}),
             tools::per_element());
  Expr row = e.constant(Tensor::of<double>({7, 8}, {2}));
  // a scalar index is one row's
  BOOST_TEST(numbers(v.scatter_update(1, row).value()) == (Numbers{10, 10, 7, 8, 2, 2}),
             tools::per_element());
  BOOST_CHECK_THROW(v.scatter_update(3, row), Error);
  BOOST_CHECK_THROW(v.scatter_add(e.constant(Tensor::of<std::int64_t>({3})),
                                  e.constant(Tensor::of<double>({0, 0}, {1, 2}))),
                    Error);
  BOOST_CHECK_THROW(v.scatter_add(e.constant(Tensor::of<std::int64_t>({-1})),
                                  e.constant(Tensor::of<double>({0, 0}, {1, 2}))),
                    Error);
}

BOOST_AUTO_TEST_CASE(an_update_never_changes_a_snapshot) {
  Graph g;
  Variable v = g.variable("v", Tensor::of<double>({1, 2}));
  Expr before = v.read(), updated = v.assign_add(Tensor::of<double>({10, 10})), after = v.read();
  Eager run;
  std::vector<Tensor> out = run.run(g, {}, {after, before, updated});
  BOOST_TEST(numbers(out[0]) == (Numbers{11, 12}), tools::per_element());
  BOOST_TEST(numbers(out[1]) == (Numbers{1, 2}), tools::per_element());
  BOOST_TEST(numbers(out[2]) == (Numbers{11, 12}), tools::per_element());
  BOOST_TEST(numbers(run.get(g, "v")) == (Numbers{11, 12}), tools::per_element());
}

BOOST_AUTO_TEST_CASE(values_that_do_not_fit_are_refused) {
  Graph g;
  Variable v = g.variable("v", DType::f32, {2}, Initializer::constant(0));
  const unsigned line = __LINE__ + 1;
  BOOST_CHECK_EXCEPTION(v.assign(Tensor::of<double>({1, 2})), Error, [&](const Error& e) {
    return says(e, Code::invalid_argument, fmt::format("state_test.cpp:{}", line)) &&
           says(e, e.code(), "must be f32, not f64");
  });
  BOOST_CHECK_EXCEPTION(v.assign(Tensor::of<float>({1, 2, 3})), Error, [](const Error& e) {
    return says(e, Code::invalid_argument, "[2], not [3]");
  });
  BOOST_CHECK_EXCEPTION(g.variable("v", DType::f32, {3}, Initializer::constant(0)), Error,
                        [](const Error& e) { return says(e, Code::already_exists, "'v'"); });
  BOOST_CHECK_EXCEPTION(g.variable("u", DType::f32, {kAny}, Initializer::constant(0)), Error,
                        [](const Error& e) { return says(e, Code::invalid_argument, "'u'"); });
  for (const Tensor& other : {Tensor::of<double>({1, 2}), Tensor::of<float>({1, 2, 3}), Tensor()})
    BOOST_CHECK_EXCEPTION(
        g.variable("w", DType::f32, {2}, Initializer::tensor(other)), Error, [](const Error& e) {
          return says(e, Code::invalid_argument, "is f32[2], and its initial value ");
        });
  BOOST_TEST(g.find_variable("v").state() == v.state());
}

// Rows whose shape is unknown while building are checked at run time.
BOOST_AUTO_TEST_CASE(updates_of_rows_of_unknown_shape_are_checked_in_the_run) {
  Graph g;
  Variable v = g.variable("v", Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
  Expr indices = g.input("indices", DType::i64, Shape{kAny}),
       updates = g.input("updates", DType::f64, Shape{kAny, kAny});
  Eager run;
  const Tensor two = Tensor::of<std::int64_t>({2, 0});
  for (const auto& wrong : {Tensor::of<double>({9, 9}, {1, 2}), Tensor::of<double>({9, 9}, {2, 1}),
                            Tensor::of<double>({9, 9, 9, 9, 9, 9}, {2, 3})})
    for (Expr e : {v.scatter_update(indices, updates), v.scatter_add(indices, updates),
                   v.scatter_sub(indices, updates),
                   scatter_add(g.constant(Tensor::of<double>({0, 0, 0, 0, 0, 0}, {3, 2})), indices,
                               updates)})
      BOOST_CHECK_EXCEPTION(
          run.run(g, {{indices, two}, {updates, wrong}}, {e}), Error, [&](const Error& error) {
            return says(error, Code::invalid_argument,
                        "updates must have shape [2, 2], not " + wrong.shape().text()) &&
                   says(error, error.code(), "state_test.cpp:");
          });
  BOOST_TEST(numbers(run.get(g, "v")) == (Numbers{1, 2, 3, 4, 5, 6}), tools::per_element());
  run.run(g, {{indices, two}, {updates, Tensor::of<double>({7, 7, 8, 8}, {2, 2})}},
          {v.scatter_update(indices, updates)});
  BOOST_TEST(numbers(run.get(g, "v")) == (Numbers{8, 8, 3, 4, 7, 7}), tools::per_element());
}

BOOST_AUTO_TEST_CASE(initial_values_depend_on_name_and_seed_only) {
  Initializer init = Initializer::glorot(30, 20, 1);
  Tensor a = init.make("a", DType::f32, {30, 20}), again = init.make("a", DType::f32, {30, 20}),
         b = init.make("b", DType::f32, {30, 20});
  BOOST_TEST(identical(a, again));
  BOOST_TEST(!identical(a, b));
  double limit = std::sqrt(6.0 / 50), most = 0;
  for (double x : numbers(a)) most = std::max(most, std::abs(x));
  BOOST_TEST(most <= limit);
  BOOST_TEST(most > 0.98 * limit);
}

BOOST_AUTO_TEST_CASE(a_queue_keeps_order_and_components) {
  Eager e;
  Queue q = e.fifo_queue("q", {{DType::i64, Shape{}}, {DType::f32, Shape{2}}}, 4);
  for (std::int64_t i = 0; i < 3; ++i) {
    auto size = q.enqueue({i, Tensor::of<float>({float(i), 0})}).value().item<std::int64_t>();
    BOOST_TEST(size == i + 1);
  }
  for (std::int64_t i = 0; i < 3; ++i) {
    Exprs out = q.dequeue();
    BOOST_TEST(out[0].value().item<std::int64_t>() == i);
    BOOST_TEST(out[1].value().at(0) == i);
  }
  BOOST_TEST(q.size().value().item<std::int64_t>() == 0);
}

BOOST_AUTO_TEST_CASE(wrong_elements_are_refused) {
  Graph g;
  Queue q = g.fifo_queue("q", {{DType::f32, Shape{2}}}, 2);
  const unsigned line = __LINE__ + 1;
  BOOST_CHECK_EXCEPTION(q.enqueue({Tensor::of<float>({1})}), Error, [&](const Error& e) {
    return says(e, Code::invalid_argument, fmt::format("state_test.cpp:{}", line)) &&
           says(e, e.code(), "f32[2], not f32[1]");
  });
  BOOST_CHECK_EXCEPTION(q.enqueue({1.0, 2.0}), Error, [](const Error& e) {
    return says(e, Code::invalid_argument, "1 components, not 2");
  });
  BOOST_CHECK_THROW(g.fifo_queue("p", {}, 0), Error);
  BOOST_CHECK_THROW(g.shuffling_queue("p", {}, 4, 4), Error);
}

BOOST_AUTO_TEST_CASE(elements_of_unknown_shape_are_checked_in_the_run) {
  Graph g;
  Queue q = g.fifo_queue("q", {{DType::i64, Shape{}}, {DType::f32, Shape{2}}}, 2);
  Expr x = g.input("x", DType::f32, Shape{kAny}), size = q.size(),
       put = q.enqueue({std::int64_t{1}, x});
  Eager run;
  BOOST_CHECK_EXCEPTION(run.run(g, {{x, Tensor::of<float>({1, 2, 3})}}, {put}), Error,
                        [](const Error& e) {
                          return says(e, Code::invalid_argument,
                                      "queue 'q': component 1 must be f32[2], not f32[3]") &&
                                 says(e, e.code(), "state_test.cpp:");
                        });
  BOOST_TEST(run.run(g, {}, {size})[0].item<std::int64_t>() == 0);
  BOOST_TEST(run.run(g, {{x, Tensor::of<float>({1, 2})}}, {put})[0].item<std::int64_t>() == 1);

  QueueState state(queue_spec(2));
  Answer none, two, other;
  state.enqueue(run1, {}, none.done());
  state.enqueue(run1, {Tensor::scalar(std::int64_t{1}), Tensor::scalar(std::int64_t{2})},
                two.done());
  state.enqueue(run1, {Tensor::scalar(1.0)}, other.done());
  for (const Answer& a : {none, two, other})
    BOOST_TEST((a.calls == 1 && a.status.code() == Code::invalid_argument));
  BOOST_TEST(state.size() == 0);
}

BOOST_AUTO_TEST_CASE(a_full_queue_holds_producers_back_in_order) {
  QueueState q(queue_spec(2));
  Answer in[4], out[4];
  for (int i = 0; i < 4; ++i) q.enqueue(run1, element(i), in[i].done());
  BOOST_TEST(in[1].calls == 1);
  BOOST_TEST(in[2].calls == 0);  // full: waits
  BOOST_TEST(in[3].calls == 0);
  BOOST_TEST(q.size() == 2);
  q.dequeue(run1, out[0].done());
  BOOST_TEST(out[0].value == 0);
  BOOST_TEST(in[2].calls == 1);
  BOOST_TEST(in[3].calls == 0);
  for (int i = 1; i < 4; ++i) q.dequeue(run1, out[i].done());
  for (int i = 0; i < 4; ++i) BOOST_TEST(out[i].value == i);
  BOOST_TEST(in[3].calls == 1);
}

BOOST_AUTO_TEST_CASE(an_empty_queue_holds_consumers_back_in_order) {
  QueueState q(queue_spec(2));
  Answer out[2], in;
  q.dequeue(run1, out[0].done());
  q.dequeue(run1, out[1].done());
  q.enqueue(run1, element(7), in.done());
  BOOST_TEST(out[0].value == 7);
  BOOST_TEST(out[1].calls == 0);
}

// Nothing else could end the wait.
BOOST_AUTO_TEST_CASE(queue_refuses_a_wait_when_nothing_else_runs) {
  const auto refuses = [](auto f, const std::string& part) {
    BOOST_CHECK_EXCEPTION(f(), Error, [&](const Error& e) {
      return says(e, Code::failed_precondition, part) && says(e, e.code(), "state_test.cpp:");
    });
  };
  Eager e;
  Queue q = e.fifo_queue("q", {{DType::i64, Shape{}}}, 1),
        s = e.shuffling_queue("s", {{DType::i64, Shape{}}}, 4, 2);
  for (std::int64_t i = 0; i < 3; ++i) {  // a refused call has no effect
    refuses([&] { q.dequeue(); },
            "queue 'q' is empty and nothing else runs here that could fill it");
    q.enqueue({i});
    refuses([&] { q.enqueue({std::int64_t{7}}); },
            "queue 'q' is full, its capacity is 1, and nothing else runs here that could empty it");
    BOOST_TEST(q.dequeue()[0].value().item<std::int64_t>() == i);
    BOOST_TEST(q.size().value().item<std::int64_t>() == 0);
  }
  for (std::int64_t i = 0; i < 2; ++i) s.enqueue({i});
  refuses([&] { s.dequeue(); }, "queue 's' keeps back 2 elements of the 2 it has");
  s.enqueue({std::int64_t{2}});
  s.dequeue();
  Graph g;
  Queue of_graph = g.fifo_queue("g", {{DType::i64, Shape{}}}, 1);
  Expr taken = of_graph.dequeue()[0], put = of_graph.enqueue({std::int64_t{5}});
  Eager run;
  refuses([&] { run.run(g, {}, {taken}); }, "queue 'g' is empty");
  run.run(g, {}, {put});
  refuses([&] { run.run(g, {}, {put}); }, "queue 'g' is full");
  BOOST_TEST(run.run(g, {}, {taken})[0].item<std::int64_t>() == 5);
}

BOOST_AUTO_TEST_CASE(a_closed_queue_drains_and_then_fails) {
  QueueState q(queue_spec(2));
  Answer in[4], out[3];
  for (int i = 0; i < 3; ++i) q.enqueue(run1, element(i), in[i].done());
  q.close();
  BOOST_TEST((in[2].status.code() == Code::failed_precondition));  // it waited
  q.enqueue(run1, element(9), in[3].done());
  BOOST_TEST((in[3].status.code() == Code::failed_precondition));
  for (Answer& a : out) q.dequeue(run1, a.done());
  BOOST_TEST(out[0].value == 0);
  BOOST_TEST(out[1].value == 1);
  BOOST_TEST((out[2].status.code() == Code::out_of_range));
}

BOOST_AUTO_TEST_CASE(closing_wakes_waiting_consumers) {
  QueueState q(queue_spec(2));
  Answer out;
  q.dequeue(run1, out.done());
  q.close();
  BOOST_TEST((out.status.code() == Code::out_of_range));
}

BOOST_AUTO_TEST_CASE(cancelling_a_run_takes_only_its_waiters) {
  QueueState q(queue_spec(1));
  Answer mine, other, in;
  q.dequeue(run1, mine.done());
  q.dequeue(run2, other.done());
  q.cancel(1, Status(Code::cancelled, "over"));
  BOOST_TEST((mine.status.code() == Code::cancelled));
  q.enqueue(run3, element(4), in.done());
  BOOST_TEST(other.value == 4);
  BOOST_TEST(mine.calls == 1);
}

// Its caller may know already that it has failed.
BOOST_AUTO_TEST_CASE(a_cancelled_run_neither_takes_nor_puts_nor_changes_anything) {
  QueueState q(queue_spec(2));
  Answer in[2], out[2];
  q.enqueue(run1, element(4), in[0].done());
  NumberedRun gone(7);
  gone.cancelled = true;
  q.dequeue(gone, out[0].done());
  q.enqueue(gone, element(5), in[1].done());
  BOOST_TEST((out[0].status.code() == Code::aborted));
  BOOST_TEST((in[1].status.code() == Code::aborted));
  BOOST_TEST(q.size() == 1);
  q.dequeue(run1, out[1].done());
  BOOST_TEST(out[1].value == 4);

  VariableState v(DType::f64, Shape{}, Tensor::scalar(1.0));
  int uses = 0;
  Status told;
  const auto acquire = [&] {
    v.acquire(
        gone, [&](Tensor&) { ++uses; }, [&](const Status& s) { told = s; });
  };
  acquire();
  BOOST_TEST((told.code() == Code::aborted));
  BOOST_TEST(v.try_acquire());
  told = {};
  acquire();
  BOOST_TEST((told.code() == Code::aborted));
  v.release(false);
  BOOST_TEST(uses == 0);
}

BOOST_AUTO_TEST_CASE(a_cancelled_run_leaves_a_variable_without_holders_unchanged) {
  auto cpu = make_cpu_device();
  auto stream = cpu->make_stream();
  StateSpec spec;
  spec.name = "v";
  spec.values = {{DType::f64, Shape{}}};
  const StateInUse use{&spec,
                       Ref<State>(new VariableState(DType::f64, Shape{}, Tensor::scalar(1.0)))};
  auto& v = static_cast<VariableState&>(*use.state);
  const Attrs attrs{{"dtype", DType::f64}, {"shape", Shape{}}};
  const DType type = DType::f64;
  const Shape shape;
  const std::span<const DType> types(&type, 1);
  const std::span<const Shape> shapes(&shape, 1);
  const auto assign =
      make_node_kernel(find_op("AssignVariable"),
                       {"AssignVariable", attrs, types, shapes, types, shapes, *cpu, 0, use.state});
  NumberedRun run(7);
  const auto set = [&](double to) {
    Value value = Tensor::scalar(to), made;
    run_kernel_blocking(*assign, {&value, 1}, {&made, 1}, *cpu, *stream, run, use);
  };
  set(2);
  run.cancelled = true;
  BOOST_CHECK_EXCEPTION(set(3), Error, [](const Error& e) {
    return says(e, Code::aborted, "the run has failed or was cancelled");
  });
  BOOST_TEST(v.snapshot().item<double>() == 2);  // and the right was given back
  BOOST_TEST(v.version() == 1);
}

BOOST_AUTO_TEST_CASE(shuffling_queue_keeps_a_reserve_and_repeats_its_order) {
  std::vector<std::int64_t> orders[2];
  for (auto& order : orders) {
    QueueState q(queue_spec(100, true, 10));
    Answer in;
    for (int i = 0; i < 60; ++i) q.enqueue(run1, element(i), in.done());
    for (int i = 0; i < 50; ++i) {
      Answer out;
      q.dequeue(run1, out.done());
      order.push_back(out.value);
    }
    Answer held;
    q.dequeue(run1, held.done());
    BOOST_TEST(held.calls == 0);  // 10 are left: they stay for mixing
    q.close();
    BOOST_TEST(held.calls == 1);  // unless no more can come
    for (int i = 0; i < 9; ++i) {
      Answer out;
      q.dequeue(run1, out.done());
      order.push_back(out.value);
    }
    order.push_back(held.value);
  }
  BOOST_TEST(orders[0] == orders[1], tools::per_element());
  BOOST_TEST(std::set<std::int64_t>(orders[0].begin(), orders[0].end()).size() == 60);  // each once
  int in_place = 0;
  for (int i = 0; i < 60; ++i) in_place += orders[0][i] == i;
  BOOST_TEST(in_place < 10);
}

BOOST_AUTO_TEST_CASE(a_held_variable_serves_in_order) {
  VariableState v(DType::f64, Shape{}, Tensor::scalar(1.0));
  BOOST_TEST(v.try_acquire());
  BOOST_TEST(!v.try_acquire());
  std::vector<int> order;
  Status told;
  auto use = [&](int who) {
    return [&, who](Tensor&) {
      order.push_back(who);
      v.release(true);
    };
  };
  v.acquire(run1, use(1), [](const Status&) {});
  v.acquire(run2, use(2), [&](const Status& s) { told = s; });
  v.acquire(run3, use(3), [](const Status&) {});
  v.cancel(2, Status(Code::cancelled, "over"));
  v.release(false);
  BOOST_TEST(order == (std::vector<int>{1, 3}), tools::per_element());
  BOOST_TEST((told.code() == Code::cancelled));
  BOOST_TEST(v.version() == 2);
}

// As many nested calls as waiters would not fit on the stack.
BOOST_AUTO_TEST_CASE(a_held_variable_serves_any_number_of_waiters) {
  constexpr int kWaiters = 100'000;
  VariableState v(DType::f64, Shape{}, Tensor::scalar(1.0));
  BOOST_TEST(v.try_acquire());
  int served = 0, in_order = 0;
  for (int i = 0; i < kWaiters; ++i)
    v.acquire(
        run1,
        [&, i](Tensor&) {
          in_order += served++ == i;
          v.release(true);
        },
        [](const Status&) {});
  v.release(false);
  BOOST_TEST(served == kWaiters);
  BOOST_TEST(in_order == kWaiters);
  BOOST_TEST(v.version() == kWaiters);
  BOOST_TEST(v.try_acquire());
  v.release(false);
}

BOOST_AUTO_TEST_CASE(a_waiter_may_give_the_right_back_later) {
  VariableState v(DType::f64, Shape{}, Tensor::scalar(1.0));
  BOOST_TEST(v.try_acquire());
  int served = 0;
  for (int i = 0; i < 3; ++i)
    v.acquire(
        run1, [&](Tensor&) { ++served; }, [](const Status&) {});
  for (int i = 1; i <= 3; ++i) {
    v.release(false);
    BOOST_TEST(served == i);
    BOOST_TEST(!v.try_acquire());
  }
  v.release(false);
  BOOST_TEST(v.try_acquire());
  v.release(false);
}

BOOST_AUTO_TEST_CASE(without_an_engine_too_a_fresh_actor_follows_one_that_threw) {
  Graph g;
  Expr by = g.input("by", DType::i64, Shape{});
  const auto sum_up = [sum = std::int64_t{0}](std::span<const Tensor> in,
                                              std::span<Tensor> out) mutable {
    sum += in[0].item<std::int64_t>();
    if (sum > 10) throw std::runtime_error("too much");
    out[0] = Tensor::scalar(sum);
  };
  Expr sum = actor_node(g, "sum", {by}, {{DType::i64, Shape{}}}, sum_up, {.max_restarts = 1})[0];
  Eager run;
  const auto add = [&](std::int64_t k) {
    return run.run(g, {{by, Tensor::scalar(k)}}, {sum})[0].item<std::int64_t>();
  };
  const auto fails = [&](std::int64_t k, const std::string& part, Code code) {
    BOOST_CHECK_EXCEPTION(add(k), Error, [&](const Error& e) { return says(e, code, part); });
  };
  BOOST_TEST(add(5) == 5);
  BOOST_TEST(add(4) == 9);
  fails(4, "too much", Code::invalid_argument);
  BOOST_TEST(add(5) == 5);  // a fresh one
  // One restart in a row is allowed; the second failure leaves it down.
  for (int i = 0; i < 2; ++i) fails(11, "too much", Code::invalid_argument);
  fails(1, "actor 'sum' is down: it failed 2 times in a row", Code::failed_precondition);
}

BOOST_AUTO_TEST_CASE(empty_states_are_refused_with_the_line) {
  const auto refuses = [](auto f, const std::string& part, Code code = Code::invalid_argument) {
    BOOST_CHECK_EXCEPTION(f(), Error, [&](const Error& e) {
      return says(e, code, part) && says(e, code, "state_test.cpp:");
    });
  };
  Graph g;
  const ValueSpec number{DType::f32, Shape{}};
  refuses([&] { g.variable("w", Tensor()); }, "variable 'w'");
  refuses([&] { g.variable("", Tensor::scalar(1.f)); }, "needs a name");
  refuses([&] { g.fifo_queue("", {number}, 2); }, "needs a name");
  refuses([&] { g.fifo_queue("q", {}, 2); }, "at least one component");
  refuses([&] { g.shuffling_queue("q", {}, 2, 1); }, "at least one component");
  const Variable none;
  refuses([&] { none.read(); }, "never declared");
  refuses([&] { none.assign(1.0); }, "never declared");
  refuses([&] { none.scatter_add(Tensor::of<std::int32_t>({0}), 1.0); }, "never declared");
  refuses([&] { g.constant(1.f) + none; }, "never declared");
  const auto nothing = [](std::span<const Tensor>, std::span<Tensor>) {};
  refuses([&] { actor_node(g, "", {}, {number}, nothing); }, "needs a name");
  refuses([&] { actor_node(g, "a", {Expr()}, {number}, nothing); },
          "input 0 of actor 'a' is an empty expression", Code::failed_precondition);
  refuses([&] { g.constant(std::string("a")) + 1.0; }, "the number 1 meets strings");
  BOOST_CHECK_EXCEPTION(Expr().value(), Error, [](const Error& e) {
    return says(e, Code::failed_precondition, "an empty expression");
  });
  Eager run;
  BOOST_CHECK_EXCEPTION(run.run(g, {}, {Expr()}), Error, [](const Error& e) {
    return says(e, Code::invalid_argument, "an empty expression");
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
