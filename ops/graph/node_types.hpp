// The dtypes and shapes that a kernel is made for, in the form that `KernelSetup` refers to.
//
//   NodeTypes types(graph, node);
//   std::unique_ptr<Kernel> kernel = make_node_kernel(*node.op, types.setup(node, device, state));
#pragma once

#include <span>
#include <vector>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::detail {

class NodeTypes {
 public:
  /// Takes the specs that inference found for the node; extents may be unknown.
  NodeTypes(const Graph& graph, const Node& node);
  NodeTypes(std::span<const ValueSpec> inputs, std::span<const ValueSpec> outputs);

  std::size_t outputs() const { return out_types_.size(); }
  /// The setup refers to this object, to `op` and to `attrs`.
  KernelSetup setup(const OpDef& op, const Attrs& attrs, Device& device, std::uint64_t origin,
                    Ref<State> state) const {
    return {op.name,     attrs,  in_types_, in_shapes_,      out_types_,
            out_shapes_, device, origin,    std::move(state)};
  }
  KernelSetup setup(const Node& node, Device& device, Ref<State> state) const {
    return setup(*node.op, node.attrs, device, node.origin, std::move(state));
  }

 private:
  std::vector<DType> in_types_, out_types_;
  std::vector<Shape> in_shapes_, out_shapes_;
};

}  // namespace troupe::detail
