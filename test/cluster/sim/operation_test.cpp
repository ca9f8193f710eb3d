// Not under tsan: one thread steps the simulation.
// Runs and membership together: nodes that come, go, die, are cut off and delayed, in a simulation
// on a virtual clock that a seed decides. `TROUPE_SEED=n` repeats one schedule, `TROUPE_PROGRAMS=n`
// runs so many.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <set>

#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/programs/configurations.hpp>
#include <troupe/test/support/programs/random_programs.hpp>
#include <troupe/test/support/refusal.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(operation_test)

namespace {

using namespace std::chrono_literals;

std::string device_of(int node) { return "/node:" + Nodes::name_of(node) + "/cpu:0"; }

// A loop whose every iteration goes over all nodes, from a and back.
Expr round_trip(Graph& g, int nodes, int iterations) {
  auto [n, t] = while_loop([=](Expr i, Expr) { return i < iterations; },
                           [&](Expr i, Expr v) {
                             Expr next = i + 1, u = v;
                             for (int k = 1; k < nodes; ++k) {
                               auto d = g.on_device(device_of(k));
                               u = k == 1 ? u * 0.5 : u + 1.0;
                             }
                             return std::tuple{next, u};
                           },
                           std::tuple{g.constant(0), g.ones(DType::f32, {2})});
  return t * 1.0;
}

double expected_of(int nodes, int iterations) {
  double v = 1;
  for (int i = 0; i < iterations; ++i) v = v * 0.5 + (nodes - 2);
  return v;
}

const Member* member(ClusterNode& node, const std::string& name, std::vector<Member>& all) {
  all = node.members();
  for (const Member& m : all)
    if (m.name == name) return &m;
  return nullptr;
}
bool holds(ClusterNode& node, const std::string& name, MemberState state) {
  std::vector<Member> all;
  const Member* m = member(node, name, all);
  return m && m->state == state;
}

// The end of a run over b and c after b is gone: status and time by the virtual clock.
struct Ending {
  Status status;
  Time after;
};

Ending run_without(Nodes& nodes, int count, int iterations, std::uint64_t steps,
                   const std::function<void()>& happens) {
  Graph g;
  Function f = nodes.engine().compile(g, {}, {round_trip(g, count, iterations)});
  RunHandle run = f.start({});
  for (std::uint64_t n = 0; n < steps && !run.is_done(); ++n) nodes.step();
  happens();
  const Time began = nodes.network().now();
  while (!run.is_done()) nodes.step();
  return {run.wait(), nodes.network().now() - began};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_joined_node_is_a_member_for_all_with_its_labels) {
  Nodes nodes(1, stepped_partitions(1), Between::simulation);
  nodes.add("b", stepped_partitions(1), "gpu=h100 zone=x");
  nodes.add("c", stepped_partitions(1));
  BOOST_TEST(nodes.until(10s, [&] { return nodes.agree(); }));
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<Member> all;
    const Member* b = member(nodes[i], "b", all);
    BOOST_REQUIRE(b);
    BOOST_TEST(all.size() == 3u);
    BOOST_TEST(b->labels == "gpu=h100 zone=x");
    BOOST_TEST(b->address == "sim://b");
    BOOST_TEST(nodes[i].has_joined());
  }
}

// The node that it asks was not there yet.
BOOST_AUTO_TEST_CASE(a_node_that_starts_first_joins_within_a_second_of_the_other) {  // H4
  for (const Time before : {Time(300ms), Time(3s), Time(60s)}) {
    Nodes nodes(0, stepped_partitions(2), Between::simulation);
    nodes.add("b", stepped_partitions(2), {}, {"sim://a"});
    nodes.until(before, [] { return false; });
    BOOST_TEST(!nodes[0].has_joined());
    nodes.add("a", stepped_partitions(2), {}, {});
    BOOST_TEST(nodes.until(1s, [&] { return nodes.agree(); }), before.count());
    BOOST_TEST(nodes[0].has_joined());
  }
}

