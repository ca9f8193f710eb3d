// Not under asan and tsan: a search over schedules, of one thread.
// Trainings under several faults at random times: nodes and drivers that are killed and start again
// with their disks, cuts, partitions, slow links, torn and full disks. A seed decides all of it.
// The weights are those of an undisturbed training, bit for bit. A failing schedule is shrunk to
// the faults that it needs, and printed; TROUPE_SEED=n runs it again.
#include <boost/test/unit_test.hpp>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/cluster/checkpoint/node_folders.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/test/support/cluster/faulty_disk.hpp>
#include <troupe/test/support/cluster/nodes.hpp>
#include <troupe/test/support/cluster/trained_weights.hpp>
#include <troupe/test/support/share.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(schedules_test)

namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kSteps = 9;

EngineOptions seeded(std::uint64_t schedule) {
  EngineOptions o = stepped(schedule);
  o.seed = 5;
  return o;
}

struct Fault {
  enum class Kind { kill, partition, cut, connections, slow, torn, full, driver };
  Kind kind = Kind::kill;
  std::string on, other;
  Time at{}, length{};
  std::int64_t number = 0;  // bytes of a disk; the step before which the driver is killed

  std::string text() const {
    static const char* const names[] = {"kill",      "partition", "cut",  "break connections of",
                                        "slow down", "tear",      "fill", "kill the driver"};
    return fmt::format("{} {} {} at {} us for {} us, {}", names[static_cast<int>(kind)], on, other,
                       at.count() / 1000, length.count() / 1000, number);
  }
};
using Faults = std::vector<Fault>;

std::string drawn_node(std::mt19937_64& dice) { return std::string(1, "bcd"[dice() % 3]); }

// One disk at most is faulty, so that each shard has a copy that is whole.
Faults drawn(std::uint64_t seed, Time span) {
  std::mt19937_64 dice(seed * 7919);
  Faults faults;
  const std::string disk = drawn_node(dice);
  for (std::uint64_t i = 0, count = 1 + dice() % 4; i < count; ++i) {
    Fault f;
    f.kind = static_cast<Fault::Kind>(dice() % 8);
    f.on = drawn_node(dice);
    f.other = dice() % 3 == 0 ? "a" : drawn_node(dice);
    f.at = span * static_cast<int>(dice() % 1500) / 1000;
    f.length = Time(static_cast<std::int64_t>(dice() % 4'000'000'000));
    f.number = static_cast<std::int64_t>(dice() % 400);
    if (f.kind == Fault::Kind::torn || f.kind == Fault::Kind::full) f.on = disk;
    if (f.kind == Fault::Kind::driver) f.number = f.number % kSteps;
    faults.push_back(std::move(f));
  }
  return faults;
}

// Four nodes, of which all but the first keep checkpoints.
class World {
 public:
  explicit World(std::uint64_t schedule)
      : schedule_(schedule),
        nodes(4, seeded(schedule), Between::simulation, {}, {}, {}, {},
              [this](const std::string& node) {
                return Nodes::State{node == "a" ? std::string() : place_ / node, &disks_[node]};
              }) {
    std::minstd_rand random(static_cast<unsigned>(schedule * 2654435761u + 1));
    for (unsigned i = random() % 64; i > 0; --i) nodes.step();
  }

  ~World() { is_over_ = true; }

  /// Trains to the end, by other drivers after one was killed. Throws what a driver ends with that
  /// is started again when all faults are over.
  void train(const Faults& faults) {
    std::vector<std::int64_t> driver_killed_at;
    for (const Fault& f : faults)
      if (f.kind == Fault::Kind::driver) driver_killed_at.push_back(f.number);
      else later(f.at, [this, f] { begin_fault(f); });
    later(900s, [] { throw Error(Code::deadline_exceeded, "it hangs"); });
    for (int attempt = 0;; ++attempt) {
      bool is_killed = false;
      try {
        Training training(node(driver_), options(), small_network, [&](std::int64_t step) {
          if (!driver_killed_at.empty() && step == driver_killed_at.back()) {
            driver_killed_at.pop_back();
            is_killed = true;
            throw Error(Code::cancelled, "the driver is killed");
          }
          return small_rows(step);
        });
        training.run(kSteps);
        recoveries += training.counters().recoveries;
        return;
      } catch (const Error& e) {
        lines.push_back(without_place(fmt::format("driver '{}' ended: {}", driver_, e.what())));
        const bool may_be = is_killed || e.code() == Code::unavailable ||
                            e.code() == Code::resource_exhausted;  // no disk had room
        if (!may_be || attempt > 8) throw;
      }
      if (is_killed) replace_driver();
      else wait_for_all();
    }
  }
  NamedTensors newest() const {
    std::vector<std::string> folders;
    for (const char* node : {"b", "c", "d"})
      folders.push_back(place_ / (std::string(node) + "/demo"));
    const NodeFolders all(real_disk(), folders);
    NamedTensors last;
    for (const CheckpointId& id : all.all())
      if (id.step == kSteps) last = all.read(id);
    return last;
  }

 private:
  const std::uint64_t schedule_;
  bool is_over_ = false;  // nodes are about to go: nothing happens any more
  Folder place_;
  std::map<std::string, FaultyDisk> disks_;

 public:
  std::vector<std::string> lines;
  Nodes nodes;
  std::int64_t recoveries = 0;

 private:
  TrainingOptions options() {
    return {.replicas = kTrainingReplicas,
            .name = "demo",
            .every = 3,
            .log = [this](const std::string& line) { lines.push_back(without_place(line)); }};
  }
  // Equal seeds give equal lines: the folder is another one each time.
  std::string without_place(std::string line) const {
    for (std::size_t at; (at = line.find(place_.path())) != std::string::npos;)
      line.erase(at, place_.path().size());
    return line;
  }
  int index_of(const std::string& name) {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].name() == name) return static_cast<int>(i);
    return -1;
  }
  ClusterNode& node(const std::string& name) {
    return nodes[static_cast<std::size_t>(index_of(name))];
  }
  void end_node(const std::string& name) {
    nodes.network().kill(name);
    nodes.remove(static_cast<std::size_t>(index_of(name)));
  }
  void start_node(const std::string& name) {
    std::vector<std::string> join;
    for (const char* other : {"a", "b", "c", "d"})
      if (other != name) join.push_back(std::string("sim://") + other);
    if (index_of(name) < 0) nodes.add(name, seeded(schedule_), {}, join);
  }
  void later(Time after, std::function<void()> what) {
    nodes.network().at(nodes.network().now() + after, [this, what = std::move(what)] {
      if (!is_over_) what();
    });
  }
  void begin_fault(const Fault& f) {
    using Kind = Fault::Kind;
    const bool is_there = index_of(f.on) >= 0;
    switch (f.kind) {
      case Kind::kill:
        if (!is_there || f.on == driver_) return;
        end_node(f.on);
        return later(f.length, [this, f] { start_node(f.on); });
      case Kind::partition:
        nodes.network().partition({f.on});
        return later(f.length, [this] { nodes.network().heal(); });
      case Kind::cut:
        if (f.on == f.other) return;
        nodes.network().cut(f.on, f.other);
        return later(f.length, [this] { nodes.network().heal(); });
      case Kind::connections:
        if (is_there) nodes.network().break_connections(f.on);
        return;
      case Kind::slow:
        if (f.on != f.other) nodes.network().slow_down(f.on, f.other, f.length / 100, 1);
        return;
      case Kind::torn:
      case Kind::full: {
        FaultyDisk& disk = disks_[f.on];
        (f.kind == Kind::torn ? disk.torn_after : disk.room) = f.number;
        return later(f.length, [&disk] {
          disk.torn_after = -1;
          disk.room = INT64_MAX;
        });
      }
      case Kind::driver: return;
    }
  }
  void replace_driver() {
    const std::string killed = driver_;
    end_node(killed);
    later(1s, [this, killed] { start_node(killed); });
    nodes.until(30s, [&] { return nodes.size() > 0; });  // all may be down
    for (const char* other : {"d", "b", "c", "a"})
      if (index_of(other) >= 0) driver_ = other;
  }
  void wait_for_all() {
    nodes.until(60s, [&] { return nodes.size() == 4 && nodes.agree(); });
  }

  std::string driver_ = "a";
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
    world.train({});
    check_same_weights(world.newest(), wanted());
    return world.nodes.network().now() - begin;
  }();
  return span;
}

