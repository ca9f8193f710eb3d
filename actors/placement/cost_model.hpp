// CostModel: predicts the time of a node on a device and of a transfer between two devices, from
// shapes, or from measurements of the node if there are any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <troupe/actors/placement/cost_options.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

/// Measured nanoseconds by a node's origin and its device, which is named in full in a cluster.
using Measured = std::map<std::pair<std::uint64_t, std::string>, double>;

struct Size {
  double bytes = 0;
  // false: an unknown extent was guessed, or the value is a list, counted as one element
  bool is_known = true;
};

/// Operations and bytes of memory traffic of one firing.
struct Work {
  double flops = 0;
  double bytes = 0;
};

class CostModel {
 public:
  CostModel(CostOptions options, std::vector<std::string> devices, const Measured& measured = {});

  const std::vector<std::string>& devices() const { return devices_; }
  const CostOptions& options() const { return options_; }
  Size size_of(const ValueSpec& spec) const;
  Work work_of(const Graph& graph, std::int32_t id) const;
  /// Returns the time of one firing. It is measured on that device, or measured on another one and
  /// scaled by the ratio of their predictions, or predicted.
  double ns(const Graph& graph, std::int32_t id, std::size_t device) const;
  double transfer_ns(double bytes, std::size_t from, std::size_t to) const;
  bool is_measured(const Graph& graph, std::int32_t id, std::size_t device) const {
    return measured_ns(graph.node(id).origin, device) != nullptr;
  }
  std::uint64_t memory_of(std::size_t device) const { return of_device_[device].memory_bytes; }

 private:
  double predicted_ns(const Work& work, const DeviceCost& device) const;
  const double* measured_ns(std::uint64_t origin, std::size_t device) const;  // null: it was not

  const CostOptions options_;
  const std::vector<std::string> devices_;
  // by origin: devices, in order, and their times; read for each node on each device
  std::unordered_map<std::uint64_t, std::vector<std::pair<std::size_t, double>>> measured_;
  std::vector<DeviceCost> of_device_;
  std::vector<std::size_t> node_of_;  // by device: its node's number
  std::size_t nodes_ = 0;
  std::vector<LinkCost> links_;  // between nodes: from times to
};

/// True if the node passes its input on: it takes no time, and no memory of its own.
bool only_moves_tokens(const Node& node);

}  // namespace troupe