BOOST_AUTO_TEST_CASE(a_dead_nodes_runs_end_within_the_bound) {
  Time longest{};
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    for (const int count : {2, 3, 5}) {
      Nodes nodes(count, stepped_partitions(seed), Between::simulation);
      const Time bound = nodes[0].detection_bound(static_cast<std::size_t>(count));
      // Cut off: no connection breaks, so that nothing but silence tells.
      const bool is_cut = seed % 2 == 0;
      const Ending o = run_without(nodes, count, 2'000'000, 30 + 7 * seed, [&] {
        is_cut ? nodes.network().partition({"b"}) : nodes.network().kill("b");
      });
      BOOST_TEST_CONTEXT("seed " << seed << ", " << count << " nodes: " << o.status.message()) {
        BOOST_TEST((o.status.code() == Code::unavailable));
        BOOST_TEST(says(o.status.message(), {"node 'b' was lost (it does not answer any more)",
                                             "awaited from it", "operation_test.cpp"}));
        BOOST_TEST(o.after.count() <= bound.count());
      }
      longest = std::max(longest, o.after);
    }
  }
  BOOST_TEST_MESSAGE("at the latest after " << longest / 1ms << " ms");
}

// The transport's listener takes the turn if the seed selects it, whatever else is in flight, and
// whatever node is lost meanwhile.
BOOST_AUTO_TEST_CASE(the_thread_of_a_message_may_run_its_turn) {
  std::uint64_t taken = 0, messages = 0, finished = 0, ended = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation);
    const int iterations = 12;
    Graph g;
    Function f = nodes.engine().compile(g, {}, {round_trip(g, 3, iterations)});
    RunHandle run = f.start({});
    const auto steps = static_cast<int>(seed % 50) * 20;
    for (int n = 0; n < steps && !run.is_done(); ++n) nodes.step();
    if (seed % 2 == 0 && !run.is_done()) nodes.network().kill("b");
    while (!run.is_done()) nodes.step();
    const double expected = expected_of(3, iterations);
    const Status status = run.wait();
    ++(status.ok() ? finished : ended);
    if (status.ok()) compare(run.get(), {{expected, expected}}, "seed " + std::to_string(seed));
    else
      BOOST_TEST(says(status.message(), {"node 'b' was lost"}),
                 "seed " << seed << ": " << status.message());
    for (std::size_t i = 0; i < 3; ++i)
      taken += nodes[i].run_counters().taken, messages += nodes[i].counters().messages_in;
  }
  BOOST_TEST(taken > 1000u);
  BOOST_TEST(taken < messages);
  BOOST_TEST(finished > 0u);
  BOOST_TEST(ended > 0u);
}

BOOST_AUTO_TEST_CASE(a_suspected_node_that_answers_loses_no_run) {
  std::uint64_t suspicions = 0, refuted = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation);
    const int iterations = 20;
    Graph g;
    Function f = nodes.engine().compile(g, {}, {round_trip(g, 3, iterations)});
    RunHandle run = f.start({});
    for (std::uint64_t n = 0; n < 10 * seed && !run.is_done(); ++n) nodes.step();
    nodes.network().partition({"b"});
    // longer than a ping is waited for, shorter than a suspicion
    nodes.until(1700ms, [] { return false; });
    nodes.network().heal();
    const double expected = expected_of(3, iterations);
    compare(run.get(), {{expected, expected}}, "seed " + std::to_string(seed));
    for (std::size_t i = 0; i < 3; ++i) {
      suspicions += nodes[i].membership_counters().suspicions;
      refuted += nodes[i].membership_counters().refuted;
      BOOST_TEST(nodes[i].membership_counters().deaths == 0u);
    }
  }
  BOOST_TEST(suspicions > 0u);
  BOOST_TEST(refuted > 0u);
}

