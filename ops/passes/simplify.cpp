#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::detail {
namespace {

// True if the edge is a constant scalar of this value.
bool is_scalar(const Graph& g, Edge e, double value) {
  const Node& n = g.node(e.node);
  if (n.op->name != "Constant" || !n.controls.empty()) return false;
  const Tensor& t = n.attrs.get<Tensor>("value");
  return t.shape().is_scalar() && !is_complex(t.dtype()) && t.at(0) == value &&
         std::signbit(t.at(0)) == std::signbit(value);
}

// The input that `node` merely repeats, or none. Rules that could change a bit of the result (x + 0
// and x - -0 turn -0 into 0; x * 0 hides NaN) are left out. `keeps_like`: that another input is
// computed is no matter of its shape alone.
const Edge* repeats(const Graph& g, const Node& node, bool keeps_like) {
  const std::string& op = node.op->name;
  auto in = [&](int i) -> const Edge* { return &node.inputs[static_cast<std::size_t>(i)]; };
  if (op == "Identity" || op == "StopGradient" || op == "WithGradient") return in(0);
  if (op == "Mul" && is_scalar(g, *in(1), 1)) return in(0);
  if (op == "Mul" && is_scalar(g, *in(0), 1)) return in(1);
  if (op == "Div" && is_scalar(g, *in(1), 1)) return in(0);
  if (op == "Sub" && is_scalar(g, *in(1), 0)) return in(0);
  if (op == "Neg") {
    const Node& inner = g.node(in(0)->node);
    if (inner.op->name == "Neg") return &inner.inputs[0];
  }
  if (op == "SumTo" || op == "BroadcastLike" || op == "ReshapeLike" || op == "Reshape") {
    const Shape &from = g.spec(*in(0)).shape, &to = node.outputs[0].shape;
    if (from.is_known() && from == to && !keeps_like) return in(0);
  }
  return nullptr;
}

// A value repeated to a shape for nodes that broadcast anyway: each has another operand of that
// shape.
class Repetitions {
 public:
  explicit Repetitions(const Program& program)
      : g_(program.graph), is_needed_(static_cast<std::size_t>(g_.size()), 0) {
    for (Edge e : program.fetches) is_needed_[static_cast<std::size_t>(e.node)] = 1;
    for (const Node& n : g_.nodes()) {
      for (std::int32_t c : n.controls) is_needed_[static_cast<std::size_t>(c)] = 1;
      for (Edge e : n.inputs)
        if (!broadcasts(n, g_.spec(e).shape)) is_needed_[static_cast<std::size_t>(e.node)] = 1;
    }
  }
  bool is_needless(std::int32_t id) const {
    const Node& n = g_.node(id);
    return n.op->name == "BroadcastLike" && n.controls.empty() && n.outputs[0].shape.is_known() &&
           !is_needed_[static_cast<std::size_t>(id)];
  }

 private:
  // With an operand that certainly has the shape; a repeated one may go itself.
  bool broadcasts(const Node& n, const Shape& shape) const {
    if (!n.op->pointwise) return false;
    for (Edge e : n.inputs)
      if (g_.node(e.node).op->name != "BroadcastLike" && g_.spec(e).shape == shape) return true;
    return false;
  }
  const Graph& g_;
  std::vector<char> is_needed_;
};

// Marks nodes with effects or possibly dead outputs, and all nodes that depend on them. A node that
// loses such an input still runs after it.
std::vector<char> consequences(const Graph& g) {
  static const std::set<std::string> primitives{"Switch", "Merge",         "Enter",
                                                "Exit",   "NextIteration", "LoopCond"};
  std::vector<char> is_one(static_cast<std::size_t>(g.size()), 0);
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    const auto is_of_one = [&](std::int32_t of) {
      return is_one[static_cast<std::size_t>(of)] != 0;
    };
    const bool does = n.op->effect != Effect::none && n.op->effect != Effect::read;
    is_one[static_cast<std::size_t>(id)] =
        does || primitives.contains(n.op->name) || !subgraphs_of(n).empty() || function_of(n) ||
        std::any_of(n.controls.begin(), n.controls.end(), is_of_one) ||
        std::any_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) { return is_of_one(e.node); });
  }
  return is_one;
}

// Replaces ReshapeLike by Reshape if the shape is known, so that the value with that shape need not
// be kept.
void forget_like(Node& node, bool goes_after) {
  if (node.op->name != "ReshapeLike" || !node.outputs[0].shape.is_known()) return;
  node.op = &find_op("Reshape");
  if (goes_after) node.controls.push_back(node.inputs[1].node);
  node.attrs = Attrs{{"shape", node.outputs[0].shape}};
  node.inputs.resize(1);
}

}  // namespace

Program simplify(Program program) {
  Rewriter rewriter(program);
  const Repetitions repetitions(program);
  const std::vector<char> is_consequence = consequences(program.graph);
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    const Node& was = program.graph.node(id);
    const bool keeps_like =
        was.inputs.size() == 2 && is_consequence[static_cast<std::size_t>(was.inputs[1].node)];
    const bool is_needless = !keeps_like && repetitions.is_needless(id);
    const Edge* source = is_needless             ? &node.inputs[0]
                         : node.controls.empty() ? repeats(rewriter.graph(), node, keeps_like)
                                                 : nullptr;
    const bool same_place = source && (node.device.empty() ||
                                       rewriter.graph().node(source->node).device == node.device);
    if (same_place) {
      rewriter.alias(id, {*source}, source->node);
    } else {
      forget_like(node, keeps_like);
      rewriter.replace(id, std::move(node));
    }
  }
  return rewriter.finish();
}

}  // namespace troupe::detail
