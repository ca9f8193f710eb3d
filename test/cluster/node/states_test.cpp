// States on other nodes: their owners, their lifetime, and the errors of clients that used a lost
// one.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <thread>

#include <troupe/actors/engine/engine_impl.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(states_test)

namespace {

using namespace std::chrono_literals;

const std::string kB = "/node:b/cpu:0", kC = "/node:c/cpu:0";

}  // namespace

// Each node that declares a state of that name has its own, unless the nodes name one container.
BOOST_AUTO_TEST_CASE(a_state_is_its_owners_unless_they_share_a_container) {
  const auto add_one = [](ClusterNode& owner, const Tensor& initial) {
    Graph g;
    auto there = g.on_device(kB);
    return owner.engine().run(g, {}, {g.variable("v", initial).assign_add(1.0)})[0];
  };
  for (const bool is_shared : {false, true}) {
    Nodes nodes(3, {}, Between::handles, {}, {}, {}, is_shared ? "models" : "");
    compare({add_one(nodes[0], Tensor::scalar(1.f))}, {{2}}, "a's");
    compare({add_one(nodes[0], Tensor::scalar(1.f))}, {{3}}, "a's goes on");
    compare({add_one(nodes[2], Tensor::scalar(100.f))}, {{is_shared ? 4.0 : 101.0}}, "c's");
    if (is_shared) compare({nodes[1].engine().get("v")}, {{4}}, "of b itself");
    else compare({add_one(nodes[2], Tensor::scalar(100.f))}, {{102}}, "c's goes on");
    if (is_shared)
      refusal([&] { add_one(nodes[2], Tensor::of<float>({1, 2})); }, Code::already_exists);
    compare({nodes.engine().get("v")}, {{is_shared ? 4.0 : 3.0}}, "a's by its name");
  }
}

// The node that clears a container begins anew; another user of its contents gets the error that
// they are lost. A node's own states stay, whatever container it names.
BOOST_AUTO_TEST_CASE(a_container_is_cleared) {
  Nodes nodes(1, {}, Between::handles, {}, {}, {}, "models");
  nodes.container = {};
  nodes.add("b");
  nodes.container = "models";
  nodes.add("c");
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].wait_for({"a", "b", "c"}, 60s);
  const auto declared = [](Graph& g, Variable& v) {
    auto there = g.on_device(kB);
    v = g.variable("v", Tensor::scalar(1.f));
    return v.assign_add(1.0);
  };
  Graph of_a, of_c;
  Variable at_a, at_c;
  Function f = nodes[0].engine().compile(of_a, {}, {declared(of_a, at_a)});
  Function h = nodes[2].engine().compile(of_c, {}, {declared(of_c, at_c)});
  compare(f({}), {{2}}, "a's");
  compare(h({}), {{3}}, "c's, of the same variable");
  BOOST_TEST(nodes[0].clear_container("other").states == 0u);
  compare(f({}), {{4}}, "nothing was cleared");
  BOOST_TEST(says(refusal([&] { nodes[0].clear_container("models", {"x"}); }, Code::not_found),
                  {"no node 'x'"}));
  BOOST_TEST(nodes[0].clear_container("models").states == 1u);
  compare(f({}), {{2}}, "a's from the initial value on");
  // At first perhaps that b has no such plan: its owner has not heard of that yet, or hears of it
  // as a run begins.
  const auto expect_lost = [](const Function& function) {
    const auto end = std::chrono::steady_clock::now() + 60s;
    std::string why;
    do {
      try {
        function({});
        why = "nothing was thrown";
      } catch (const Error& e) { why = e.what(); }
    } while (!says(why, {"variable 'v' is lost", "its container was cleared"}) &&
             std::chrono::steady_clock::now() < end);
    BOOST_TEST(says(why, {"variable 'v' is lost", "its container was cleared"}), why);
  };
  expect_lost(h);
  nodes[2].engine().set(at_c, Tensor::scalar(6.f));
  compare(h({}), {{7}}, "c's again");
  BOOST_TEST(nodes[1].clear_container("models", {"b"}).states == 1u);  // by the node itself
  expect_lost(f);
  expect_lost(h);
}