// Its session is lost though it lives: what was under way is over, since messages may be; it stays,
// and works again.
BOOST_AUTO_TEST_CASE(a_lost_session_ends_runs_and_is_made_anew) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SimulationOptions impatient;
    impatient.router.silence = 300ms, impatient.router.heartbeat = 100ms,
    impatient.router.away = 500ms;
    Nodes nodes(3, stepped_partitions(seed), Between::simulation, impatient);
    const Ending o = run_without(nodes, 3, 2'000'000, 50, [&] {
      nodes.network().partition({"b"});
      nodes.network().at(nodes.network().now() + 1200ms, [&] { nodes.network().heal(); });
    });
    BOOST_TEST((o.status.code() == Code::unavailable));
    BOOST_TEST(says(o.status.message(), {"node 'b' was lost (b did not come back within 0.5 s)"}));
    BOOST_TEST(nodes.until(20s, [&] { return nodes.agree(); }));
    for (std::size_t i = 0; i < 3; ++i) BOOST_TEST(nodes[i].membership_counters().deaths == 0u);
    Graph g;
    const double expected = expected_of(3, 5);
    compare(nodes.engine().run(g, {}, {round_trip(g, 3, 5)}), {{expected, expected}},
            "again, seed " + std::to_string(seed));
  }
}

BOOST_AUTO_TEST_CASE(a_node_cut_off_for_long_comes_back_by_itself) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Nodes nodes(4, stepped_partitions(seed), Between::simulation);
    nodes.network().partition({"b", "d"});
    BOOST_TEST(nodes.until(
        40s, [&] { return nodes[0].nodes().size() == 2 && nodes[3].nodes().size() == 2; }));
    BOOST_TEST(
        (holds(nodes[0], "b", MemberState::dead) && holds(nodes[3], "c", MemberState::dead)));
    Graph g;
    const std::string why =
        refusal([&] { nodes.engine().run(g, {}, {round_trip(g, 2, 3)}); }, Code::not_found);
    BOOST_TEST(says(why, {"there is no node 'b' in this cluster: it is dead", "a, c"}));
    nodes.network().heal();
    BOOST_TEST(nodes.until(60s, [&] { return nodes.agree(); }));
    const double expected = expected_of(4, 5);
    Graph h;
    compare(nodes.engine().run(h, {}, {round_trip(h, 4, 5)}), {{expected, expected}},
            "healed, seed " + std::to_string(seed));
  }
}

// Some nodes without a part in the run are cut off for 5 to 60 s, from all others or from one of
// the run's nodes. Their reports end no run when they are back.
BOOST_AUTO_TEST_CASE(bystanders_that_were_cut_off_end_no_run) {  // H1
  std::uint64_t deaths = 0, doubted = 0;
  const auto [first, count] = seeds(24);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937_64 dice(seed * 37);
      const int total = 3 + static_cast<int>(dice() % 3),
                bystanders = 1 + static_cast<int>(dice() % static_cast<std::uint64_t>(total - 2));
      Nodes nodes(total, stepped_partitions(seed), Between::simulation);
      nodes.network().slow_down("a", "b", 50ms, 0);  // a run of few events
      Graph g;
      Function f = nodes.engine().compile(g, {}, {round_trip(g, 2, 2'000'000)});
      RunHandle run = f.start({});
      nodes.until(500ms, [&] { return run.is_done(); });
      std::set<std::string> off;
      for (int k = 0; k < bystanders; ++k) off.insert(Nodes::name_of(total - 1 - k));
      if (dice() % 4 == 0) nodes.network().cut(*off.begin(), "b");
      else nodes.network().partition(off);
      nodes.until(5s + Time(static_cast<std::int64_t>(dice() % 55'000'000'000)),
                  [&] { return run.is_done(); });
      nodes.network().heal();
      BOOST_TEST(nodes.until(60s, [&] { return run.is_done() || nodes.agree(); }));
      nodes.until(5s, [&] { return run.is_done(); });
      BOOST_TEST(!run.is_done());
      run.cancel();
      BOOST_TEST((run.wait().code() == Code::cancelled), run.wait().message());
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        deaths += nodes[i].membership_counters().deaths;
        doubted += nodes[i].membership_counters().doubted;
      }
    }
  }
  BOOST_TEST_MESSAGE(deaths << " deaths, " << doubted << " doubted");
  if (count >= 20) BOOST_TEST(deaths > 0u);
}

