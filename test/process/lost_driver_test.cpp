// Not under asan and tsan: its processes run the binary, which other suites run in one process.
// A training whose checkpoints are on the disks of three nodes: kill -9 of its driver, of a node
// with replicas and shards, and of both. Another driver goes on, and no bit of the weights differs.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <troupe/cluster.hpp>
#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/process/node_process.hpp>
#include <troupe/test/support/cluster/trained_weights.hpp>
#include <troupe/test/support/share.hpp>
#include <troupe/troupe.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(lost_driver_test)

namespace {

constexpr int kSteps = 24;

std::map<std::string, Tensor> wanted_after(int steps) {
  NodeOptions o;
  o.name = "a";
  o.engine.seed = 5;
  o.transport = [](PeerInfo self) {
    self.address = "tcp://127.0.0.1:0";
    return make_zeromq_transport(std::move(self), {});
  };
  ClusterNode one(std::move(o));
  return undisturbed_weights(one, steps);
}

// Nodes b, c and d, which keep checkpoints.
struct World {
  Folder place;
  Folder folders[3];
  std::vector<std::unique_ptr<NodeProcess>> nodes;

  World() {
    for (int i = 0; i < 3; ++i) start(i);
  }
  void start(int i) {
    const std::string name(1, static_cast<char>('b' + i));
    std::vector<std::string> flags{"--state", place / name, "--suspect-after", "0.5"};
    if (!nodes.empty()) flags.insert(flags.end(), {"--join", nodes[0]->address});
    nodes.push_back(std::make_unique<NodeProcess>(folders[i], name, flags));
  }
  /// With its disk.
  void start_again(int i) {
    const auto n = static_cast<std::size_t>(i);
    const std::string name(1, static_cast<char>('b' + i));
    nodes[n] = std::make_unique<NodeProcess>(
        folders[i], name,
        std::vector<std::string>{"--state", place / name, "--join",
                                 nodes[(n + 1) % nodes.size()]->address});
  }
  std::unique_ptr<Process> driver(const std::string& name, int node, int pause_ms,
                                  int steps = kSteps) const {
    const fs::path self = fs::canonical("/proc/self/exe").parent_path();
    return std::make_unique<Process>(
        place.path(), std::vector<std::string>{(self / "tools" / "training_driver").string(), name,
                                               nodes[static_cast<std::size_t>(node)]->address,
                                               std::to_string(steps), std::to_string(pause_ms)});
  }
  NodeFolders checkpoints() const {
    return NodeFolders(real_disk(), {place / "b/demo", place / "c/demo", place / "d/demo"});
  }
  /// The newest checkpoint, of that step. Each placement of a training has an epoch of its own.
  NamedTensors newest_of(std::int64_t step) const {
    const CheckpointId last = checkpoints().all().back();
    BOOST_TEST(last.step == step);
    return checkpoints().read(last);
  }
  Outcome verb(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), binary());
    return run(place.path(), arguments);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(another_driver_goes_on_where_the_killed_one_was,
                     *boost::unit_test::label("stock_zmq")) {
  World world;
  const auto first = world.driver("first", 0, 20);
  BOOST_REQUIRE(first->read_until("at 13\n"));
  first->interrupt(SIGKILL);
  first->finish();
  // It joins by another node, and finds the newest checkpoint.
  const auto second = world.driver("second", 2, 0);
  const Outcome end = second->finish();
  BOOST_TEST(end.code == 0, end.out << end.error);
  BOOST_TEST(end.out.find("restored demo/step-10.epoch-1.json") != std::string::npos, end.out);
  const CheckpointId last{kSteps, 2};
  check_same_weights(world.checkpoints().read(last), wanted_after(kSteps));

  // Each node shows the training, its driver and its end, and its folder is a checkpoint's.
  const Outcome runs = world.verb({"runs", "--join", world.nodes[1]->address});
  BOOST_TEST(runs.out.find("demo  ended  24/24") != std::string::npos, runs.out << runs.error);
  const Outcome attached = world.verb({"attach", "demo", "--join", world.nodes[2]->address});
  BOOST_TEST((attached.code == 0 && attached.out.find("step 24/24, ended") != std::string::npos),
             attached.out << attached.error);
  const Outcome none = world.verb({"attach", "other", "--join", world.nodes[2]->address});
  BOOST_TEST((none.code == 1 && none.error.find("there are: demo") != std::string::npos),
             none.error);
  const Outcome listed = world.verb({"checkpoint", "list", world.place / "b/demo"});
  BOOST_TEST(listed.out.find("          24  ") != std::string::npos, listed.out);
  const Outcome verified = world.verb({"checkpoint", "verify", world.place / "b/demo", "--with",
                                       world.place / "c/demo" + "," + world.place / "d/demo"});
  BOOST_TEST((verified.code == 0 && verified.out.find("step 24: ") != std::string::npos &&
              verified.out.find("variables, whole") != std::string::npos),
             verified.out << verified.error);
}

BOOST_AUTO_TEST_CASE(a_killed_node_that_returns_and_then_its_driver_change_no_bit,
                     *boost::unit_test::label("stock_zmq")) {
  constexpr int kMany = 400;  // more than there is time for until the node has returned
  World world;
  const auto first = world.driver("first", 0, 20, kMany);
  BOOST_REQUIRE(first->read_until("at 7\n"));
  world.nodes[1]->process.interrupt(SIGKILL);
  world.nodes[1]->process.finish();
  BOOST_REQUIRE(first->read_until("3 replicas on /node:b/cpu:0, /node:d/cpu:0, /node:b/cpu:1"));
  // The node comes back with its disk, and is used again, for variables too that it had before.
  world.start_again(1);
  const std::string all = "3 replicas on /node:b/cpu:0, /node:c/cpu:0, /node:d/cpu:0\n";
  int step = 8;
  while (step < kMany && first->seen().find(all) == first->seen().rfind(all))
    BOOST_REQUIRE(first->read_until(fmt::format("at {}\n", step++)));
  BOOST_TEST(step < kMany);
  first->interrupt(SIGKILL);
  first->finish();
  const Outcome end = world.driver("second", 0, 0, kMany)->finish();
  BOOST_TEST(end.code == 0, end.out << end.error);
  check_same_weights(world.newest_of(kMany), wanted_after(kMany));
}

// The driver, a node with replicas and shards, a node while a checkpoint is written, or a node that
// starts again at once. TROUPE_SEED=n is one of them.
BOOST_AUTO_TEST_CASE(a_kill_at_a_random_moment_changes_no_bit,
                     *boost::unit_test::label("stock_zmq")) {
  enum Role { driver, worker, writer, returns };
  const auto wanted = wanted_after(kSteps);
  const auto [first, count] = seeds(40, 5);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 dice(seed * 7919);
    const auto role = static_cast<Role>(seed % 4);
    const int on = static_cast<int>(dice() % 3),
              step = static_cast<int>(role == writer ? 5 + 5 * (dice() % 4) : 1 + dice() % 22);
    const std::chrono::microseconds after(dice() % 20'000);
    BOOST_TEST_CONTEXT("seed " << seed << ": role " << role << ", node " << on << ", step " << step
                               << " and " << after.count() << " us") {
      World world;
      auto process = world.driver("first", 0, 5);
      BOOST_REQUIRE(process->read_until(fmt::format("at {}\n", step)));
      std::this_thread::sleep_for(after);  // the moment
      Process& killed =
          role == driver ? *process : world.nodes[static_cast<std::size_t>(on)]->process;
      killed.interrupt(SIGKILL);
      killed.finish();
      if (role == driver) process = world.driver("second", on, 0);
      if (role == returns) world.start_again(on);
      const Outcome end = process->finish();
      BOOST_TEST(end.code == 0, end.out << end.error);
      check_same_weights(world.newest_of(kSteps), wanted);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_earlier_of_two_drivers_ends, *boost::unit_test::label("stock_zmq")) {
  World world;
  const auto first = world.driver("first", 0, 50);
  BOOST_REQUIRE(first->read_until("at 3\n"));
  const auto second = world.driver("second", 1, 0);
  const Outcome refused = first->finish(), end = second->finish();
  BOOST_TEST(refused.code == 1, refused.out);
  BOOST_TEST((refused.out.find("driver 'first' is of epoch 1") != std::string::npos &&
              refused.out.find("driver 'second' of epoch 2") != std::string::npos),
             refused.out);
  BOOST_TEST(end.code == 0, end.out << end.error);
  check_same_weights(world.newest_of(kSteps), wanted_after(kSteps));
}

BOOST_AUTO_TEST_SUITE_END()
