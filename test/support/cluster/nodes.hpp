// Nodes of one process, for tests.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <boost/test/unit_test.hpp>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/sim/in_process.hpp>
#include <troupe/cluster/transport/sim/simulated.hpp>
#include <troupe/troupe.hpp>

namespace troupe::test {

/// The medium between nodes: handles passed on, or a network with delays that the seed decides.
enum class Between { handles, simulation };

/// Without threads: the seed decides which node steps next.
inline EngineOptions stepped(std::uint64_t seed = 0) {
  EngineOptions o;
  o.deterministic = true;
  o.seed = seed;
  return o;
}
/// Like `stepped`, with a partition for each device.
inline EngineOptions stepped_partitions(std::uint64_t seed) {
  EngineOptions o = stepped(seed);
  o.granularity = Granularity::partition;
  return o;
}

/// No partition is further ahead of another than a loop's `parallel_iterations`, however little is
/// sent.
inline EngineOptions keeping_pace(EngineOptions o) {
  o.edges.ahead = 0;
  return o;
}

/// A loop of the device at hand whose body is b's: each iteration goes there and back.
inline Expr counted_on_b(Graph& g, int times) {
  return while_loop([=](Expr i) { return i < times; },
                    [&](Expr i) {
                      auto there = g.on_device("/node:b/cpu:0");
                      return i + 1;
                    },
                    g.constant(0));
}

/// Nodes a, b, c … that are connected with each other. A test's program runs on the first. Nodes of
/// a deterministic engine have no threads: the seed decides whether one of them or the network
/// steps next.
class Nodes {
 public:
  /// Wraps a node's transport, given the node's name.
  using Wrap =
      std::function<std::unique_ptr<Transport>(const std::string&, std::unique_ptr<Transport>)>;

  /// The folder and the disk for checkpoints of a node.
  struct State {
    std::string folder;
    Disk* disk = nullptr;
  };
  using StateOf = std::function<State(const std::string& node)>;

  explicit Nodes(int count, const EngineOptions& engine = {}, Between between = Between::handles,
                 const SimulationOptions& network = {}, Wrap wrap = {}, EarlyLimits early = {},
                 std::string with_container = {}, StateOf with_state = {})
      : container(std::move(with_container)), state(std::move(with_state)), random_(engine.seed),
        wrap_(std::move(wrap)), early_(early) {
    if (between == Between::simulation) {
      simulated_ = std::make_unique<SimulatedNetwork>(engine.seed, network);
    } else {
      in_process_ = std::make_unique<InProcessNetwork>(engine.deterministic
                                                           ? InProcessNetwork::Delivery::stepped
                                                           : InProcessNetwork::Delivery::threads);
    }
    for (int i = 0; i < count; ++i) add(name_of(i), engine);
    for (auto& node : nodes_) node->wait_for(names_, std::chrono::seconds(60));
  }

  std::string container;                // container of nodes that are added from now on
  StateOf state;                        // theirs; empty: they keep no checkpoints
  std::function<std::int64_t()> clock;  // theirs, too

  static std::string name_of(int i) { return std::string(1, static_cast<char>('a' + i)); }

  /// Unconstrained ops are scattered over all nodes.
  static EngineOptions scattered(int count, EngineOptions engine = {}) {
    for (int i = 0; i < count; ++i) engine.scatter.push_back("/node:" + name_of(i) + "/cpu:0");
    return engine;
  }

  ClusterNode& add(const std::string& name, const EngineOptions& engine = {},
                   const std::string& labels = {}) {
    return add(name, engine, labels,
               nodes_.empty() ? std::vector<std::string>() : std::vector{nodes_[0]->address()});
  }
  ClusterNode& add(const std::string& name, const EngineOptions& engine, const std::string& labels,
                   std::vector<std::string> join) {
    NodeOptions o;
    o.name = name;
    o.engine = engine;
    o.incarnation = ++incarnations_;
    o.transport = [this](PeerInfo self) {
      self.address = (simulated_ ? "sim://" : "inproc://") + self.name;
      auto made = simulated_ ? simulated_->make_transport(self) : in_process_->make_transport(self);
      return wrap_ ? wrap_(self.name, std::move(made)) : std::move(made);
    };
    o.early = early_;
    o.log = [this](const std::string& line) {
      std::lock_guard lock(log_mutex_);
      log_.push_back(line);
    };
    o.labels = labels;
    o.container = container;
    o.clock = clock;
    if (state) {
      const State own = state(name);
      o.state = own.folder;
      o.disk = own.disk;
    }
    o.join = std::move(join);
    if (engine.deterministic) o.step = [this] { return step(); };
    names_.push_back(name);
    return *nodes_.emplace_back(std::make_unique<ClusterNode>(std::move(o)));
  }

  /// One step of a node or of the network; false if nothing is pending (a simulated network always
  /// has something). Without threads.
  bool step() {
    const std::size_t all = nodes_.size() + 1, first = random_() % all;
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t who = (first + i) % all;
      if (who < nodes_.size() ? nodes_[who]->engine().take_step()
          : simulated_        ? simulated_->step()
                              : in_process_->step())
        return true;
    }
    return false;
  }

  /// Until `done` or so much of the simulated network's time has passed; which of them.
  template <class Done>
  bool until(Time span, Done done) {
    const Time end = simulated_->now() + span;
    while (simulated_->now() < end && !done()) step();
    return done();
  }
  /// Can each work with exactly those that are there, and does it hold them for alive?
  bool agree() {
    for (auto& node : nodes_) {
      std::size_t alive = 0;
      for (const Member& m : node->members()) alive += m.state == MemberState::alive;
      if (alive != nodes_.size() || node->nodes().size() != nodes_.size()) return false;
    }
    return true;
  }

  Engine& engine() { return nodes_[0]->engine(); }
  SimulatedNetwork& network() { return *simulated_; }
  ClusterNode& operator[](std::size_t i) { return *nodes_[i]; }
  std::size_t size() const { return nodes_.size(); }
  /// The faults of peers that nodes have logged.
  std::vector<std::string> log() {
    std::lock_guard lock(log_mutex_);
    return log_;
  }
  /// The node leaves at once.
  void remove(std::size_t i) {
    std::unique_ptr<ClusterNode> leaving = std::move(nodes_[i]);
    nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(i));
    names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  /// Like `remove`, and waits until the first of the other nodes has noticed, so that a later wait
  /// for a node of that name waits for the next one.
  void remove_and_tell(std::size_t i) {
    remove(i);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (nodes_[0]->nodes().size() > nodes_.size() && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    BOOST_TEST(nodes_[0]->nodes().size() == nodes_.size());
  }

 private:
  std::unique_ptr<InProcessNetwork> in_process_;
  std::unique_ptr<SimulatedNetwork> simulated_;
  std::minstd_rand random_;
  const Wrap wrap_;
  const EarlyLimits early_;
  std::mutex log_mutex_;  // guards log_
  std::vector<std::string> log_;
  std::uint64_t incarnations_ = 0;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<ClusterNode>> nodes_;
};

}  // namespace troupe::test