BOOST_AUTO_TEST_CASE(a_restarted_node_is_used_again) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Nodes nodes(3, stepped_partitions(seed), Between::simulation);
    const Ending o = run_without(nodes, 3, 2'000'000, 40 + seed, [&] {
      nodes.network().kill("c");
      nodes.remove(2);
      nodes.add("c", stepped_partitions(seed));
    });
    BOOST_TEST((o.status.code() == Code::unavailable));
    BOOST_TEST(says(o.status.message(), {"node 'c' was lost"}));
    BOOST_TEST(nodes.until(20s, [&] { return nodes.agree(); }));
    const double expected = expected_of(3, 5);
    Graph g;
    compare(nodes.engine().run(g, {}, {round_trip(g, 3, 5)}), {{expected, expected}},
            "seed " + std::to_string(seed));
  }
}

BOOST_AUTO_TEST_CASE(a_leaving_node_is_left_for_all_at_once) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Nodes nodes(5, stepped_partitions(seed), Between::simulation);
    const Ending o = run_without(nodes, 3, 2'000'000, 40, [&] { nodes.remove(1); });
    BOOST_TEST((o.status.code() == Code::unavailable));
    BOOST_TEST(says(o.status.message(), {"node 'b' was lost"}), o.status.message());
    BOOST_TEST(o.after.count() < Time(100ms).count());
    nodes.until(100ms, [] { return false; });
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      BOOST_TEST(holds(nodes[i], "b", MemberState::left));
      BOOST_TEST(nodes[i].membership_counters().suspicions == 0u);
    }
  }
}

BOOST_AUTO_TEST_CASE(nodes_that_all_leave_suspect_no_node) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::vector<std::string> said;
    EngineOptions o = stepped_partitions(seed);
    o.log = [&](const LogRecord& r) { said.push_back(r.text); };
    Nodes nodes(4, o, Between::simulation);
    while (nodes.size() > 0) nodes.remove(0);
    BOOST_TEST(std::any_of(said.begin(), said.end(),
                           [](const std::string& s) { return says(s, {"is alive"}); }));
    for (const std::string& s : said) BOOST_TEST(!says(s, {"suspected"}), s);
  }
}

// c has sent b what it had to, and leaves in the midst of the run, which is none of its any more.
BOOST_AUTO_TEST_CASE(a_node_may_leave_after_its_part) {
  int in_the_midst = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Nodes nodes(3, keeping_pace(stepped_partitions(seed)), Between::simulation);
    Graph g;
    Expr once;
    {
      auto d = g.on_device(device_of(2));
      once = g.random_uniform({2}) * 0.0 + 3.0;
    }
    auto [n, t] = while_loop([](Expr i, Expr) { return i < 600; },
                             [&](Expr i, Expr v) {
                               Expr next = i + 1;
                               auto d = g.on_device(device_of(1));
                               return std::tuple{next, v * 0.5 + 1.5};
                             },
                             std::tuple{g.constant(0), once});
    Function f = nodes.engine().compile(g, {}, {t * 1.0});
    RunHandle run = f.start({});
    nodes.until(50ms, [&] { return run.is_done(); });
    in_the_midst += !run.is_done();
    nodes.remove(2);
    compare(run.get(), {{3, 3}}, "seed " + std::to_string(seed));
  }
  BOOST_TEST(in_the_midst == 20);
}

