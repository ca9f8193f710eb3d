// Inspection over nodes and the runs they share: snapshots are joined, culprits on other nodes are
// named within two seconds of the virtual clock, and no merely slow actor is accused.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <ctime>
#include <future>
#include <random>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/cluster/inspect/inspection_json.hpp>
#include <troupe/test/support/chrome_trace.hpp>
#include <troupe/test/support/cluster/golden.hpp>
#include <troupe/test/support/cluster/inspected.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/process.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(inspection_test)

namespace {

using namespace std::chrono_literals;

/// Returns the counters of a plan's actors by operation, summed over all partitions.
std::map<std::string, ActorCounters> counted(const ClusterNode& node, const PlanName& plan) {
  const ClusterReport described = node.inspect({.kind = NodeQuestion::Kind::plan, .plan = plan}),
                      said = node.inspect({.kind = NodeQuestion::Kind::counters, .plan = plan});
  std::map<std::string, ActorCounters> all;
  for (const NodeAnswer& a : said)
    for (const PartitionSnapshot& p : a.report.partitions)
      for (const ActorCounters& c : p.actors)
        all[described.at(0).report.plan.actors.at(static_cast<std::size_t>(c.node)).op] = c;
  return all;
}

std::string texts(const std::vector<Diagnosis>& all) {
  std::string out;
  for (const Diagnosis& v : all) out += v.text + "\n";
  return out;
}

// Answers when it is let.
struct Held : NodeActor {
  static inline std::promise<void> began, goes_on;
  static inline std::shared_future<void> held;
  void receive(std::span<const Tensor> in, std::span<Tensor> out) override {
    began.set_value();
    held.wait();
    out[0] = in[0];
  }
};

// A value from b's queue, that a adds to: hangs at b when the queue is empty.
struct OverTwo {
  Graph g;
  Expr x, put, y;
  OverTwo() {
    x = g.input("x", DType::f32, Shape{});
    auto there = g.on_device("/node:b/cpu:0");
    Queue q = g.fifo_queue("jobs", {{DType::f32, Shape{}}}, 8);
    put = q.enqueue({x});
    Expr taken = g.named(q.dequeue()[0], "take");
    auto here = g.on_device("/node:a/cpu:0");
    y = taken * 2.0 + 1.0;
  }
};

// A run that only its own node hears of, and counts.
void run_alone(Engine& engine) {
  Graph g;
  engine.run(g, {}, {g.constant(1.f) + 1.0});
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_inspection_arrives_as_it_was) {
  Message m = written(inspected_with_everything());
  const std::vector<std::byte> head = m.head;
  const auto back = std::get<Inspected>(read_message(m));
  BOOST_TEST(back.report.engine.runs.at(0).partitions.at(0).runs.at(0).waits.at(0).from ==
             "/node:a/cpu:0");
  BOOST_TEST((back.report.engine.runs[0].for_so_long == 3s));
  BOOST_TEST(back.report.recorded.at(0).partitions.at(0).events.at(0).flow == 0x1234567890abcdefu);
  BOOST_TEST((written(back).head == head));
}

// Nodes of one version understand each other: a change of these bytes is a change of what a node
// says.
BOOST_AUTO_TEST_CASE(inspections_are_written_as_the_golden_files_have_them) {
  InspectNode question{300,
                       {.kind = NodeQuestion::Kind::events,
                        .plan = {"worker1", 70'000},
                        .since_ns = 1'700'000'000'123'456'789,
                        .tracer = 9,
                        .since_step = 40}};
  check_golden("inspect_node", written(question).head);
  check_golden("inspected", written(inspected_with_everything()).head);
  // and the files are read as what they were
  for (const char* name : {"inspect_node", "inspected"}) {
    Message m{golden_bytes(name), {}};
    const NodeMessage was = read_message(m);
    if (const auto* asked = std::get_if<InspectNode>(&was))
      BOOST_TEST(asked->question.plan.number == 70'000u);
    else BOOST_TEST(std::get<Inspected>(was).report.peers.at(0).unacknowledged == 60u);
  }
}

BOOST_AUTO_TEST_CASE(damaged_inspections_are_refused) {
  const Message whole = written(inspected_with_everything());
  std::minstd_rand random(1);
  int refused = 0;
  for (int n = 0; n < 20'000; ++n) {
    Message m = whole;
    for (int k = 0; k < 1 + n % 3; ++k)
      m.head[random() % m.head.size()] = static_cast<std::byte>(random());
    if (n % 7 == 0) m.head.resize(random() % m.head.size());
    try {
      read_message(m);
    } catch (const Error&) { ++refused; }
  }
  BOOST_TEST(refused > 2000);
}

BOOST_AUTO_TEST_CASE(all_nodes_answer) {
  Nodes nodes(3, stepped(1), Between::simulation);
  const ClusterReport report = nodes[0].inspect();
  BOOST_REQUIRE(report.size() == 3u);
  for (const NodeAnswer& a : report) {
    BOOST_TEST(a.has_answered, a.why);
    BOOST_TEST(a.report.name == a.member.name);
    BOOST_TEST(a.report.cores > 0);
    BOOST_TEST(a.report.resident > 0u);
  }
  BOOST_TEST(nodes[0].inspect({}, 500ms, "b").size() == 1u);
}

// On the only worker of its node, whose partitions then answer no request: they are waited for
// together, not plan after plan.
BOOST_AUTO_TEST_CASE(a_node_with_many_plans_answers_while_it_computes) {
  Held::began = {}, Held::goes_on = {};
  Held::held = Held::goes_on.get_future().share();
  EngineOptions one;
  one.workers = 1;
  Nodes nodes(2, one);
  constexpr int kPlans = 200;
  Graph g;
  Expr x = g.input("x", DType::i64, Shape{});
  std::vector<Function> plans;
  for (int i = 0; i < kPlans; ++i)
    plans.push_back(nodes.engine().compile(g, {x}, {x + std::int64_t{i}}));
  Expr held = actor_node<Held>(g, "held", {x}, {{DType::i64, Shape{}}})[0];
  RunHandle run = nodes.engine().compile(g, {x}, {held}).start({Tensor::scalar(std::int64_t{1})});
  Held::began.get_future().wait();
  // one after the other they would take 20
  const ClusterReport said = nodes[1].inspect({.kind = NodeQuestion::Kind::events}, 15s, "a");
  Held::goes_on.set_value();
  BOOST_TEST(run.wait().ok());
  BOOST_REQUIRE(said.size() == 1u);
  BOOST_TEST(said[0].has_answered, said[0].why);
  // each with a partition that has not answered
  BOOST_TEST(said[0].report.recorded.size() >= static_cast<std::size_t>(kPlans));
}

BOOST_AUTO_TEST_CASE(the_first_answer_has_the_load) {
  Nodes nodes(1, stepped(1), Between::simulation);
  for (const std::clock_t began = std::clock(); std::clock() - began < CLOCKS_PER_SEC / 50;) {}
  const double cpu = nodes[0].inspect().at(0).report.cpu;
  BOOST_TEST(cpu > 0);
  BOOST_TEST(cpu < 1e3);
}

// Bytes queued for a peer that is cut off are reported apart from the others, with the round-trip
// time of a ping.
BOOST_AUTO_TEST_CASE(queues_and_round_trips_are_reported_by_peer) {
  Nodes nodes(3, stepped(1), Between::simulation);
  nodes.network().slow_down("a", "c", 40ms, 0);
  nodes.until(20s, [] { return false; });
  const NodeReport before = nodes[0].inspect({}, 500ms, "a").at(0).report;
  BOOST_REQUIRE(before.peers.size() == 2u);
  BOOST_TEST(before.peers[0].node == "b");
  BOOST_TEST(before.peers[1].node == "c");
  BOOST_TEST(before.peers[0].round_trip_ns > 0);
  BOOST_TEST(before.peers[0].round_trip_ns < 40'000'000);
  BOOST_TEST(before.peers[1].round_trip_ns >= 80'000'000);
  for (const PeerReport& p : before.peers) BOOST_TEST((p.sent > 0u && p.received > 0u));
  Graph g;
  Expr x = g.input("x", DType::f32, {1 << 20});
  auto there = g.on_device("/node:b/cpu:0");
  Function f = nodes.engine().compile(g, {x}, {sum(x * 2.0)});
  f({Tensor::zeros(DType::f32, {1 << 20})});
  nodes.network().cut("a", "b");
  RunHandle run = f.start({Tensor::zeros(DType::f32, {1 << 20})});
  nodes.until(100ms, [] { return false; });
  const NodeReport now = nodes[0].inspect({}, 500ms, "a").at(0).report;
  BOOST_TEST(now.peers.at(0).queued + now.peers[0].unacknowledged >= (4u << 20));
  BOOST_TEST(now.peers.at(1).queued + now.peers[1].unacknowledged < 4096u);
  BOOST_TEST(now.transport.unsent_bytes + now.transport.unacknowledged_bytes >=
             now.peers[0].queued + now.peers[0].unacknowledged);
  nodes.network().heal();
  run.wait();
}

BOOST_AUTO_TEST_CASE(a_culprit_on_another_node_is_named_within_two_seconds,
                     *boost::unit_test::label("one_thread")) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    OverTwo p;
    RunHandle run = nodes.engine().compile(p.g, {}, {p.y}).start({});
    for (int i = 0; i < 2000; ++i) nodes.step();
    const Time began = nodes.network().now();
    const std::vector<Diagnosis> said = nodes[0].diagnose();
    BOOST_TEST((nodes.network().now() - began <= 2s));
    BOOST_REQUIRE_MESSAGE(said.size() == 1u, fmt::format("seed {}: {}", seed, texts(said)));
    for (const char* part :
         {"Dequeue", "take", "inspection_test.cpp:", "/node:b/cpu:0", "queue 'jobs'"})
      BOOST_TEST(said[0].text.find(part) != std::string::npos, said[0].text);
    run.cancel();
    while (!run.is_done()) nodes.step();
  }
}

BOOST_AUTO_TEST_CASE(a_time_out_names_the_culprit_on_another_node) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    OverTwo p;
    RunHandle run = nodes.engine().compile(p.g, {}, {p.y}).start({}, {.timeout = 1s});
    for (int i = 0; i < 2000; ++i) nodes.step();
    nodes.engine().advance_time(2s);
    const Time began = nodes.network().now();
    while (!run.is_done()) nodes.step();
    BOOST_TEST((nodes.network().now() - began <= 2s));
    const std::string why = run.wait().message();
    for (const char* part : {"the run's time-out has passed: Dequeue", "take",
                             "inspection_test.cpp:", "/node:b/cpu:0", "queue 'jobs'"})
      BOOST_TEST(why.find(part) != std::string::npos, why);
  }
}

