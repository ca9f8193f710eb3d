// Eager scopes on devices of other nodes: ops, tapes and traced functions run there, values stay
// there until they are read.
#include <boost/test/unit_test.hpp>

#include <functional>
#include <thread>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/cluster/node/eager_limits.hpp>
#include <troupe/cluster/node/node_core.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/test/support/temp_directory.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(remote_eager_test)

namespace {

using namespace std::chrono_literals;

const std::string kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

std::vector<double> read(Eager& e, const Expr& x) {
  const Tensor t = e.on_host(x);
  std::vector<double> out;
  for (std::int64_t i = 0; i < t.elements(); ++i) out.push_back(t.at(i));
  return out;
}
using Numbers = std::vector<double>;

NodeCore& core_of(ClusterNode& node) {
  return dynamic_cast<NodeCore&>(*node.engine().impl().peers());
}

bool has(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& p : parts)
    if (text.find(p) == std::string::npos) return BOOST_TEST_MESSAGE(text), false;
  return true;
}

Tensor vector_of(std::initializer_list<float> elements) { return Tensor::of<float>(elements); }

/// Runs `test` with two nodes that have threads, and with two whose steps a seed decides.
void over_two_nodes(const std::function<void(Nodes&, Eager&)>& test) {
  for (const bool is_stepped : {false, true}) {
    BOOST_TEST_CONTEXT((is_stepped ? "in steps" : "with threads")) {
      EngineOptions engine = is_stepped ? stepped(3) : EngineOptions();
      if (!is_stepped) engine.workers = 2;
      Nodes nodes(2, engine);
      Eager e(nodes.engine());
      test(nodes, e);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_op_runs_on_the_node_and_its_result_stays_until_it_is_read) {
  over_two_nodes([](Nodes& nodes, Eager& e) {
    const Expr x = e.constant(vector_of({1, 2, 3}));
    Expr y;
    {
      auto there = e.on_device(kB);
      y = x * 2.0 + x;
    }
    BOOST_TEST(!y.value().is_on_host());
    BOOST_TEST(y.shape() == Shape{3});
    BOOST_TEST(read(e, y) == Numbers({3, 6, 9}));
    BOOST_TEST(core_of(nodes[1]).eager().values() > 0u);
    BOOST_TEST(nodes[0].engine().impl().in_flight() == 0u);
    // an op here copies its input by itself
    BOOST_TEST(read(e, y + 1.0) == Numbers({4, 7, 10}));
    BOOST_TEST((y + 1.0).value().is_on_host());
  });
}

BOOST_AUTO_TEST_CASE(chain_of_ops_takes_few_messages_and_no_round_trip) {
  over_two_nodes([](Nodes& nodes, Eager& e) {
    auto there = e.on_device(kB);
    const Expr one = e.constant(vector_of({1}));
    Expr x = one + one;
    BOOST_TEST(read(e, x) == Numbers({2}));
    const std::uint64_t before = core_of(nodes[0]).transport().counters().messages_out;
    for (int i = 0; i < 1000; ++i) x = x + one;
    BOOST_TEST(read(e, x) == Numbers({1002}));
    const std::uint64_t sent = core_of(nodes[0]).transport().counters().messages_out - before;
    BOOST_TEST(sent < 200u);  // other messages of the nodes among them
  });
}

BOOST_AUTO_TEST_CASE(values_that_are_dropped_are_freed_on_the_node) {
  over_two_nodes([](Nodes& nodes, Eager& e) {
    auto there = e.on_device(kB);
    const Expr one = e.constant(vector_of({1}));
    {
      std::vector<Expr> many;
      for (int i = 0; i < 3000; ++i) many.push_back(one + static_cast<double>(i));
      BOOST_TEST(read(e, many.back()) == Numbers({3000}));
      BOOST_TEST(core_of(nodes[1]).eager().values() >= 3000u);
    }
    // the last releases go with the next steps
    BOOST_TEST(read(e, one + one) == Numbers({2}));
    BOOST_TEST(core_of(nodes[1]).eager().values() < 200u);
    BOOST_TEST(core_of(nodes[0]).remote_devices().calls().values() < 200u);
  });
}

BOOST_AUTO_TEST_CASE(reading_a_value_reports_the_failed_op_and_its_line) {
  over_two_nodes([](Nodes&, Eager& e) {
    auto there = e.on_device(kB);
    const Expr x = e.constant(vector_of({1, 2, 3}));
    const Expr index = e.constant(Tensor::of<std::int64_t>({1, 7}));
    const Expr bad = gather(x, index);
    const std::string line = "remote_eager_test.cpp:" + std::to_string(__LINE__ - 1);
    const Expr after = bad + 1.0, good = x + 1.0;
    for (const Expr& y : {bad, after})
      BOOST_TEST(has(refusal([&] { e.on_host(y); }, Code::out_of_range),
                     {"Gather", line, "node 'b'", "7"}));
    // it is the value's error, not the scope's
    BOOST_TEST(read(e, good) == Numbers({2, 3, 4}));
    BOOST_TEST(read(e, x * 2.0) == Numbers({2, 4, 6}));
    BOOST_TEST(has(refusal([&] { matmul(x, index); }, Code::invalid_argument), {"MatMul"}));
  });
}

BOOST_AUTO_TEST_CASE(a_failed_effect_is_thrown_by_the_next_read_whatever_is_read) {
  over_two_nodes([](Nodes&, Eager& e) {
    auto there = e.on_device(kB);
    const Variable v = e.variable("v", vector_of({1, 2}));
    const Expr index = e.constant(Tensor::of<std::int64_t>({5, 5}));
    v.assign(gather(v.read(), index));
    BOOST_TEST(
        has(refusal([&] { e.on_host(v.read()); }, Code::out_of_range), {"Gather", "node 'b'"}));
    BOOST_TEST(read(e, v.read()) == Numbers({1, 2}));  // once
  });
}

BOOST_AUTO_TEST_CASE(variables_live_on_the_node_where_they_are_declared) {
  over_two_nodes([](Nodes& nodes, Eager& e) {
    Variable v;
    {
      auto there = e.on_device(kB);
      v = e.variable("v", vector_of({1, 2}));
      v.assign_add(vector_of({10, 10}));
    }
    BOOST_TEST(!v.read().value().is_on_host());
    BOOST_TEST(read(e, v.read()) == Numbers({11, 12}));
    BOOST_TEST(nodes.engine().get("v").at(1) == 12);
    // a graph of this engine shares it
    Graph g;
    auto there = g.on_device(kB);
    const Expr sum = g.variable("v", vector_of({1, 2})).assign_add(1.0);
    BOOST_TEST(nodes.engine().run(g, {}, {sum})[0].at(0) == 12);
    BOOST_TEST(read(e, v.read() * 1.0) == Numbers({12, 13}));
  });
}

BOOST_AUTO_TEST_CASE(random_draws_have_the_bits_of_draws_here) {
  over_two_nodes([](Nodes& nodes, Eager& e) {
    std::vector<Numbers> drawn;
    for (const bool is_there : {false, true}) {
      Eager scope(nodes.engine());
      scope.set_seed(7);
      std::optional<Eager::OnDevice> there;
      if (is_there) there.emplace(scope, kB, Site());
      Numbers all;
      for (int i = 0; i < 3; ++i)
        for (const double x : read(scope, scope.random_normal({4}))) all.push_back(x);
      drawn.push_back(all);
    }
    BOOST_TEST(drawn[0] == drawn[1]);
    (void)e;
  });
}

BOOST_AUTO_TEST_CASE(a_tape_differentiates_ops_and_variables_of_the_node) {
  over_two_nodes([](Nodes&, Eager& e) {
    auto there = e.on_device(kB);
    const Variable w = e.variable("w", vector_of({2, 3}));
    const Expr x = e.constant(vector_of({5, 7}));
    GradientTape tape({.persistent = true});
    tape.watch(x);
    const Expr y = sum(square(w.read()) * x);
    const Expr dw = tape.gradient(y, w), dx = tape.gradient(y, x);
    BOOST_TEST(!dw.value().is_on_host());
    BOOST_TEST(read(e, dw) == Numbers({20, 42}));
    BOOST_TEST(read(e, dx) == Numbers({4, 9}));
    Sgd({.learning_rate = 0.5}).apply({dw}, {w});
    BOOST_TEST(read(e, w.read()) == Numbers({-8, -18}));
  });
}

BOOST_AUTO_TEST_CASE(traced_function_runs_as_one_call_and_its_results_stay_remote) {
  over_two_nodes([](Nodes& nodes, Eager& e) {
    Variable count;
    auto step = function("step", [&](Expr x) {
      if (count.state() < 0) count = e.variable("count", Tensor::scalar(0.f));
      count.assign_add(1.0);
      return std::tuple{
          while_loop([](Expr v) { return sum(v) < 100.0; }, [](Expr v) { return v * 2.0; }, x),
          count.read()};
    });
    const Expr here = e.constant(vector_of({1, 2}));
    {
      auto there = e.on_device(kB);
      for (int i = 1; i <= 3; ++i) {
        const auto [y, n] = step(here + 0.0);
        BOOST_TEST(!y.value().is_on_host());
        BOOST_TEST(read(e, y) == Numbers({64, 128}));
        BOOST_TEST(read(e, n) == Numbers({static_cast<double>(i)}));
      }
      const Expr x = here + 0.0;
      GradientTape tape;
      tape.watch(x);
      BOOST_TEST(read(e, tape.gradient(std::get<0>(step(x)), x)) == Numbers({64, 64}));
    }
    // called from here, it works on the same variable
    BOOST_TEST(read(e, std::get<1>(step(here))) == Numbers({5}));
    BOOST_TEST(step.traces() == 1);
    BOOST_TEST(nodes.engine().get("count").at(0) == 5);
  });
}

BOOST_AUTO_TEST_CASE(an_error_in_a_traced_function_names_it_and_the_line_inside) {
  over_two_nodes([](Nodes&, Eager& e) {
    auto there = e.on_device(kB);
    auto pick = function("pick", [](Expr x, Expr i) { return gather(x, i); });
    const std::string line = "remote_eager_test.cpp:" + std::to_string(__LINE__ - 1);
    const Expr x = e.constant(vector_of({1, 2}));
    const Expr good = pick(x, e.constant(Tensor::of<std::int64_t>({1})));
    const Expr bad = pick(x, e.constant(Tensor::of<std::int64_t>({9})));
    BOOST_TEST(read(e, good) == Numbers({2}));
    BOOST_TEST(has(refusal([&] { e.on_host(bad); }, Code::out_of_range),
                   {"function 'pick'", line, "node 'b'"}));
  });
}

BOOST_AUTO_TEST_CASE(remote_node_runs_lists_strings_control_flow_and_open_shapes) {
  over_two_nodes([](Nodes&, Eager& e) {
    auto there = e.on_device(kB);
    const Expr x = e.constant(vector_of({1, -2, 3}));
    Expr list = list_empty(e, {DType::f32, Shape{3}});
    for (int i = 0; i < 3; ++i) list = list_push(list, x * static_cast<double>(i));
    BOOST_TEST(read(e, list_read(list, 2)) == Numbers({2, -4, 6}));
    BOOST_TEST(read(e, sum(list_stack(list), {0})) == Numbers({3, -6, 9}));
    const Expr rows = list_unstack(reshape(x, {3, 1}));
    BOOST_TEST(read(e, list_read(rows, 1)) == Numbers({-2}));
    const Expr positive = boolean_mask(x, x > 0.0);
    BOOST_TEST(positive.shape() == Shape{2});
    BOOST_TEST(read(e, positive + 1.0) == Numbers({2, 4}));
    const Expr doubled =
        while_loop([](Expr v) { return sum(v) < 10.0; }, [](Expr v) { return v * 2.0; }, x);
    BOOST_TEST(read(e, doubled) == Numbers({8, -16, 24}));
    BOOST_TEST(read(e, cond(
                           sum(x) > 0.0, [&] { return x + 1.0; }, [&] { return x; })) ==
               Numbers({2, -1, 4}));
    const Queue queue = e.fifo_queue("q", {ValueSpec{DType::f32, Shape{3}}}, 2);
    queue.enqueue({x});
    BOOST_TEST(read(e, queue.dequeue()[0]) == Numbers({1, -2, 3}));
  });
}

// A simulated device of the node yields a list; its elements are read, and the node goes on.
BOOST_AUTO_TEST_CASE(the_elements_of_a_list_on_an_asynchronous_device_are_read) {
  Nodes nodes(2);
  Eager e(nodes.engine());
  auto there = e.on_device("/node:b/sim:0");
  auto rows = function("rows", [](Expr x) { return list_unstack(x * 2.0); });
  const Expr list = rows(reshape(e.constant(vector_of({1, -2, 3, 4})), {2, 2}));
  BOOST_TEST(read(e, list_read(list, 1)) == Numbers({6, 8}));
  BOOST_TEST(read(e, list_read(list, 0) + 1.0) == Numbers({3, -3}));
  auto single = function("single", [](Expr x) { return list_unstack(x * 2.0); });
  BOOST_TEST(read(e, list_read(single(e.constant(vector_of({5, 7}))), 1)) == Numbers({14}));
  BOOST_TEST(nodes.log().empty());
}

BOOST_AUTO_TEST_CASE(node_takes_a_list_that_nests_beyond_any_stack) {
  Nodes nodes(2);
  Eager e(nodes.engine());
  const ValueSpec any{DType::f32, Shape::unknown(), ValueSpec::kAnyDepth};
  Expr list = list_push(list_empty(e, any), e.constant(1.f));
  for (int i = 0; i < 100'000; ++i) list = list_push(list_empty(e, any), list);
  auto there = e.on_device(kB);
  BOOST_TEST(read(e, list_length(list)) == Numbers({1}));
  BOOST_TEST(nodes.log().empty());
}

BOOST_AUTO_TEST_CASE(a_drained_node_takes_no_new_eager_programs) {
  Nodes nodes(2);
  Eager e(nodes.engine());
  auto there = e.on_device(kB);
  const Expr x = e.constant(vector_of({1, 2})) + 1.0;
  BOOST_TEST(read(e, x) == Numbers({2, 3}));
  nodes[0].drain("b");
  BOOST_TEST(read(e, x) == Numbers({2, 3}));
  // a program that is there goes on
  BOOST_TEST(read(e, e.constant(vector_of({5, 6})) + 1.0) == Numbers({6, 7}));
  const std::string why = refusal([&] { read(e, tanh(x)); }, Code::unavailable);
  BOOST_TEST(has(why, {"Tanh", "node 'b'", "it is being drained and takes no new eager programs"}));
}

// More scopes than a node takes at once, one after the other. Each only reads.
BOOST_AUTO_TEST_CASE(a_scope_that_only_reads_ends_on_the_node) {
  Nodes nodes(2);
  Eager e(nodes.engine());
  Expr x;
  {
    auto there = e.on_device(kB);
    x = e.constant(vector_of({1})) + 1.0;
  }
  for (std::size_t i = 0; i < EagerLimits::kStreams + 10; ++i) {
    Eager other(nodes.engine());
    BOOST_REQUIRE(other.on_host(x).at(0) == 2);
  }
  BOOST_TEST(nodes.log().empty());
}

BOOST_AUTO_TEST_CASE(node_refuses_a_scope_above_its_limit_and_serves_the_others) {
  Nodes nodes(2);
  Eager e(nodes.engine());
  auto there = e.on_device(kB);
  const Expr x = e.constant(vector_of({1})) + 1.0;
  BOOST_TEST(read(e, x) == Numbers({2}));
  std::vector<std::unique_ptr<Eager>> many;
  for (std::size_t i = 1; i < EagerLimits::kStreams; ++i) {
    many.push_back(std::make_unique<Eager>(nodes.engine()));
    BOOST_REQUIRE(many.back()->on_host(x).at(0) == 2);
  }
  {
    Eager one_more(nodes.engine());
    BOOST_TEST(has(refusal([&] { one_more.on_host(x); }, Code::resource_exhausted),
                   {"node 'b'", "4096", "scopes"}));
  }
  many.pop_back();
  Eager next(nodes.engine());
  BOOST_TEST(next.on_host(x).at(0) == 2);
  BOOST_TEST(read(e, x + 1.0) == Numbers({3}));
}

BOOST_AUTO_TEST_CASE(the_state_of_a_lost_node_does_not_begin_anew_here) {
  Nodes nodes(2);
  Graph g;
  Expr v;
  {
    auto there = g.on_device(kB);
    v = g.variable("v", vector_of({1, 2})).read();
  }
  {
    Eager e(nodes.engine());
    BOOST_TEST(e.run(g, {}, {v})[0].at(1) == 2);
  }
  nodes.remove_and_tell(1);
  Eager e(nodes.engine());
  BOOST_TEST(has(refusal([&] { e.run(g, {}, {v}); }, Code::not_found), {"'b'"}));
}

BOOST_AUTO_TEST_CASE(code_of_this_process_runs_here_on_values_of_the_node) {
  Nodes nodes(2);
  Eager e(nodes.engine());
  auto there = e.on_device(kB);
  const Expr x = e.constant(vector_of({1, 2})) + 1.0;
  const Expr doubled = actor_node(e, "twice", {x}, {{DType::f32, Shape{2}}},
                                  [](std::span<const Tensor> in, std::span<Tensor> out) {
                                    out[0] = vector_of({static_cast<float>(2 * in[0].at(0)),
                                                        static_cast<float>(2 * in[0].at(1))});
                                  })[0];
  BOOST_TEST(read(e, doubled + x) == Numbers({6, 9}));
}

// A checkpoint has the variables of the node and the optimizer's slots beside them.
BOOST_AUTO_TEST_CASE(a_training_on_the_node_is_saved_and_restored) {
  over_two_nodes([](Nodes&, Eager& e) {
    auto there = e.on_device(kB);
    const Variable w = e.variable("w", vector_of({1, 2}));
    const Momentum optimizer({.learning_rate = 0.5, .momentum = 0.5});
    const auto step = [&] {
      GradientTape tape;
      const Expr loss = sum(square(w.read()));
      optimizer.apply({tape.gradient(loss, w)}, {w});
      return read(e, w.read());
    };
    step();
    const Folder folder;
    const std::string file = folder / "training";
    ObjectCheckpoint checkpoint(e);
    checkpoint.add("w", w).add("momentum", optimizer);
    checkpoint.save(file);
    const Numbers second = step(), third = step();
    BOOST_TEST(checkpoint.restore(file).is_complete());
    BOOST_TEST(step() == second);
    BOOST_TEST(step() == third);
  });
}

BOOST_AUTO_TEST_CASE(values_go_between_nodes_by_themselves) {
  Nodes nodes(3);
  Eager e(nodes.engine());
  Expr of_b, of_c;
  {
    auto there = e.on_device(kB);
    of_b = e.constant(vector_of({1, 2})) + 1.0;
  }
  {
    auto there = e.on_device(kC);
    of_c = of_b * 10.0;
  }
  BOOST_TEST(of_b.value().device() != of_c.value().device());
  BOOST_TEST(read(e, of_c + of_b) == Numbers({22, 33}));
  Eager other(nodes.engine());
  auto there = other.on_device(kC);
  BOOST_TEST(read(other, of_c + of_c) == Numbers({40, 60}));
}

BOOST_AUTO_TEST_CASE(a_node_that_is_not_there_is_refused_at_the_line) {
  Nodes nodes(1);
  Eager e(nodes.engine());
  const std::string text =
      refusal([&] { auto there = e.on_device("/node:x/cpu:0"); }, Code::not_found);
  BOOST_TEST(has(text, {"on_device at", "remote_eager_test.cpp", "'x'"}));
  EngineOptions alone;
  alone.workers = 1;
  Engine engine(alone);
  Eager of_one(engine);
  BOOST_TEST(has(refusal([&] { auto there = of_one.on_device("/node:b/cpu:0"); }, Code::not_found),
                 {"no node of a cluster"}));
}

BOOST_AUTO_TEST_CASE(a_device_that_the_node_does_not_have_fails_what_runs_there) {
  over_two_nodes([](Nodes&, Eager& e) {
    auto there = e.on_device("/node:b/abacus:0");
    const Expr y = e.constant(vector_of({1})) + 1.0;
    BOOST_TEST(has(refusal([&] { e.on_host(y); }, Code::not_found), {"Add", "node 'b'", "abacus"}));
  });
}

BOOST_AUTO_TEST_CASE(values_of_a_lost_node_are_errors_and_its_restart_computes) {
  Nodes nodes(2);
  Eager e(nodes.engine());
  Expr x;
  {
    auto there = e.on_device(kB);
    x = e.constant(vector_of({1})) + 1.0;
  }
  const std::string line = "remote_eager_test.cpp:" + std::to_string(__LINE__ - 2);
  BOOST_TEST(read(e, x) == Numbers({2}));
  nodes.remove_and_tell(1);
  BOOST_TEST(
      has(refusal([&] { e.on_host(x); }, Code::unavailable), {"Add", line, "node 'b' was lost"}));
  BOOST_TEST(has(refusal([&] { x + 1.0; }, Code::unavailable), {"Add", line, "node 'b' was lost"}));
  nodes.add("b");
  nodes[0].wait_for({"b"}, 60s);
  auto there = e.on_device(kB);
  BOOST_TEST(has(refusal([&] { x + 1.0; }, Code::unavailable), {"node 'b' was lost"}));
  BOOST_TEST(read(e, e.constant(vector_of({1})) + 1.0) == Numbers({2}));
}

BOOST_AUTO_TEST_CASE(values_and_programs_may_outlive_the_engine) {
  Tensor value;
  auto twice = function("twice", [](Expr x) { return x * 2.0; });
  {
    Nodes nodes(2);
    Eager e(nodes.engine());
    auto there = e.on_device(kB);
    const Expr y = twice(e.constant(vector_of({1})));
    BOOST_TEST(read(e, y) == Numbers({2}));
    value = y.value();
  }
  BOOST_TEST(value.shape() == Shape{1});
}

// A thread that waits for a value of the node, which leaves meanwhile.
BOOST_AUTO_TEST_CASE(a_read_under_way_ends_when_its_node_is_lost) {
  Nodes nodes(2);
  std::string text;
  std::atomic<bool> asks{false};
  std::thread reader([&] {
    Eager e(nodes.engine());
    auto there = e.on_device(kB);
    const Queue queue = e.fifo_queue("q", {ValueSpec{DType::f32, Shape{}}}, 1);
    const Expr never = queue.dequeue()[0];
    asks = true;
    text = refusal([&] { e.on_host(never); }, Code::unavailable);
  });
  while (!asks) std::this_thread::yield();
  nodes.remove(1);
  reader.join();
  BOOST_TEST(has(text, {"node 'b' was lost"}));
}

// Two threads, each with a scope: one waits at a queue of the node, the other fills it.
BOOST_AUTO_TEST_CASE(a_scope_that_waits_there_does_not_hold_up_another) {
  EngineOptions engine;
  engine.workers = 1;
  Nodes nodes(2, engine);
  const auto queue_of = [](Eager& e) {
    return e.fifo_queue("q", {ValueSpec{DType::f32, Shape{}}}, 1);
  };
  double got = 0;
  std::atomic<bool> asks{false};
  std::thread taker([&] {
    Eager e(nodes.engine());
    auto there = e.on_device(kB);
    const Expr next = queue_of(e).dequeue()[0];
    asks = true;
    got = e.on_host(next).at(0);
  });
  while (!asks) std::this_thread::yield();
  Eager e(nodes.engine());
  auto there = e.on_device(kB);
  queue_of(e).enqueue({e.constant(42.f)});
  taker.join();
  BOOST_TEST(got == 42);
}

// The node takes two batches at a time, and is sent no more.
BOOST_AUTO_TEST_CASE(a_caller_keeps_to_the_limits_of_the_node) {
  EarlyLimits early;
  early.messages = 2;
  Nodes nodes(2, {}, Between::handles, {}, {}, early);
  Eager e(nodes.engine());
  auto there = e.on_device(kB);
  const Expr one = e.constant(vector_of({1}));
  Expr x = one;
  for (int i = 0; i < 2000; ++i) x = x + one;
  BOOST_TEST(read(e, x) == Numbers({2001}));
  BOOST_TEST(nodes.log().empty());
}

namespace {

/// A peer that says what it wants.
class Liar final : public TransportListener {
 public:
  explicit Liar(Nodes& nodes)
      : transport_(nodes.network().make_transport(
            {.name = "b", .incarnation = 50, .address = "sim://b", .engine = {}})) {
    transport_->start(*this);
    transport_->connect("sim://a");
  }
  ~Liar() { transport_->stop(); }
  template <class M>
  void say(const M& message) {
    transport_->send(peer_, M::kLane, written(message));
  }
  void connected(Peer peer, const PeerInfo&) override {
    peer_ = peer;
    say(Gossip{{.name = "b", .incarnation = 50, .address = "sim://b"},
               {.kind = MembershipMessage::Kind::news}});
  }
  void refused(const std::string&, const Status&) override {}
  void received(Peer, Lane, Message message) override {
    NodeMessage any = read_message(message);
    if (auto* said = std::get_if<EagerResults>(&any)) results.push_back(std::move(*said));
  }
  void lost(Peer, const Status& status) override {
    is_lost = true;
    why = status.message();
  }

  std::vector<EagerResults> results;
  bool is_lost = false;
  std::string why;

 private:
  std::unique_ptr<Transport> transport_;
  Peer peer_ = 0;
};

EagerStep put(std::uint64_t id) {
  EagerStep step{EagerStep::Kind::put, 0, 1, id};
  step.value = Tensor::scalar(1.f);
  return step;
}

}  // namespace

// Names are those of its own session: another's values, freed ones and invented ones are not there.
BOOST_AUTO_TEST_CASE(a_peer_that_names_what_is_not_its_own_is_disconnected) {
  using Kind = EagerStep::Kind;
  const std::vector<std::pair<std::string, std::vector<EagerStep>>> lies = {
      {"a read", {{Kind::read, 9, 1, 77}}},
      {"a release", {{Kind::release, 0, 1, 77}}},
      {"a second release", {put(5), {Kind::release, 0, 1, 5}, {Kind::release, 0, 1, 5}}},
      {"a number twice", {put(5), put(5)}},
      {"no number", {put(0)}},
      {"a call", {{Kind::call, 9, 1, 77, {}, {6}}}},
      {"an input of a list", {{Kind::pack, 0, 1, 6, {77}}}},
      {"a list of what is none", {put(5), {Kind::unpack, 0, 1, 5, {}, {6}}}},
      {"a program", {{Kind::drop, 0, 1, 77}}},
      {"after the end", {{Kind::end, 0, 1}, {Kind::read, 9, 1, 77}}},
      {"no steps", {}}};
  for (const auto& [what, steps] : lies) {
    BOOST_TEST_CONTEXT(what) {
      Nodes nodes(1, stepped(1), Between::simulation);
      Liar b(nodes);
      BOOST_REQUIRE(nodes.until(5s, [&] { return nodes[0].nodes().size() == 2; }));
      b.say(EagerSteps{1, steps});
      BOOST_TEST(nodes.until(5s, [&] { return b.is_lost; }));
    }
  }
  Nodes nodes(1, stepped(1), Between::simulation);
  Liar b(nodes);
  BOOST_REQUIRE(nodes.until(5s, [&] { return nodes[0].nodes().size() == 2; }));
  b.say(EagerSteps{1, {put(5), {Kind::read, 9, 1, 5}}});
  BOOST_TEST(nodes.until(5s, [&] { return b.results.size() > 0; }));
  BOOST_TEST(!b.is_lost);
  BOOST_TEST(b.results[0].results[0].value.tensor().at(0) == 1);
  b.say(EagerResults{3, {}});  // nothing was asked of it
  BOOST_TEST(nodes.until(5s, [&] { return b.is_lost; }));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