/// A node in the network of `nodes`, which are stepped while it waits.
std::unique_ptr<ClusterNode> beside(Nodes& nodes, const std::string& name, std::uint64_t life,
                                    const std::string& address, const std::string& join) {
  NodeOptions o;
  o.name = name;
  o.incarnation = life;
  o.engine = stepped_partitions(3);
  o.transport = [&nodes, address](PeerInfo self) {
    self.address = address;
    return nodes.network().make_transport(self);
  };
  o.join = {join};
  o.step = [&nodes] { return nodes.step(); };
  return std::make_unique<ClusterNode>(std::move(o));
}

// Else each of two supervisors that restart would end the other's node for ever.
BOOST_AUTO_TEST_CASE(a_name_belongs_to_the_first_while_it_answers) {  // H6
  Nodes nodes(3, stepped_partitions(3), Between::simulation);
  const auto second = [&](std::uint64_t life, const std::string& join) {
    return beside(nodes, "c", life, "sim://elsewhere", join);
  };
  for (const std::uint64_t life : {100u, 101u}) {  // started, and started again
    std::unique_ptr<ClusterNode> later = second(life, life == 100 ? "sim://a" : "sim://b");
    nodes.until(20s, [] { return false; });
    BOOST_TEST(!later->has_joined());
    BOOST_TEST(nodes[2].status().ok(), nodes[2].status().message());
    for (std::size_t i = 0; i < 3; ++i) BOOST_TEST(nodes[i].nodes().size() == 3u);
  }
  // The first is not there any more: the name is free.
  std::unique_ptr<ClusterNode> later = second(102, "sim://a");
  nodes.until(1s, [] { return false; });
  nodes.remove(2);
  BOOST_TEST(nodes.until(20s, [&] {
    return nodes[0].nodes().size() == 3u && nodes[1].nodes().size() == 3u &&
           later->nodes().size() == 3u;
  }));
}

BOOST_AUTO_TEST_CASE(a_run_is_cancelled_from_another_node) {
  Nodes nodes(3, stepped_partitions(5), Between::simulation);
  Graph g;
  Function f = nodes.engine().compile(g, {}, {round_trip(g, 3, 2'000'000)});
  RunHandle run = f.start({});
  nodes.until(50ms, [] { return false; });
  BOOST_TEST(says(refusal([&] { nodes[2].cancel_run("a/77"); }, Code::not_found),
                  {"there is no run 'a/77'; under way are a/"}));
  BOOST_TEST(says(refusal([&] { nodes[2].cancel_run("x/1"); }, Code::not_found),
                  {"there is no node 'x' in this cluster; there are "}));
  BOOST_TEST(says(refusal([&] { nodes[2].cancel_run("a1"); }, Code::invalid_argument),
                  {"'a1' is no run: a run is NODE/NUMBER"}));
  const std::uint64_t number = nodes[0].inspect({}, 500ms, "a").at(0).report.engine.runs.at(0).run;
  nodes[2].cancel_run("a/" + std::to_string(number));
  while (!run.is_done()) nodes.step();
  BOOST_TEST((run.wait().code() == Code::cancelled));
  BOOST_TEST(says(run.wait().message(), {"an operator has cancelled the run"}));
  nodes.until(1s, [] { return false; });
  BOOST_TEST(
      says(refusal([&] { nodes[1].cancel_run("a/" + std::to_string(number)); }, Code::not_found),
           {"has ended already"}));
  // Each node that took part tells of it, also the one that has only done its part.
  for (std::size_t i = 0; i < 3; ++i) {
    const auto report = nodes[i].inspect({}, 500ms, Nodes::name_of(static_cast<int>(i)));
    const std::vector<EndedRun>& errors = report.at(0).report.engine.errors;
    BOOST_REQUIRE(errors.size() == 1u);
    BOOST_TEST(errors[0].run == number);
    BOOST_TEST(says(errors[0].error, {"an operator has cancelled the run"}));
    BOOST_TEST((errors[0].code == Code::cancelled));
  }
}

