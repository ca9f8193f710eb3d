// For a waiting actor: the actor whose token is missing, the input, and the iteration, also where
// both are in one partition.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(awaited_test)

namespace {

using json = nlohmann::json;

/// One node, whose runs go on until nothing can happen any more, and its queue `numbers`.
struct Waiting {
  Nodes nodes;
  Graph g;
  Queue q = g.fifo_queue("numbers", {{DType::i64, Shape{}}}, 8);
  Expr x = g.input("x", DType::i64, Shape{});
  RunHandle run;

  Waiting() : nodes(1, stepped(), Between::simulation) {}
  ~Waiting() {
    run.cancel();
    while (!run.is_done()) nodes.step();
  }
  static bool takes_from(const PlanDescription& plan, std::int32_t actor, const std::string& op) {
    return std::any_of(plan.edges.begin(), plan.edges.end(), [&](const EdgeDescription& e) {
      return e.to == actor && plan.actors[static_cast<std::size_t>(e.from)].op == op;
    });
  }
  void start(std::vector<Expr> feeds, const Expr& fetch, std::vector<Tensor> values) {
    run = nodes.engine().compile(g, feeds, {fetch}, {.optimize = false}).start(std::move(values));
    for (int i = 0; i < 2000; ++i) nodes.step();
  }
  /// Returns the report on the one actor of that operation that takes a token from `from`.
  json actor_of(const std::string& op, const std::string& from = {}) {
    const ClusterReport state = nodes[0].inspect();
    const std::vector<RunSnapshot> runs = joined_runs(state);
    BOOST_REQUIRE(runs.size() == 1u);
    const PlanName plan = runs[0].plan;
    CounterCache cache(
        nodes[0].inspect({.kind = NodeQuestion::Kind::plan, .plan = plan}).at(0).report.plan);
    cache.update(nodes[0].inspect({.kind = NodeQuestion::Kind::counters, .plan = plan}));
    const std::vector<ActorDescription>& actors = cache.plan().actors;
    std::vector<std::int32_t> found;
    for (std::size_t i = 0; i < actors.size(); ++i)
      if (actors[i].op == op &&
          (from.empty() || takes_from(cache.plan(), static_cast<std::int32_t>(i), from)))
        found.push_back(static_cast<std::int32_t>(i));
    BOOST_REQUIRE_MESSAGE(found.size() == 1u, op << ": " << found.size());
    json all = json::parse(cache.actor_json(found[0], runs, {}));
    const json changes = json::parse(cache.changes(0));
    for (const json& row : changes["actors"]["rows"])  // the report on all actors says so, too
      if (row[0] == all["id"])
        BOOST_TEST((row[6] == all["waiting_for"] && row[7] == all["waiting_input"] &&
                    row[8] == all["waiting_tag"]),
                   row.dump());
    return all;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(in_an_iteration_for_an_input) {
  Waiting w;
  const Expr put = w.q.enqueue({w.x});
  const Expr last =
      while_loop([](Expr i) { return i < 100; }, [&](Expr i) { return i + w.q.dequeue()[0]; },
                 w.g.constant(std::int64_t{0}), {.name = "sums"});
  for (const std::int64_t n : {1, 2, 3})
    w.nodes.engine().run(w.g, {{w.x, Tensor::scalar(n)}}, {put});
  w.start({}, last, {});
  const json add = w.actor_of("Add"), take = w.actor_of("Dequeue");
  BOOST_TEST(add["state"] == "waiting");
  BOOST_TEST(add["waiting_for"] == take["id"]);
  BOOST_TEST(add["waiting_input"] == 1);
  BOOST_TEST(add["waiting_tag"].get<std::string>().starts_with("iteration 3 of loop 'sums"),
             add["waiting_tag"]);
  BOOST_REQUIRE(take["waits"].size() == 1u);
  BOOST_TEST(add["waiting_tag"] == take["waits"][0]["tag"]);
  // An actor that waits at a queue waits for no actor.
  BOOST_TEST(take["state"] == "waiting");
  BOOST_TEST(take["waiting_for"] == "");
  BOOST_TEST(take["waiting_input"].is_null());
  BOOST_TEST(take["waiting_tag"] == "");
}

// One of two has come.
BOOST_AUTO_TEST_CASE(over_a_control_edge) {
  Waiting w;
  const Expr sum = w.x + w.x, taken = w.q.dequeue()[0];
  Expr product;
  {
    auto later = w.g.after({sum, taken});
    product = w.x * w.x;
  }
  w.start({w.x}, product, {Tensor::scalar(std::int64_t{3})});
  const json mul = w.actor_of("Mul");
  BOOST_TEST(mul["state"] == "waiting");
  BOOST_TEST(mul["waiting_for"] == w.actor_of("Dequeue")["id"]);
  BOOST_TEST(mul["waiting_input"] == -1);
  BOOST_TEST(mul["waiting_tag"] == "");
}

// The branch that is not taken has sent its dead token.
BOOST_AUTO_TEST_CASE(a_merge_for_the_branch_that_is_taken) {
  for (const bool is_taken : {true, false}) {
    Waiting w;
    const Expr p = w.g.input("p", DType::boolean, Shape{});
    const auto takes = [&] { return w.q.dequeue()[0] * w.x; };
    const auto adds = [&] { return w.x + w.x; };
    const Expr y = is_taken ? cond(p, takes, adds) : cond(p, adds, takes);
    w.start({p, w.x}, y, {Tensor::scalar(is_taken), Tensor::scalar(std::int64_t{3})});
    const json merge = w.actor_of("Merge", "Mul"), mul = w.actor_of("Mul");
    BOOST_TEST(merge["state"] == "waiting");
    BOOST_TEST(merge["waiting_for"] == mul["id"]);
    bool is_that_input = false;
    for (const json& e : merge["inputs"])
      is_that_input |= e["actor"] == mul["id"] && e["input"] == merge["waiting_input"];
    BOOST_TEST(is_that_input, merge.dump());
    BOOST_TEST(mul["waiting_for"] == w.actor_of("Dequeue")["id"]);
    BOOST_TEST(mul["waiting_input"] == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