// A node that names the container itself keeps its own states, and a user of a value of it gets the
// error of its loss after a clearing as before.
BOOST_AUTO_TEST_CASE(state_that_a_clearing_spares_is_reported_when_lost) {
  Nodes nodes(2, {}, Between::handles, {}, {}, {}, "models");
  Graph g;
  Variable v;
  {
    auto there = g.on_device(kB);
    v = g.variable("v", Tensor::scalar(1.f));
  }
  Function f = nodes.engine().compile(g, {}, {v.assign_add(1.0)});
  compare(f({}), {{2}}, "before");
  BOOST_TEST(nodes[0].clear_container("models").states == 0u);
  compare({nodes[1].engine().get("v")}, {{2}}, "b's own");
  nodes.remove_and_tell(1);
  nodes.add("b");
  nodes[0].wait_for({"b"}, 60s);
  const std::string why = refusal([&] { f({}); }, Code::failed_precondition);
  BOOST_TEST(says(why, {"variable 'v' is lost", "node 'b' has started again"}), why);
}

// Each thread waits until its node has room, because a sender of more than the node buffers is
// disconnected.
BOOST_AUTO_TEST_CASE(threads_set_variables_larger_than_the_quota_at_once) {
  constexpr int kThreads = 4, kTimes = 50, kElements = 10'000;
  Nodes nodes(2, {}, Between::handles, {}, {}, EarlyLimits{.bytes = 1000});
  Graph g;
  std::vector<Variable> variables(kThreads);
  std::vector<Expr> sums;
  {
    auto there = g.on_device(kB);
    for (int i = 0; i < kThreads; ++i) {
      variables[static_cast<std::size_t>(i)] =
          g.variable("v" + std::to_string(i), Tensor::zeros(DType::f32, {kElements}));
      sums.push_back(sum(variables[static_cast<std::size_t>(i)].read()));
    }
  }
  Function f = nodes.engine().compile(g, {}, sums);
  f({});
  std::vector<std::string> errors(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      try {
        for (int n = 1; n <= kTimes; ++n)
          nodes.engine().set(
              variables[i],
              Tensor::of(std::vector<float>(kElements, static_cast<float>(n)), {kElements}));
      } catch (const std::exception& e) { errors[i] = e.what(); }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& error : errors) BOOST_TEST(error == "");
  for (const Tensor& sum : f({}))
    BOOST_TEST(sum.item<float>() == static_cast<float>(kTimes * kElements));
}

// So are what a node's programs keep on others, by the program itself; and what they keep on their
// own node stays.
BOOST_AUTO_TEST_CASE(a_program_clears_what_is_its_own) {
  Nodes nodes(2);
  Graph g;
  Variable here = g.variable("w", Tensor::scalar(1.f)), v;
  {
    auto there = g.on_device(kB);
    v = g.variable("v", Tensor::scalar(1.f));
  }
  Function f = nodes.engine().compile(g, {}, {v.assign_add(1.0), here.assign_add(1.0)});
  f({});
  compare(f({}), {{3}, {3}}, "before");
  BOOST_TEST(nodes[0].clear_container("").states == 1u);
  compare(f({}), {{2}, {4}}, "after");
}

BOOST_AUTO_TEST_CASE(states_go_with_their_owner) {
  Nodes nodes(3);
  Graph g;
  {
    auto there = g.on_device(kB);
    compare(nodes[2].engine().run(g, {}, {g.variable("v", Tensor::scalar(1.f)).assign_add(1.0)}),
            {{2}}, "of c");
  }
  BOOST_TEST(nodes[1].engine().impl().has_others_states());
  nodes.remove(2);
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (nodes[1].engine().impl().has_others_states() && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  BOOST_TEST(!nodes[1].engine().impl().has_others_states());
  nodes.add("c");
  nodes[2].wait_for({"a", "b"}, 60s);
  Graph again;
  auto there = again.on_device(kB);
  compare(
      nodes[2].engine().run(again, {}, {again.variable("v", Tensor::scalar(1.f)).assign_add(1.0)}),
      {{2}}, "the same program once more");
}

BOOST_AUTO_TEST_CASE(a_value_that_is_lost_with_its_node_is_not_taken_for_another) {
  Nodes nodes(2);
  Graph g;
  Variable v, w;
  {
    auto there = g.on_device(kB);
    v = g.variable("v", Tensor::scalar(1.f));
    w = g.variable("w", Tensor::scalar(5.f));
  }
  Function f = nodes.engine().compile(g, {}, {v.assign_add(1.0)});
  f({});
  compare(f({}), {{3}}, "before");
  const auto restart = [&] {
    nodes.remove_and_tell(1);
    nodes.add("b");
    nodes[0].wait_for({"b"}, 60s);
  };
  restart();
  for (int call = 0; call < 2; ++call) {
    const std::string why = refusal([&] { f({}); }, Code::failed_precondition);
    BOOST_TEST(says(why, {"AssignAdd '", "states_test.cpp", "variable 'v' is lost",
                          "node 'b' has started again", "Engine::initialize"}),
               why);
  }
  BOOST_TEST(
      says(refusal([&] { nodes.engine().run(g, {}, {v.read()}); }, Code::failed_precondition),
           {"variable 'v' is lost"}));
  refusal([&] { nodes.engine().get(v); }, Code::failed_precondition);
  compare(nodes.engine().run(g, {}, {w.read()}), {{5}}, "nobody had used this one");
  nodes.engine().set(v, Tensor::scalar(3.f));
  compare(f({}), {{4}}, "restored");
  restart();
  nodes.engine().initialize(v);
  compare(f({}), {{2}}, "from the beginning");
}

// It is not made on another node either, where the constraint would have it made.
BOOST_AUTO_TEST_CASE(value_lost_with_one_of_several_nodes_is_not_replaced) {
  Nodes nodes(1);
  for (const char* name : {"b", "c"}) nodes.add(name, {}, "gpu=yes");
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].wait_for({"a", "b", "c"}, 60s);
  Graph g;
  Variable v, unused;
  {
    auto there = g.on_device("/label:gpu");
    v = g.variable("v", Tensor::scalar(1.f));
    unused = g.variable("unused", Tensor::scalar(1.f));
  }
  const auto add_one = [&] { return nodes.engine().run(g, {}, {v.assign_add(1.0)}); };
  compare(add_one(), {{2}}, "on b");
  nodes.remove_and_tell(1);
  const std::string why = refusal_once_heard([&] { add_one(); }, Code::failed_precondition);
  BOOST_TEST(says(why, {"AssignAdd '", "states_test.cpp", "variable 'v' is lost", "node 'b'",
                        "Engine::initialize"}),
             why);
  refusal([&] { nodes.engine().get(v); }, Code::failed_precondition);
  compare(nodes.engine().run(g, {}, {unused.read()}), {{1}}, "nobody had used this one");
  nodes.engine().set(v, Tensor::scalar(5.f));
  compare(add_one(), {{6}}, "on c");
  BOOST_TEST(nodes[1].engine().impl().has_others_states());
}