BOOST_AUTO_TEST_CASE(a_predicate_that_never_turns_false_is_named,
                     *boost::unit_test::label("one_thread")) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Nodes nodes(2, stepped(seed), Between::simulation);
    Graph g;
    auto there = g.on_device("/node:b/cpu:0");
    Expr last = while_loop([](Expr i) { return i >= 0; }, [](Expr i) { return maximum(i, 1); },
                           g.constant(0), {.name = "forever"});
    RunHandle run = nodes.engine().compile(g, {}, {last}).start({});
    for (int i = 0; i < 5000; ++i) nodes.step();
    const Time began = nodes.network().now();
    const std::vector<Diagnosis> said = nodes[0].diagnose();
    BOOST_TEST((nodes.network().now() - began <= 2s));
    BOOST_REQUIRE_MESSAGE(said.size() == 1u, fmt::format("seed {}: {}", seed, texts(said)));
    for (const char* part : {"loop 'forever/1'", "GreaterEqual", "inspection_test.cpp:"})
      BOOST_TEST(said[0].text.find(part) != std::string::npos, said[0].text);
    run.cancel();
    while (!run.is_done()) nodes.step();
  }
}

// Tokens go to and fro all the time: slow, but it gets on.
BOOST_AUTO_TEST_CASE(a_slow_run_is_not_named) {
  Nodes nodes(2, stepped(3), Between::simulation);
  Graph g;
  Expr last = counted_on_b(g, 1'000'000);
  RunHandle run = nodes.engine().compile(g, {}, {last}).start({});
  for (int look = 0; look < 20; ++look) {
    const std::vector<Diagnosis> said = nodes[0].diagnose();
    BOOST_TEST(said.empty(), texts(said));
  }
  run.cancel();
  while (!run.is_done()) nodes.step();
}

