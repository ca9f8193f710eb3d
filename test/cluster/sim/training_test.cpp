// Not under asan and tsan: a search over schedules, of one thread.
// Trainings in the seeded simulation: a node is killed between any two messages, disks are torn and
// full, a driver is cut off. The weights are those of an undisturbed training, bit for bit.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/cluster/faulty_disk.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/cluster/trained_weights.hpp>
#include <troupe/test/support/refusal.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(training_test)

namespace {

constexpr std::int64_t kSteps = 9;

EngineOptions seeded(std::uint64_t schedule) {
  EngineOptions o = stepped(schedule);
  o.seed = 5;
  return o;
}

// Four nodes, of which all but the first keep checkpoints. The seed of the network is the
// schedule's, that of engines the program's.
struct World {
  Folder place;
  std::map<std::string, FaultyDisk> disks;
  std::vector<std::string> lines;
  Nodes nodes;

  explicit World(std::uint64_t schedule)
      : nodes(4, seeded(schedule), Between::simulation, {}, {}, {}, {},
              [this](const std::string& node) {
                return Nodes::State{node == "a" ? std::string() : place / node, &disks[node]};
              }) {
    // Draws of time, so that schedules differ though the engines' seed does not.
    std::minstd_rand random(static_cast<unsigned>(schedule * 2654435761u + 1));
    for (unsigned i = random() % 64; i > 0; --i) nodes.step();
  }
  TrainingOptions options() {
    return {.replicas = kTrainingReplicas,
            .name = "demo",
            .every = 3,
            .log = [this](const std::string& line) { lines.push_back(line); }};
  }
  NamedTensors newest() const {
    std::vector<std::string> folders;
    for (const char* node : {"b", "c", "d"})
      folders.push_back(place / (std::string(node) + "/demo"));
    const NodeFolders all(real_disk(), folders);
    for (const CheckpointId& id : all.all())
      if (id.step == kSteps) return all.read(id);
    return {};
  }
  void print() const {
    for (const std::string& line : lines) BOOST_TEST_MESSAGE(line);
  }
};

const std::map<std::string, Tensor>& wanted() {
  static const std::map<std::string, Tensor> weights = [] {
    Nodes one(1, seeded(1));
    return undisturbed_weights(one[0], kSteps);
  }();
  return weights;
}

// The simulated time that an undisturbed training takes.
Time span_of_training() {
  static const Time span = [] {
    World world(1);
    const Time begin = world.nodes.network().now();
    Training(world.nodes[0], world.options(), small_network, small_rows).run(kSteps);
    check_same_weights(world.newest(), wanted());
    return world.nodes.network().now() - begin;
  }();
  return span;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_killed_node_changes_no_bit, *boost::unit_test::label("one_thread")) {
  int recovered = 0;
  for (std::uint64_t schedule = 1; schedule <= 20; ++schedule) {
    World world(schedule);
    std::minstd_rand random(static_cast<unsigned>(schedule));
    const std::string killed(1, "bcd"[schedule % 3]);
    const Time at =
        world.nodes.network().now() + span_of_training() * static_cast<int>(random() % 1000) / 1000;
    world.nodes.network().at(at, [&] { world.nodes.network().kill(killed); });
    Training training(world.nodes[0], world.options(), small_network, small_rows);
    try {
      training.run(kSteps);
    } catch (const Error& e) {
      world.print();
      BOOST_ERROR("schedule " << schedule << ", " << killed << " killed: " << e.what());
      continue;
    }
    recovered += training.counters().recoveries > 0;
    BOOST_TEST_CONTEXT("schedule " << schedule) { check_same_weights(world.newest(), wanted()); }
  }
  BOOST_TEST(recovered > 5);
}

BOOST_AUTO_TEST_CASE(another_driver_goes_on_after_one_is_lost,
                     *boost::unit_test::label("one_thread")) {
  for (std::uint64_t schedule = 1; schedule <= 10; ++schedule) {
    World world(schedule);
    // Before a step, while a checkpoint may be written; tests of processes kill it at any time.
    const auto killed_at = static_cast<std::int64_t>(schedule % (kSteps - 1) + 1);
    Training first(world.nodes[0], world.options(), small_network, [&](std::int64_t step) {
      if (step == killed_at) throw Error(Code::cancelled, "the driver is killed");
      return small_rows(step);
    });
    BOOST_CHECK_THROW(first.run(kSteps), Error);
    world.nodes.network().kill("a");
    Training second(world.nodes[3], world.options(), small_network, small_rows);
    BOOST_TEST_CONTEXT("schedule " << schedule) {
      BOOST_CHECK_NO_THROW(second.run(kSteps));
      check_same_weights(world.newest(), wanted());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_driver_that_was_cut_off_is_refused, *boost::unit_test::label("one_thread")) {
  for (std::uint64_t schedule = 1; schedule <= 4; ++schedule) {
    World world(schedule);
    bool is_ending = true;
    Training first(world.nodes[0], world.options(), small_network, [&](std::int64_t step) {
      if (step == 5 && is_ending) throw Error(Code::cancelled, "it stops here");
      return small_rows(step);
    });
    BOOST_CHECK_THROW(first.run(kSteps), Error);
    world.nodes.network().partition({"a"});
    Training second(world.nodes[1], world.options(), small_network, small_rows);
    second.run(kSteps);
    world.nodes.network().heal();
    world.nodes.until(std::chrono::seconds(30), [&] { return world.nodes.agree(); });
    is_ending = false;
    const std::string why = refusal([&] { first.run(2 * kSteps); }, Code::failed_precondition);
    BOOST_TEST(why.find("epoch 2") != std::string::npos, why);
    check_same_weights(world.newest(), wanted());
  }
}

BOOST_AUTO_TEST_CASE(torn_and_full_disks_change_no_bit, *boost::unit_test::label("one_thread")) {
  int skipped = 0;
  for (std::uint64_t schedule = 1; schedule <= 12; ++schedule) {
    World world(schedule);
    std::minstd_rand random(static_cast<unsigned>(schedule + 200));
    const std::string faulty(1, "bcd"[schedule % 3]);
    FaultyDisk& disk = world.disks[faulty];
    const auto fault_at = static_cast<std::int64_t>(random() % 6 + 1);
    const auto bytes = static_cast<std::int64_t>(random() % 400);
    {
      Training training(world.nodes[0], world.options(), small_network, [&](std::int64_t step) {
        if (step == fault_at) (schedule % 2 ? disk.torn_after : disk.room) = bytes;
        return small_rows(step);
      });
      BOOST_CHECK_NO_THROW(training.run(6));
    }
    disk.torn_after = -1;
    disk.room = INT64_MAX;
    Training again(world.nodes[0], world.options(), small_network, small_rows);
    BOOST_TEST_CONTEXT("schedule " << schedule << ", " << faulty) {
      BOOST_CHECK_NO_THROW(again.run(kSteps));
      skipped += again.counters().steps > 3 ||
                 std::any_of(world.lines.begin(), world.lines.end(), [](const std::string& line) {
                   return line.find("damaged") != std::string::npos ||
                          line.find("has no copy") != std::string::npos;
                 });
      check_same_weights(world.newest(), wanted());
    }
  }
  BOOST_TEST(skipped > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