// The driver leaves after a loss: a survivor tells why its run failed, an hour later too.
BOOST_AUTO_TEST_CASE(a_failure_is_kept_by_those_that_took_part) {  // H8
  Nodes nodes(3, stepped_partitions(6), Between::simulation);
  std::unique_ptr<ClusterNode> driver;
  const auto step = [&] {
    if (driver) driver->engine().take_step();
    nodes.step();
  };
  {
    NodeOptions o;
    o.name = "driver";
    o.incarnation = 50;
    o.engine = stepped_partitions(6);
    o.transport = [&](PeerInfo self) {
      self.address = "sim://driver";
      return nodes.network().make_transport(self);
    };
    o.join = {"sim://a"};
    o.step = [&] { return nodes.step() || (driver && driver->engine().take_step()); };
    driver = std::make_unique<ClusterNode>(std::move(o));
    driver->wait_for({"a", "b", "c"}, 60s);
    Graph g;
    auto [n, t] = while_loop([](Expr i, Expr) { return i < 2'000'000; },
                             [&](Expr i, Expr v) {
                               Expr next = i + 1, u = v;
                               for (int k = 0; k < 3; ++k) {
                                 auto d = g.on_device(device_of(k));
                                 u = u * 0.5;
                               }
                               return std::tuple{next, u};
                             },
                             std::tuple{g.constant(0), g.ones(DType::f32, {2})});
    Function f = driver->engine().compile(g, {}, {t * 1.0});
    RunHandle run = f.start({});
    for (int i = 0; i < 3000; ++i) step();
    nodes.network().kill("c");
    while (!run.is_done()) step();
    BOOST_TEST((run.wait().code() == Code::unavailable));
  }
  driver.reset();
  nodes.until(3599s, [] { return false; });
  for (const int survivor : {0, 1}) {
    const auto report =
        nodes[static_cast<std::size_t>(survivor)].inspect({}, 500ms, Nodes::name_of(survivor));
    const std::vector<EndedRun>& errors = report.at(0).report.engine.errors;
    BOOST_REQUIRE(errors.size() == 1u);
    BOOST_TEST(says(errors[0].error, {"node 'c' was lost"}));
    BOOST_TEST(errors[0].plan.owner == "driver");
    BOOST_TEST(says(how_to_go_on(errors[0]), {"start the node that was lost", "last save"}));
  }
}

BOOST_AUTO_TEST_CASE(a_drained_node_takes_no_new_partitions) {
  Nodes nodes(3, stepped_partitions(7), Between::simulation);
  Graph g;
  Expr y;
  {
    auto d = g.on_device(device_of(2));
    y = g.ones(DType::f32, {2}) * g.random_uniform({2}) * 0.0 + 3.0;
  }
  Function f = nodes.engine().compile(g, {}, {y * 1.0});
  compare(f({}), {{3, 3}}, "before");
  BOOST_TEST(nodes[1].drain("c") == 0u);
  BOOST_TEST(nodes[2].is_drained());
  nodes.until(2s, [] { return false; });
  BOOST_TEST(says(refusal([&] { f({}); }, Code::unavailable),
                  {"node 'c': it is being drained and takes no new partitions"}));
  // Placement by itself does not lead there.
  for (const auto& m : nodes[0].members())
    if (m.name == "c") BOOST_TEST(m.labels == "draining=yes placement=named");
  BOOST_TEST(says(refusal([&] { nodes[1].drain("nobody"); }, Code::not_found),
                  {"there is no node 'nobody' in this cluster"}));
}

