// One firing, to its end, on the calling thread: what eager execution and the interpreter share.
#pragma once

#include <span>
#include <vector>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

/// What is known of a node when its kernel is made.
class NodeTypes {
 public:
  NodeTypes(const Graph& graph, const Node& node);
  /// Refers to this and to the node.
  KernelSetup setup(const Node& node, Device& device, Ref<State> state) const {
    return {node.op->name, node.attrs, in_types_,   in_shapes_,      out_types_,
            out_shapes_,   device,     node.origin, std::move(state)};
  }

 private:
  std::vector<DType> in_types_, out_types_;
  std::vector<Shape> in_shapes_, out_shapes_;
};

/// The state that a node works on, and what it is called; or none.
struct StateInUse {
  const StateSpec* spec = nullptr;
  Ref<State> state = {};
};

/// The kernel's outputs, with the work on `stream` possibly still under way. Waits, blocking, for a
/// kernel that took its Completion; but not for one that waits at a queue: nothing else runs that
/// could end that, so it throws failed_precondition. Throws what the kernel threw or failed with.
std::vector<Value> fire(Kernel& kernel, std::span<Value> inputs, std::size_t outputs,
                        Device& device, Stream& stream, const RunInfo& run, const StateInUse& use,
                        std::uint64_t tag = 0);

}  // namespace troupe
