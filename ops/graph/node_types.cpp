#include <troupe/ops/graph/node_types.hpp>

namespace troupe::detail {
namespace {

std::vector<ValueSpec> input_specs(const Graph& graph, const Node& node) {
  std::vector<ValueSpec> specs;
  specs.reserve(node.inputs.size());
  for (Edge e : node.inputs) specs.push_back(graph.spec(e));
  return specs;
}

}  // namespace

NodeTypes::NodeTypes(const Graph& graph, const Node& node)
    : NodeTypes(input_specs(graph, node), node.outputs) {}

NodeTypes::NodeTypes(std::span<const ValueSpec> inputs, std::span<const ValueSpec> outputs) {
  in_types_.reserve(inputs.size()), in_shapes_.reserve(inputs.size());
  out_types_.reserve(outputs.size()), out_shapes_.reserve(outputs.size());
  for (const ValueSpec& s : inputs) {
    in_types_.push_back(s.dtype);
    in_shapes_.push_back(s.shape);
  }
  for (const ValueSpec& s : outputs) {
    out_types_.push_back(s.dtype);
    out_shapes_.push_back(s.shape);
  }
}

}  // namespace troupe::detail