BOOST_AUTO_TEST_CASE(a_drained_node_serves_its_run_to_the_end) {
  Nodes nodes(3, stepped_partitions(8), Between::simulation);
  Graph g;
  Function f = nodes.engine().compile(g, {}, {round_trip(g, 3, 400)});
  RunHandle run = f.start({});
  nodes.until(20ms, [] { return false; });
  BOOST_REQUIRE(!run.is_done());
  BOOST_TEST(nodes[1].drain("c") == 1u);
  BOOST_TEST(!nodes[2].is_drained());
  const double expected = expected_of(3, 400);
  while (!run.is_done()) nodes.step();
  compare(run.get(), {{expected, expected}}, "while it drains");
  BOOST_TEST(nodes.until(10s, [&] { return nodes[2].is_drained(); }));
}

// H7: its clock went back by an hour, so its life looks older than the last one.
BOOST_AUTO_TEST_CASE(a_node_whose_clock_went_back_joins_as_a_later_life) {
  Nodes nodes(1, stepped_partitions(9), Between::simulation);
  const auto start = [&](std::uint64_t life) {
    return beside(nodes, "b", life, "sim://b", "sim://a");
  };
  {
    const std::unique_ptr<ClusterNode> before = start(1000);
    BOOST_TEST(nodes.until(20s, [&] { return nodes[0].nodes().size() == 2u; }));
  }
  std::unique_ptr<ClusterNode> back = start(10);
  nodes.until(5s, [&] { return !back->status().ok(); });
  BOOST_TEST(says(back->status().message(), {"clock"}), back->status().message());
  const std::uint64_t known = back->outdated_by();
  BOOST_TEST(known >= 1000u);
  back.reset();
  back = start(known + 1);
  BOOST_TEST(nodes.until(20s, [&] { return nodes[0].nodes().size() == 2u; }));
  BOOST_TEST(back->status().ok(), back->status().message());
}

BOOST_AUTO_TEST_CASE(join_refuses_a_malformed_address_at_once) {
  for (const auto& [address, why] :
       {std::pair{"a b", "'a b' is no address; write HOST, HOST:PORT or tcp://HOST:PORT"},
        {"", "'' is no address"},
        {"worker1:many", "'worker1:many': 'many' is no port"}}) {
    NodeOptions o;
    o.name = "late";
    o.transport = [](PeerInfo) -> std::unique_ptr<Transport> {
      throw std::logic_error("nobody should listen before that is said");
    };
    o.join = {address};
    BOOST_TEST(
        says(refusal([&] { ClusterNode node(std::move(o)); }, Code::invalid_argument), {why}));
  }
}

BOOST_AUTO_TEST_CASE(another_version_of_troupe_is_refused) {
  Nodes nodes(2, stepped_partitions(4), Between::simulation);
  NodeOptions old;
  old.name = "old";
  old.engine = stepped_partitions(4);
  old.transport = [&](PeerInfo self) {
    self.address = "sim://old";
    self.engine = "0.0.1";
    return nodes.network().make_transport(self);
  };
  old.join = {"sim://a"};
  ClusterNode node(std::move(old));
  nodes.until(3s, [] { return false; });
  BOOST_TEST(node.nodes().size() == 1u);
  BOOST_TEST(!node.has_joined());
  BOOST_TEST(nodes[0].members().size() == 2u);
  const std::string why = refusal([&] { node.wait_joined(0s); }, Code::unavailable);
  BOOST_TEST(says(why, {"sim://a", "old runs Troupe 0.0.1, and a runs"}));
}

