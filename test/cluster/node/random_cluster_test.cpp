// Random programs with nested control flow and their gradients, every operation on a node that is
// drawn, compared with the oracle.
//
//   TROUPE_SEED=7 test_cluster --run_test=random_cluster_test             # one program
//   TROUPE_OVER_PROCESSES=1 test_cluster --run_test=random_cluster_test   # only over processes
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/cluster/processes.hpp>
#include <troupe/test/support/programs/random_gradients.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(random_cluster_test)

namespace {

class Cluster final : public World {
 public:
  Cluster(int count, const EngineOptions& engine, Between between)
      : nodes_(count, Nodes::scattered(count, engine), between) {}
  Engine& engine() override { return nodes_.engine(); }
  bool step() override { return nodes_.step(); }

 private:
  Nodes nodes_;
};

// Placed by the cost model, for which ways are short enough that it spreads what little there is to
// do.
class ByCost final : public World {
 public:
  ByCost(int count, EngineOptions engine) : nodes_(count, priced(engine)) {}
  Engine& engine() override { return nodes_.engine(); }
  bool step() override { return nodes_.step(); }

 private:
  static EngineOptions& priced(EngineOptions& engine) {
    engine.placement = Placement::automatic;
    engine.costs.between_nodes = {.latency_ns = 1, .bytes_per_ns = 1000};
    return engine;
  }
  Nodes nodes_;
};

std::function<std::unique_ptr<World>(const EngineOptions&)> cluster(
    int count, Between between = Between::handles) {
  return [=](const EngineOptions& engine) {
    return std::make_unique<Cluster>(count, engine, between);
  };
}

/// A simulated network whose connections break, and which falls apart for a moment, again and
/// again.
class Shaken final : public World {
 public:
  Shaken(int count, const EngineOptions& engine)
      : nodes_(count, Nodes::scattered(count, engine), Between::simulation), random_(engine.seed) {}
  Engine& engine() override { return nodes_.engine(); }
  bool step() override {
    if (++steps_ % 300 == 0) shake();
    return nodes_.step();
  }

 private:
  void shake() {
    const std::string who = Nodes::name_of(static_cast<int>(random_() % nodes_.size()));
    SimulatedNetwork& network = nodes_.network();
    switch (random_() % 3) {
      case 0: return network.break_connections(who);
      case 1: return network.break_bulk_channels(who);
      default:
        network.partition({who});
        // before any node is held for dead
        network.at(network.now() + std::chrono::milliseconds(200), [&network] { network.heal(); });
    }
  }
  Nodes nodes_;
  std::minstd_rand random_;
  std::uint64_t steps_ = 0;
};

/// One of whose nodes is killed: at once, or when all is done, or between.
class Killing final : public World {
 public:
  explicit Killing(const EngineOptions& engine)
      : nodes_(3, Nodes::scattered(3, engine), Between::simulation),
        when_(std::minstd_rand(static_cast<unsigned>(engine.seed))() % 1500) {}
  Engine& engine() override { return nodes_.engine(); }
  bool step() override {
    if (steps_++ == when_) nodes_.network().kill(kVictim);
    return nodes_.step();
  }
  static constexpr const char* kVictim = "b";

 private:
  Nodes nodes_;
  const std::uint64_t when_;
  std::uint64_t steps_ = 0;
};

class Processes final : public World {
 public:
  explicit Processes(const EngineOptions& engine)
      : here_(NodeProcesses::all().join(Nodes::scattered(3, engine))) {}
  ~Processes() override { NodeProcesses::all().is_done(*here_); }
  Engine& engine() override { return here_->engine(); }
  bool step() override { return false; }  // they have threads

