// PlanKernels: makes kernels, with their states, and constants. Only the node that has a partition
// needs them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <troupe/actors/plan/plan.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

/// Makes kernels of one program's nodes. Refers to the program.
class PlanKernels {
 public:
  PlanKernels(const Graph& program, StateStore& states)
      : program_(program), states_(states), state_of_(program.states().size()) {}
  /// Makes a kernel. Its errors name node and line.
  std::unique_ptr<Kernel> make(std::int32_t id, Device& device);
  /// As above, with another state than the one that the node names.
  std::unique_ptr<Kernel> make(std::int32_t id, Device& device, Ref<State> state);

 private:
  const Ref<State>& state(std::int32_t number);

  const Graph& program_;
  StateStore& states_;
  std::vector<Ref<State>> state_of_;  // by number
};

/// The rank of a node on a device with streams.
PlanNode::Rank rank_of(const Node& node);
/// Copies the value of a Constant to the device. Blocks until the copy is complete.
Tensor constant_on(Device& device, const Node& constant);

}  // namespace troupe