BOOST_AUTO_TEST_CASE(one_name_on_two_nodes_is_not_guessed) {
  Nodes nodes(3);
  Graph g, h;
  Variable on_b, on_c;
  {
    auto there = g.on_device(kB);
    on_b = g.variable("v", Tensor::scalar(1.f));
  }
  {
    auto there = h.on_device(kC);
    on_c = h.variable("v", Tensor::scalar(2.f));
  }
  compare(nodes.engine().run(g, {}, {on_b.read()}), {{1}}, "on b");
  compare({nodes.engine().get("v")}, {{1}}, "there is one");
  compare(nodes.engine().run(h, {}, {on_c.read()}), {{2}}, "on c");
  const std::string why = refusal([&] { nodes.engine().get("v"); }, Code::failed_precondition);
  BOOST_TEST(says(why, {"variable 'v'", "b, c", "ask for it by its Variable"}), why);
  compare({nodes.engine().get(on_b), nodes.engine().get(on_c)}, {{1}, {2}}, "by Variable");
  nodes.remove_and_tell(2);
  compare({nodes.engine().get("v")}, {{1}}, "the other is gone");
}

// A fetch on one node and an effect on another: it runs if the fetch needs it, or if told.
BOOST_AUTO_TEST_CASE(effects_on_other_nodes_that_no_fetch_needs) {
  for (const bool is_stepped : {false, true}) {
    Nodes nodes(3, is_stepped ? stepped(7) : EngineOptions{.log = [](const LogRecord&) {}});
    const auto run = [&](const std::string& name, bool reads, bool fetches_update, bool runs_all,
                         double expected, std::size_t warnings) {
      Graph g;
      Variable v;
      Expr update, fetch = g.constant(1.f);
      {
        auto there = g.on_device(kB);
        v = g.variable(name, Tensor::scalar(1.f));
        update = v.assign(5.0);
        Expr after = v.read();
        auto elsewhere = g.on_device(kC);
        if (reads) fetch = after * 1.0;
      }
      std::vector<Expr> fetches{fetch};
      if (fetches_update) fetches.push_back(update);
      const CompileOptions options{.prune_effects = !runs_all};
      const Function f = nodes.engine().compile(g, {}, fetches, options);
      BOOST_TEST(f.warnings().size() == warnings);
      for (int i = 0; i < 2; ++i) compare({f({})[0]}, {{reads ? expected : 1}}, name);
      compare({nodes.engine().get(v)}, {{expected}}, name);
    };
    run("read alone", true, false, false, 1, 1);
    run("both", true, true, false, 5, 0);
    run("all", true, false, true, 5, 0);
    run("update alone", false, true, false, 5, 0);
    run("no fetch near it", false, false, true, 5, 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