// Kills, cuts, broken connections, nodes that leave and that come, while runs begin and end: every
// run ends, with the right values or saying why; in the end all agree, and all that are there can
// be worked with.
BOOST_AUTO_TEST_CASE(runs_end_and_nodes_agree_under_random_faults,
                     *boost::unit_test::label("one_thread")) {
  const auto [first, count] = seeds(1000);
  std::uint64_t done = 0, lost = 0, refused = 0, deaths = 0, refutations = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937_64 dice(seed * 131);
      const int total = 3 + static_cast<int>(dice() % 2);
      SimulationOptions network;
      if (dice() % 3 == 0)
        network.router.silence = 600ms, network.router.heartbeat = 200ms,
        network.router.away = 900ms;
      Nodes nodes(total, stepped_partitions(seed), Between::simulation, network);
      auto index_of = [&](const std::string& name) {
        for (std::size_t i = 0; i < nodes.size(); ++i)
          if (nodes[i].name() == name) return static_cast<int>(i);
        return -1;
      };
      for (int round = 0; round < 6; ++round) {
        Graph g;
        const int over = 2 + static_cast<int>(dice() % static_cast<std::uint64_t>(total - 1)),
                  iterations = 1 + static_cast<int>(dice() % 40);
        RunHandle run;
        bool has_begun = false;
        try {
          Function f = nodes.engine().compile(g, {}, {round_trip(g, over, iterations)});
          run = f.start({});
          has_begun = true;
        } catch (const Error& e) {
          BOOST_TEST((e.code() == Code::not_found || e.code() == Code::unavailable), e.what());
          ++refused;
        }
        for (std::uint64_t n = dice() % 300; n > 0; --n) nodes.step();
        const std::string victim =
            Nodes::name_of(1 + static_cast<int>(dice() % static_cast<std::uint64_t>(total - 1)));
        const int at = index_of(victim);
        const Time length = Time(static_cast<std::int64_t>(dice() % 4'000'000'000));
        switch (dice() % 6) {
          case 0: nodes.network().break_connections(victim); break;
          case 1:
            nodes.network().partition({victim});
            nodes.network().at(nodes.network().now() + length, [&] { nodes.network().heal(); });
            break;
          case 2:
            if (at < 0) break;
            nodes.network().kill(victim);
            nodes.remove(static_cast<std::size_t>(at));
            break;
          case 3:
            if (at >= 0) nodes.remove(static_cast<std::size_t>(at));
            break;
          case 4:
            if (at < 0) nodes.add(victim, stepped_partitions(seed));
            break;
          case 5:
            nodes.network().cut(
                victim,
                Nodes::name_of(static_cast<int>(dice() % static_cast<std::uint64_t>(total))));
            nodes.network().at(nodes.network().now() + length, [&] { nodes.network().heal(); });
            break;
        }
        const Time until = nodes.network().now() + 60s;
        try {
          while (has_begun && !run.is_done() && nodes.network().now() < until) nodes.step();
          if (has_begun) {
            BOOST_TEST_REQUIRE(run.is_done(), "a run hangs");
            const double expected = expected_of(over, iterations);
            compare(run.get(), {{expected, expected}}, "what is computed");
            ++done;
          }
        } catch (const Error& e) {
          BOOST_TEST((e.code() == Code::unavailable && says(e.what(), {"was lost"})), e.what());
          ++lost;
        }
        nodes.until(Time(static_cast<std::int64_t>(dice() % 3'000'000'000)), [] { return false; });
      }
      nodes.network().heal();
      for (int k = 1; k < total; ++k)
        if (index_of(Nodes::name_of(k)) < 0) nodes.add(Nodes::name_of(k), stepped_partitions(seed));
      BOOST_TEST(nodes.until(90s, [&] { return nodes.agree(); }), "they do not agree");
      Graph g;
      const double expected = expected_of(total, 3);
      compare(nodes.engine().run(g, {}, {round_trip(g, total, 3)}), {{expected, expected}},
              "in the end");
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        deaths += nodes[i].membership_counters().deaths;
        refutations += nodes[i].membership_counters().refuted;
      }
    }
  }
  BOOST_TEST_MESSAGE(done << " runs done, " << lost << " lost, " << refused << " refused; "
                          << deaths << " deaths, " << refutations << " refuted");
  if (count >= 100)
    BOOST_TEST((done > 0 && lost > 0 && refused > 0 && deaths > 0 && refutations > 0));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
