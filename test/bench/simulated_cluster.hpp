// Nodes of one process on a simulated network, for benchmarks that count messages.
//
//   SimulatedCluster nodes(64);                       // n0 .. n63, connected with each other
//   RunHandle h = nodes.engine().compile(...).start(...);
//   while (!h.is_done() && nodes.step()) {}
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/transport/sim/simulated.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::bench {

/// Nodes without threads on a simulated network. Time passes only when no node has anything to do.
class SimulatedCluster {
 public:
  explicit SimulatedCluster(int count) {
    for (int i = 0; i < count; ++i) {
      NodeOptions o{.name = "n" + std::to_string(i), .transport = [this](PeerInfo self) {
                      return (self.address = "sim://" + self.name, network_.make_transport(self));
                    }};
      o.engine.deterministic = true;
      o.incarnation = static_cast<std::uint64_t>(i) + 1;
      o.step = [this] { return step(); };
      if (i > 0) o.join = {nodes_[0]->address()};
      names_.push_back(o.name);
      nodes_.push_back(std::make_unique<ClusterNode>(std::move(o)));
    }
    // Nothing is timed yet: whether a node has something to do is asked after many events.
    constexpr int kEvents = 64;
    const auto all = static_cast<std::size_t>(count);
    for (Time looked{};
         looked == Time() || !std::all_of(nodes_.begin(), nodes_.end(),
                                          [&](const auto& n) { return n->nodes().size() == all; });)
      for (looked = network_.now() + std::chrono::milliseconds(50); network_.now() < looked;) {
        for (int i = 0; i < kEvents; ++i) network_.step();
        for (auto& n : nodes_)
          while (n->engine().take_step()) {}
      }
  }
  bool step() {
    // The last that had something to do first: it mostly has more.
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const std::size_t who = (last_ + i) % nodes_.size();
      if (nodes_[who]->engine().take_step()) return last_ = who, true;
    }
    return network_.step();
  }
  double messages() const {
    std::uint64_t sum = 0;
    for (const auto& n : nodes_) sum += n->counters().messages_out;
    return static_cast<double>(sum);
  }
  double now_ms() const {
    return std::chrono::duration<double, std::milli>(network_.now()).count();
  }
  Engine& engine() { return nodes_[0]->engine(); }
  const std::vector<std::string>& names() const { return names_; }

 private:
  SimulatedNetwork network_{1};
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<ClusterNode>> nodes_;
  std::size_t last_ = 0;
};

}  // namespace troupe::bench
