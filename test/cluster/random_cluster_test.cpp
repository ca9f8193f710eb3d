// Random programs with nested control flow, every operation on a node that is drawn, compared with the oracle.
//
//   TROUPE_SEED=7 test_cluster --run_test=random_cluster_test               # one program
//   TROUPE_OVER_PROCESSES=1 test_cluster --run_test=random_cluster_test     # over nodes that are processes, and in no other way
#include <troupe/test/cluster/nodes.hpp>
#include <troupe/test/cluster/processes.hpp>
#include <troupe/test/controlflow/random_programs.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(random_cluster_test)

namespace {

class Cluster final : public World {
 public:
  Cluster(int count, const EngineOptions& engine, Between between) : nodes_(count, Nodes::scattered(count, engine), between) {}
  Engine& engine() override { return nodes_.engine(); }
  bool step() override { return nodes_.step(); }

 private:
  Nodes nodes_;
};

// Placed by the cost model, for which ways are short enough that it spreads what little there is to do.
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

std::function<std::unique_ptr<World>(const EngineOptions&)> cluster(int count, Between between = Between::handles) {
  return [=](const EngineOptions& engine) { return std::make_unique<Cluster>(count, engine, between); };
}

class Processes final : public World {
 public:
  explicit Processes(const EngineOptions& engine) : here_(NodeProcesses::all().join(Nodes::scattered(3, engine))) {}
  Engine& engine() override { return here_->engine(); }
  bool step() override { return false; }  // they have threads

 private:
  std::unique_ptr<ClusterNode> here_;
};

std::unique_ptr<World> processes(const EngineOptions& engine) { return std::make_unique<Processes>(engine); }

const std::vector<Way>& process_ways() {
  static const std::vector<Way> all{
      {.name = "three processes", .workers = 1, .granularity = Granularity::automatic, .in_flight = true, .seed = 9, .world = processes},
      {.name = "three processes, no passes", .workers = 1, .granularity = Granularity::op, .optimize = false, .seed = 10, .world = processes},
      {.name = "three processes, narrow edges", .workers = 2, .granularity = Granularity::partition, .seed = 11, .is_narrow = true, .world = processes},
  };
  return all;
}

const std::vector<Way>& cluster_ways() {
  if (is_over_processes()) return process_ways();
  static const std::vector<Way> all{
      {.name = "two nodes, deterministic", .is_deterministic = true, .seed = 1, .world = cluster(2)},
      {.name = "three nodes, deterministic, no passes", .granularity = Granularity::op, .is_deterministic = true, .optimize = false, .seed = 2, .world = cluster(3)},
      {.name = "two nodes, in flight", .granularity = Granularity::automatic, .is_deterministic = true, .in_flight = true, .seed = 3, .world = cluster(2)},
      {.name = "three nodes, a simulated network", .is_deterministic = true, .in_flight = true, .seed = 4, .world = cluster(3, Between::simulation)},
      {.name = "two nodes, threads", .workers = 1, .granularity = Granularity::automatic, .in_flight = true, .seed = 5, .world = cluster(2)},
      {.name = "three nodes, narrow edges", .is_deterministic = true, .seed = 8, .is_narrow = true, .world = cluster(3)},
      {.name = "three nodes, by cost", .is_deterministic = true, .seed = 7, .world = [](const EngineOptions& engine) { return std::make_unique<ByCost>(3, engine); }},
      {.name = "three nodes, threads", .workers = 2, .granularity = Granularity::op, .seed = 6, .world = cluster(3)},
  };
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_are_the_oracles) { compare_values(cluster_ways(), seeds(400), {}); }

BOOST_AUTO_TEST_CASE(errors_are_the_oracles) { compare_values(cluster_ways(), seeds(100), {.may_fail = true}); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