BOOST_AUTO_TEST_CASE(runs_over_several_nodes_are_one_run) {
  Nodes nodes(2, stepped(5), Between::simulation);
  OverTwo p;
  RunHandle run = nodes.engine().compile(p.g, {}, {p.y}).start({});
  for (int i = 0; i < 2000; ++i) nodes.step();
  for (std::size_t n = 0; n < 2; ++n) {  // for either node asked
    const std::vector<RunSnapshot> runs = joined_runs(nodes[n].inspect());
    BOOST_REQUIRE(runs.size() == 1u);
    BOOST_TEST(run_name(runs[0]) == "a/1");
    BOOST_TEST(runs[0].partitions.size() == 2u);
    BOOST_TEST(runs[0].silent.empty());
  }
  run.cancel();
  while (!run.is_done()) nodes.step();
}

// Both nodes begin a run that is their fourth; of the other's they have numbers of their own.
BOOST_AUTO_TEST_CASE(a_run_has_its_owners_number_on_every_node) {
  Nodes nodes(2, stepped(5), Between::simulation);
  OverTwo of_a, of_b;
  for (int i = 0; i < 3; ++i) run_alone(nodes.engine());
  for (int i = 0; i < 2; ++i) run_alone(nodes[1].engine());
  const Function plans[] = {nodes.engine().compile(of_a.g, {}, {of_a.y}),
                            nodes[1].engine().compile(of_b.g, {}, {of_b.y})};
  RunHandle runs[2];
  for (int n = 0; n < 2; ++n) {
    runs[n] = plans[n].start({});
    for (int i = 0; i < 2000; ++i) nodes.step();
  }
  using Names = std::set<std::string>;  // node and run
  Names said, recorded;
  for (const NodeAnswer& a : nodes[1].inspect())
    for (const RunSnapshot& run : a.report.engine.runs) {
      said.insert(a.member.name + " " + run_name(run));
      for (const PartitionSnapshot& p : run.partitions)
        for (const RunPart& part : p.runs) BOOST_TEST(part.run == run.run);
    }
  BOOST_TEST((said == Names{"a a/4", "a b/4", "b a/4", "b b/4"}));
  const std::string text = nodes[1].engine().snapshot().text();
  for (const char* run : {"run a/4 (", "run 4 ("})
    BOOST_TEST(text.find(run) != std::string::npos, text);
  nodes.network().partition({"a"});
  const std::vector<RunSnapshot> heard = joined_runs(nodes[1].inspect());
  // while its owner is silent
  BOOST_TEST(std::count_if(heard.begin(), heard.end(),
                           [](const RunSnapshot& run) { return run_name(run) == "a/4"; }) == 1);
  nodes.network().heal();
  nodes.engine().run(of_a.g, {{of_a.x, Tensor::scalar(1.f)}}, {of_a.put});
  nodes[1].engine().run(of_b.g, {{of_b.x, Tensor::scalar(1.f)}}, {of_b.put});
  for (RunHandle& run : runs) BOOST_TEST(run.wait().ok());
  const nlohmann::json events =
      nlohmann::json::parse(events_json(nodes[0].inspect({.kind = NodeQuestion::Kind::events}), 0,
                                        INT64_MIN, INT64_MAX, 10'000))
          .at("events");
  for (const auto& e : events)
    if (e["kind"] == "send" || e["kind"] == "receive")
      recorded.insert(e["node"].get<std::string>() + " " + e["run"].get<std::string>());
  BOOST_TEST(recorded == said, boost::test_tools::per_element());
}

// Every node of a loop with a branch fires or is dead once an iteration, on either side of a cut;
// the counts of tokens sent and received at the ends of an edge agree.
BOOST_AUTO_TEST_CASE(counters_add_up) {
  Nodes nodes(2, stepped(7), Between::simulation);
  Graph g;
  auto [n, s] = while_loop([](Expr i, Expr) { return i < 40; },
                           [&](Expr i, Expr v) {
                             Expr w;
                             {
                               auto there = g.on_device("/node:b/cpu:0");
                               w = cond(
                                   i < 10, [&] { return v * 2.0; }, [&] { return v - 1.0; });
                             }
                             return std::tuple{i + 1, w};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  Function f = nodes.engine().compile(g, {}, {s});
  constexpr int kRuns = 3;
  for (int i = 0; i < kRuns; ++i) f({});
  const ClusterReport state = nodes[0].inspect();
  BOOST_REQUIRE(state.at(0).report.engine.plans.size() == 1u);
  const PlanName plan = state[0].report.engine.plans[0].name;
  BOOST_TEST(plan.text() == "a/1");
  BOOST_TEST(state[0].report.engine.plans[0].ended == static_cast<std::uint64_t>(kRuns));
  BOOST_TEST(state[0].report.engine.recent.size() == static_cast<std::size_t>(kRuns));
  const ClusterReport described =
      nodes[1].inspect({.kind = NodeQuestion::Kind::plan, .plan = plan});
  // as its owner knows it: b has a part of it
  const PlanDescription& d = described.at(0).report.plan;
  BOOST_TEST(!described.at(1).has_answered);
  BOOST_TEST(why_not_described({"a", 7, plan.life}, state).what() ==
             std::string("there is no plan 'a/7'; there are a/1"));
  ClusterReport silent = nodes[1].inspect();
  silent.at(0).has_answered = false, silent.at(0).why = "no answer within 0.4 s",
  silent.at(0).report = {};
  BOOST_TEST((why_not_described(plan, silent).code() == Code::unavailable));
  BOOST_TEST(why_not_described(plan, silent).what() ==
             std::string("node 'a', which alone knows all of plan 'a/1', does not answer: no "
                         "answer within 0.4 s"));
  silent.erase(silent.begin());
  BOOST_TEST((why_not_described(plan, silent).code() == Code::not_found));
  BOOST_TEST(described.at(1).why.find("or only part of it") != std::string::npos,
             described.at(1).why);
  const ClusterReport counted =
      nodes[1].inspect({.kind = NodeQuestion::Kind::counters, .plan = plan});
  std::uint64_t muls = 0, subs = 0, adds = 0, sent = 0, received = 0, dead = 0;
  for (const NodeAnswer& a : counted)
    for (const PartitionSnapshot& p : a.report.partitions) {
      for (const ActorCounters& c : p.actors) {
        const ActorDescription& actor = d.actors.at(static_cast<std::size_t>(c.node));
        BOOST_TEST((c.state == ActorStatus::idle || c.state == ActorStatus::dead));
        if (actor.frame.empty()) continue;
        const std::uint64_t all = c.fires + c.dead;
        BOOST_TEST((all == 41u * kRuns || all == 40u * kRuns),
                   actor.op << " " << actor.name << " " << all);
        if (actor.op == "Mul") muls += c.fires;
        if (actor.op == "Sub") subs += c.fires;
        if (actor.op == "Add") adds += c.fires;
        dead += c.dead;
      }
      for (const EdgeCounters& e : p.edges) sent += e.sent, received += e.received;
    }
  BOOST_TEST(muls == 10u * kRuns);
  BOOST_TEST(subs == 30u * kRuns);
  BOOST_TEST(adds == 40u * kRuns);
  BOOST_TEST(dead > 0u);
  BOOST_TEST(sent > 0u);
  BOOST_TEST(sent == received);
}

// The kernel is heavy, so each firing is timed; then it has less to do. Times that were reported
// stay.
BOOST_AUTO_TEST_CASE(busy_times_never_fall_and_are_no_more_than_has_passed) {
  const auto began = std::chrono::steady_clock::now();
  Nodes nodes(1, stepped(1), Between::simulation);
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{kAny, kAny});
  Function f = nodes.engine().compile(g, {x}, {matmul(x, x)});
  std::uint64_t before = 0, bytes = 0, fires = 0;
  for (const std::int64_t n : {256, 256, 256, 256, 16, 16, 16, 16}) {
    for (int i = 0; i < (n == 16 ? 10 : 1); ++i, ++fires) f({Tensor::zeros(DType::f32, {n, n})});
    const auto actors = counted(nodes[0], {"a", 1, 1});
    const ActorCounters& m = actors.at("MatMul");
    BOOST_TEST(m.fires == fires);
    BOOST_TEST(m.busy_ns >= before);
    BOOST_TEST(m.bytes_out > bytes);
    std::uint64_t sum = 0;
    for (const auto& [op, c] : actors) sum += c.busy_ns;
    BOOST_TEST(sum <=
               static_cast<std::uint64_t>((std::chrono::steady_clock::now() - began).count()));
    before = m.busy_ns, bytes = m.bytes_out;
  }
  BOOST_TEST(before > 0u);
}

// Counts the pushed element, and not again the list that it is pushed to.
BOOST_AUTO_TEST_CASE(bytes_of_a_list_count_the_pushed_element_alone) {
  Nodes nodes(1, stepped(1), Between::simulation);
  constexpr std::int64_t kPushes = 1000;
  Graph g;
  Expr x = g.input("x", DType::f32, Shape{256});
  auto [n, list] =
      while_loop([](Expr i, Expr) { return i < kPushes; },
                 [&](Expr i, Expr l) {
                   return std::tuple{i + 1, list_push(l, x)};
                 },
                 std::tuple{g.constant(std::int64_t{0}), list_empty(g, {DType::f32, Shape{256}})});
  auto [m, rest, sum] = while_loop(
      [](Expr i, Expr, Expr) { return i < kPushes; },
      [&](Expr i, Expr l, Expr s) {
        auto [shorter, last] = list_pop(l);
        return std::tuple{i + 1, shorter, s + last};
      },
      std::tuple{g.constant(std::int64_t{0}), list, g.constant(Tensor::zeros(DType::f32, {256}))});
  const Function f = nodes.engine().compile(g, {x}, {sum}, {.optimize = false});
  f({Tensor::zeros(DType::f32, {256})});
  const auto actors = counted(nodes[0], {"a", 1, 1});
  // a pop puts out what it took, and nothing of the list
  for (const char* op : {"ListPush", "ListPop"}) {
    BOOST_TEST(actors.at(op).fires >= static_cast<std::uint64_t>(kPushes));
    BOOST_TEST(actors.at(op).bytes_out >= (kPushes - 1) * 1024u, op);
    BOOST_TEST(actors.at(op).bytes_out <= (kPushes + 1) * 1024u, op);
  }
}

BOOST_AUTO_TEST_CASE(a_wait_at_a_queue_is_not_busy) {
  Nodes nodes(2, stepped(1), Between::simulation);
  OverTwo p;
  RunHandle run = nodes.engine().compile(p.g, {}, {p.y}).start({});
  for (int i = 0; i < 2000; ++i) nodes.step();
  const auto actors = counted(nodes[0], {"a", 1, 1});
  BOOST_TEST((actors.at("Dequeue").state == ActorStatus::waiting));
  BOOST_TEST(actors.at("Dequeue").waiting_for == -1);
  BOOST_TEST(actors.at("Dequeue").waiting_input == -1);
  // for which an actor at the other node waits
  const std::int32_t take = actors.at("Dequeue").node;
  BOOST_TEST(std::any_of(actors.begin(), actors.end(), [&](const auto& a) {
    return a.second.waiting_for == take && a.second.waiting_input >= 0 &&
           a.second.waiting_tag.empty();
  }));
  BOOST_TEST(actors.at("Dequeue").capacity == 8u);
  BOOST_TEST(actors.at("Dequeue").queued == 0u);
  BOOST_TEST(actors.at("Dequeue").busy_ns == 0u);
  for (const auto& [op, c] : actors) BOOST_TEST((c.state != ActorStatus::running), op);
  run.cancel();
  while (!run.is_done()) nodes.step();
}

// Nodes of one host read one clock: no token arrives before it went.
BOOST_AUTO_TEST_CASE(clocks_of_one_host_are_one) {
  Nodes nodes(2, stepped(1), Between::simulation);
  Graph g;
  Expr last = counted_on_b(g, 100);
  Function f = nodes.engine().compile(g, {}, {last});
  for (int look = 0; look < 5; ++look) {
    f({});
    const ClusterReport said = nodes[0].inspect({.kind = NodeQuestion::Kind::events});
    BOOST_REQUIRE(said.size() == 2u);
    for (const NodeAnswer& a : said) BOOST_TEST(a.offset_ns == 0);
    BOOST_TEST(said[1].round_trip_ns > 0);
    BOOST_TEST(!said[1].report.host.empty());
    BOOST_TEST(said[1].report.host == nodes[1].inspect({}, 500ms, "b").at(0).report.host);
    BOOST_TEST(well_formed(nlohmann::json::parse(trace_json(said))).arrows > 20);
  }
}

BOOST_AUTO_TEST_CASE(a_trace_has_its_time_span) {
  constexpr std::int64_t kSecond = 1'000'000'000, kBegin = 1'700'000'000 * kSecond;
  Inspected m = inspected_with_everything();
  PartitionSnapshot& p = m.report.recorded.at(0).partitions.at(0);
  p.events.assign(3, {RecordedEvent::Kind::firing, 4, kBegin + 13 * kSecond / 10, 0, 8, 0, 0});
  p.dropped_events = 0, p.thinned_events = 5;
  NodeAnswer a;
  a.has_answered = true;
  a.report = m.report;
  const auto other = [&] {
    return nlohmann::json::parse(trace_json({a}, kBegin, kBegin + 2 * kSecond))["otherData"];
  };
  BOOST_TEST(other()["covered_ns"] == 2 * kSecond);
  BOOST_TEST(other()["lost"] == 0);
  BOOST_TEST(other()["thinned"] == 5);
  a.report.recorded[0].partitions[0].dropped_events = 88'354;
  BOOST_TEST(other()["lost"] == 88'354);
  BOOST_TEST(other()["asked_ns"] == 2 * kSecond);
  BOOST_TEST(other()["covered_ns"] == 7 * kSecond / 10);
  PartitionSnapshot& kept = a.report.recorded[0].partitions[0];
  kept.dropped_events = 0;
  for (std::size_t i = 0; i < 3; ++i)
    kept.events[i].begin_ns += static_cast<std::int64_t>(i) * kSecond / 10;
  // the latest two
  const auto bounded =
      nlohmann::json::parse(trace_json({a}, kBegin, kBegin + 2 * kSecond, 2))["otherData"];
  BOOST_TEST(bounded["events"] == 2);
  BOOST_TEST(bounded["lost"] == 1);
  BOOST_TEST(bounded["covered_ns"] == 6 * kSecond / 10);
}

// Counts that follow from firings apply to each operand, but a Merge takes one of its two; an
// operand without elements is known to have no bytes.
BOOST_AUTO_TEST_CASE(received_bytes_cover_merge_inputs_and_empty_operands) {
  // `put`: actors that make the last operand, in 20 firings; `has_two`: outputs.
  const auto bytes_in = [](const std::string& op,
                           const std::vector<std::pair<std::string, std::uint64_t>>& operands,
                           std::uint64_t put = 0, bool has_two = false) {
    PlanDescription plan;
    plan.name = {"a", 1};
    plan.actors.resize(operands.size() + 1);
    plan.actors[0].op = op;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      EdgeDescription& e = plan.edges.emplace_back();
      e.from = static_cast<std::int32_t>(i) + 1, e.input = static_cast<std::int32_t>(i);
      e.shape = operands[i].first, e.bytes = operands[i].second;
    }
    if (has_two) plan.edges.push_back(plan.edges.back()), plan.edges.back().output = 1;
    CounterCache cache(std::move(plan));
    NodeAnswer a;
    a.has_answered = true;
    ActorCounters c;
    c.fires = 10;
    a.report.partitions.emplace_back().actors = {c};
    if (put > 0) {
      c.node = static_cast<std::int32_t>(operands.size()), c.fires = 20, c.bytes_out = put;
      a.report.partitions[0].actors.push_back(c);
    }
    cache.update({a});
    return nlohmann::json::parse(cache.actor_json(0, {}, {}))["bytes_in"];
  };
  BOOST_TEST(bytes_in("Add", {{"[2]", 8}, {"[2]", 8}}) == 160);
  BOOST_TEST(bytes_in("Merge", {{"[2]", 8}, {"[2]", 8}}) == 80);
  BOOST_TEST(bytes_in("Merge", {{"[2]", 8}, {"[?]", 0}}).is_null());
  for (const char* empty : {"[0]", "[0, 3]", "[3, 0]", "[3, 0, 3]"})
    BOOST_TEST(bytes_in("Concat", {{"[2]", 8}, {empty, 0}}) == 80, empty);
  for (const char* unknown : {"[?]", "[...]", "[10, ?]", "list of [0]"})
    BOOST_TEST(bytes_in("Concat", {{"[2]", 8}, {unknown, 0}}).is_null(), unknown);
  // An operand whose shape only runs know has as many bytes as its maker puts out each time, if
  // that makes nothing else.
  BOOST_TEST(bytes_in("Concat", {{"[2]", 8}, {"[?]", 0}}, 20 * 12) == 200);
  BOOST_TEST(bytes_in("Concat", {{"[2]", 8}, {"[?]", 0}}, 20 * 12, true).is_null());
}

BOOST_AUTO_TEST_CASE(edges_outside_of_loops_need_no_grants) {
  Nodes nodes(2, stepped(3), Between::simulation);
  OverTwo p;
  Function f = nodes.engine().compile(p.g, {}, {p.y});
  std::vector<std::int32_t> windows;
  for (const NodeAnswer& a :
       nodes[0].inspect({.kind = NodeQuestion::Kind::counters, .plan = {"a", 1, 1}}))
    for (const PartitionSnapshot& partition : a.report.partitions)
      for (const EdgeCounters& e : partition.edges) windows.push_back(e.window);
  BOOST_TEST(std::count(windows.begin(), windows.end(), -1) > 0);
  BOOST_TEST(std::all_of(windows.begin(), windows.end(), [](std::int32_t w) { return w <= 0; }));
}

// Both nodes say what they saw of a run that fails on one of them; the folder is one.
BOOST_AUTO_TEST_CASE(flight_recorders_of_nodes_share_a_folder) {
  // the news of the failure and what follows from it go by two priorities
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Folder folder;
    EngineOptions options = stepped(seed);
    options.flight = folder.path();
    std::vector<LogRecord> log;
    options.log = [&](const LogRecord& r) { log.push_back(r); };
    Nodes nodes(2, options, Between::simulation);
    Graph g;
    Expr index = g.input("index", DType::i64, Shape{1}),
         table = g.input("table", DType::f32, Shape{2}), taken;
    {
      auto there = g.on_device("/node:b/cpu:0");
      taken = gather(table, index);
    }
    auto here = g.on_device("/node:a/cpu:0");
    Function f = nodes.engine().compile(g, {index, table}, {taken * 2.0});
    run_alone(nodes.engine());
    refusal(
        [&] {
          f({Tensor::of<std::int64_t>({7}), Tensor::zeros(DType::f32, {2})});
        },
        Code::out_of_range);
    nodes.until(5s, [&] { return folder.files().size() == 2; });
    nodes.until(1s, [] { return false; });
    const std::vector<std::string> files = folder.files();
    BOOST_REQUIRE(files.size() == 2u);
    BOOST_TEST(files[0] == "a@a-2.flight.json");
    BOOST_TEST(files[1] == "b@a-2.flight.json");
    std::size_t failures = 0;
    for (const std::string& file : files) {
      const auto trace = nlohmann::json::parse(read_file(folder / file));
      well_formed(trace);
      const auto& other = trace["otherData"];
      BOOST_TEST(other["plan"] == "a/1");
      BOOST_TEST(other["run"] == "a/2");
      BOOST_TEST(other["error"].get<std::string>().find("Gather") != std::string::npos,
                 other["error"]);
      BOOST_TEST(other["node"] == file.substr(0, 1));
      for (const auto& e : trace["traceEvents"]) {
        if (e["name"] == "process_name")
          BOOST_TEST(e["args"]["name"] == "node " + file.substr(0, 1));
        if (!e.contains("cat") || e["cat"] != "failure") continue;
        ++failures;
        BOOST_TEST(file[0] == 'b');
        BOOST_TEST(e["name"].get<std::string>().find("failed: Gather") == 0u, e["name"]);
      }
    }
    BOOST_TEST(failures == 1u);
    for (const NodeAnswer& a : nodes[0].inspect())
      BOOST_TEST(a.report.engine.errors.at(0).run == 2u);
    for (const char* node : {"a", "b"})
      // the failure and the file
      BOOST_TEST(
          std::count_if(log.begin(), log.end(),
                        [&](const LogRecord& r) { return r.node == node && r.run == "a/2"; }) == 2,
          node);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