struct Outcome {
  std::optional<std::string> failure;
  std::vector<std::string> lines;
  std::int64_t recoveries = 0;
};

Outcome outcome(std::uint64_t seed, const Faults& faults) {
  Outcome o;
  World world(seed);
  try {
    world.train(faults);
    const NamedTensors got = world.newest();
    if (got.size() != wanted().size()) o.failure = fmt::format("{} values", got.size());
    for (const auto& [name, value] : got)
      if (!identical(value, wanted().at(name))) o.failure = name + " differs";
  } catch (const std::exception& e) { o.failure = e.what(); }
  o.lines = std::move(world.lines);
  o.recoveries = world.recoveries;
  return o;
}

// Leaves out each fault without which it still fails.
Faults shrunk(std::uint64_t seed, Faults faults) {
  for (std::size_t i = 0; i < faults.size();) {
    Faults fewer = faults;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (outcome(seed, fewer).failure) faults = std::move(fewer);
    else ++i;
  }
  return faults;
}

}  // namespace

BOOST_AUTO_TEST_CASE(several_faults_change_no_bit, *boost::unit_test::label("one_thread")) {
  const auto [first, count] = seeds(500, 10);
  std::int64_t recoveries = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Faults faults = drawn(seed, span_of_training());
    const Outcome o = outcome(seed, faults);
    recoveries += o.recoveries;
    if (!o.failure) continue;
    const Faults needed = shrunk(seed, faults);
    const Outcome again = outcome(seed, needed);
    std::string text = fmt::format("seed {}: {}", seed, again.failure.value_or(*o.failure));
    for (const Fault& f : needed) text += "\n  " + f.text();
    for (const std::string& line : again.lines) text += "\n    " + line;
    BOOST_ERROR(text);
  }
  BOOST_TEST((count < 20 || recoveries > 0));
}

BOOST_AUTO_TEST_CASE(equal_seeds_give_equal_schedules, *boost::unit_test::label("one_thread")) {
  const Faults faults = drawn(3, span_of_training());
  BOOST_TEST(outcome(3, faults).lines == outcome(3, faults).lines,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
