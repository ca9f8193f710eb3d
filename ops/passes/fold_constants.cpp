#include <troupe/ops/graph/program.hpp>

#include <algorithm>

#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/comparison_ops.hpp>

namespace troupe::detail {
namespace {

constexpr std::int64_t kMaxElements = 1 << 20;  // larger results are cheaper computed than kept

bool is_constant(const Node& n) { return n.op->name == "Constant"; }

// A constant with control edges is not folded away: its users must start after these nodes, too.
bool is_foldable(const Graph& graph, const Node& node) {
  const bool computes = node.op->kernel || node.op->evaluate;
  if (!node.op->is_pure() || !computes || is_constant(node) || node.op->name == "WithGradient" ||
      !node.controls.empty())
    return false;
  if (node.inputs.empty() && node.op->name != "Fill") return false;
  for (const ValueSpec& s : node.outputs)
    if (s.shape.elements() > kMaxElements) return false;
  for (Edge e : node.inputs)
    if (!is_constant(graph.node(e.node)) || !graph.node(e.node).controls.empty()) return false;
  // A comparison with NaN stays: a loop that it ends has to fail
  // (controlflow/check_nan_predicates.hpp).
  return !is_ordering(*node.op) ||
         std::none_of(node.inputs.begin(), node.inputs.end(), [&](Edge e) {
           return has_nan(graph.node(e.node).attrs.get<Tensor>("value"));
         });
}

}  // namespace

Program fold_constants(Program program) {
  Rewriter rewriter(program);
  std::unique_ptr<Eager> eager;
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    if (!is_foldable(rewriter.graph(), node)) {
      rewriter.replace(id, std::move(node));
      continue;
    }
    if (!eager) eager = std::make_unique<Eager>();
    std::vector<Expr> inputs;
    for (Edge e : node.inputs)
      inputs.push_back(eager->adopt(
          Expr(nullptr, rewriter.graph().node(e.node).attrs.get<Tensor>("value")), node.site));
    std::vector<Edge> folded;
    try {
      for (const Expr& value : eager->bind(*node.op, inputs, node.attrs, node.site)) {
        Node constant;
        constant.op = &find_op("Constant");
        constant.attrs = Attrs{{"value", value.value()}};
        constant.outputs = {{value.dtype(), value.shape()}};
        constant.name = node.name;
        constant.scope = node.scope;
        constant.device = node.device;
        constant.site = node.site;
        constant.origin = node.origin;
        folded.push_back(Edge{rewriter.graph().append(std::move(constant)), 0});
      }
    } catch (const Error&) {
      rewriter.replace(id, std::move(node));  // it fails when it runs, as it would have
      continue;
    }
    rewriter.alias(id, folded, -1);
  }
  return rewriter.finish();
}

}  // namespace troupe::detail