 private:
  std::unique_ptr<ClusterNode> here_;
};

std::unique_ptr<World> processes(const EngineOptions& engine) {
  return std::make_unique<Processes>(engine);
}

const std::vector<Way>& process_ways() {
  static const std::vector<Way> all{
      {.name = "three processes",
       .workers = 1,
       .granularity = Granularity::automatic,
       .in_flight = true,
       .seed = 9,
       .world = processes},
      {.name = "three processes, no passes",
       .workers = 1,
       .granularity = Granularity::op,
       .optimize = false,
       .seed = 10,
       .world = processes},
      {.name = "three processes, narrow edges",
       .workers = 2,
       .granularity = Granularity::partition,
       .seed = 11,
       .is_narrow = true,
       .world = processes},
  };
  return all;
}

const std::vector<Way>& cluster_ways() {
  if (is_over_processes()) return process_ways();
  static const std::vector<Way> all{
      {.name = "two nodes, deterministic",
       .is_deterministic = true,
       .seed = 1,
       .world = cluster(2)},
      {.name = "three nodes, deterministic, no passes",
       .granularity = Granularity::op,
       .is_deterministic = true,
       .optimize = false,
       .seed = 2,
       .world = cluster(3)},
      {.name = "two nodes, in flight",
       .granularity = Granularity::automatic,
       .is_deterministic = true,
       .in_flight = true,
       .seed = 3,
       .world = cluster(2)},
      {.name = "three nodes, a simulated network",
       .is_deterministic = true,
       .in_flight = true,
       .seed = 4,
       .world = cluster(3, Between::simulation)},
      {.name = "two nodes, threads",
       .workers = 1,
       .granularity = Granularity::automatic,
       .in_flight = true,
       .seed = 5,
       .world = cluster(2)},
      {.name = "three nodes, narrow edges",
       .is_deterministic = true,
       .seed = 8,
       .is_narrow = true,
       .world = cluster(3)},
      {.name = "three nodes, connections that break",
       .is_deterministic = true,
       .in_flight = true,
       .seed = 12,
       .world = [](const EngineOptions& engine) { return std::make_unique<Shaken>(3, engine); }},
      {.name = "three nodes, by cost",
       .is_deterministic = true,
       .seed = 7,
       .world = [](const EngineOptions& engine) { return std::make_unique<ByCost>(3, engine); }},
      {.name = "three nodes, threads",
       .workers = 2,
       .granularity = Granularity::op,
       .seed = 6,
       .world = cluster(3)},
  };
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_are_the_oracles) { compare_values(cluster_ways(), seeds(400, 2), {}); }

// Loops at least as long as a run-length token and as the tokens sent ahead.
BOOST_AUTO_TEST_CASE(values_of_long_loops_are_the_oracles) {
  compare_values(cluster_ways(), seeds(60, 2), {.depth = 2, .trips = 1500});
}

BOOST_AUTO_TEST_CASE(values_of_large_tensors_are_the_oracles) {
  compare_values(cluster_ways(), seeds(60, 2), {.depth = 2, .is_large = true});
}

BOOST_AUTO_TEST_CASE(a_run_that_is_cancelled_disturbs_no_other) {
  const Seeds s = seeds(100, 2);
  const int before = cancelled_runs();
  compare_values(cluster_ways(), s, {.variables = Use::none}, difference_beside_cancelled);
  if (s.count >= 50) BOOST_TEST(cancelled_runs() > before);
}

BOOST_AUTO_TEST_CASE(gradients_are_the_interpreters) {
  compare_gradients(cluster_ways(), seeds(100, 2));
}
BOOST_AUTO_TEST_CASE(second_derivatives_are_the_interpreters) {
  compare_gradients(cluster_ways(), seeds(20, 2), 2);
}

// These programs hung: for an inner loop, the run-length tokens of two senders each waited for the
// loop around it. The predicate among them arrived in two pieces, the later one first, and opened
// iterations that were to wait for the other sender's token.
BOOST_AUTO_TEST_CASE(programs_that_hung) { compare_values(cluster_ways(), {1618, 1}, {}); }

// A run ends as the oracle says, or names the node that was lost.
BOOST_AUTO_TEST_CASE(a_node_that_is_killed_is_named_or_not_missed,
                     *boost::unit_test::label("one_thread")) {
  if (is_over_processes()) return;
  const Way way{
      .name = "a node is killed",
      .is_deterministic = true,
      .in_flight = true,
      .seed = 13,
      .world = [](const EngineOptions& engine) { return std::make_unique<Killing>(engine); }};
  int named = 0, done = 0;
  const auto check = [&](const Recipe& r, const Way& w) -> std::optional<std::string> {
    const auto wrong = difference(r, expected_of(r), w);
    const bool is_named =
        wrong && wrong->starts_with("an error: ") &&
        wrong->find(fmt::format("node '{}'", Killing::kVictim)) != std::string::npos;
    ++(is_named ? named : done);
    return is_named ? std::nullopt : wrong;
  };
  const Seeds s = seeds(200, 2);
  for (std::uint64_t seed = s.first; seed < s.first + s.count; ++seed) {
    Watch watch(seed);
    const Recipe r = random_recipe(seed, {});
    try {
      if (const auto wrong = check(r, way)) return report(r, way, *wrong, check);
    } catch (const Unfit&) {}
  }
  BOOST_TEST_MESSAGE(named << " named it, " << done << " were done");
  if (s.count >= 20) BOOST_TEST((named > 0 && done > 0));
}

BOOST_AUTO_TEST_CASE(errors_are_the_oracles) {
  compare_values(cluster_ways(), seeds(100, 2), {.may_fail = true});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
