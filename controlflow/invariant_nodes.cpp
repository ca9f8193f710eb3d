#include <troupe/controlflow/invariant_nodes.hpp>

#include <algorithm>
#include <set>
#include <string_view>

#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {
namespace {

// These cost nothing, or a fused node reads their operand instead of their result.
const std::set<std::string_view> kFree{
    "Identity",     "StopGradient", "WithGradient", "Reshape",      "ReshapeLike",   "ReshapeTo",
    "ExpandDims",   "Squeeze",      "Fill",         "FillLike",     "BroadcastLike", "ShapeOf",
    "SizeOf",       "Range",        "Blank",        "MatchExtents", "ListLength",    "ListRead",
    "ListReadLike", "ListWrite",    "ListEmpty",    "ListExtents",  "EnsureShape",   "Require"};

// Ops whose kernels can fail by shapes alone, which inference has checked if they are known.
const std::set<std::string_view> kSafe{
    "MatMul",     "Conv",     "Sum",           "SumTo",    "Mean",         "Max",
    "Min",        "Product",  "Any",           "All",      "LogSumExp",    "Softmax",
    "LogSoftmax", "ArgMax",   "ArgMin",        "CumSum",   "CumProd",      "Reshape",
    "Transpose",  "Slice",    "Concat",        "Split",    "ExpandDims",   "Squeeze",
    "Fill",       "FillLike", "BroadcastLike", "Identity", "StopGradient", "WithGradient",
    "ShapeOf",    "SizeOf",   "LayerNorm",     "RmsNorm",  "Pad",          "Sort",
    "AvgPool",    "MaxPool",  "Blank"};

// These may have no result for integers.
const std::set<std::string_view> kPartial{"Div",       "FloorDiv",   "Mod", "Pow",
                                          "ShiftLeft", "ShiftRight", "Cast"};

bool is_environment_of(const ValueSpec& s) { return s.depth == ValueSpec::kAnyDepth; }
bool is_string(const ValueSpec& s) { return s.dtype == DType::string; }

bool has_known_elements(const ValueSpec& s) {
  return !s.is_list() && s.shape.is_known() && s.shape.elements() > 0;
}

std::int64_t bytes_of(const ValueSpec& s) {
  return s.shape.elements() * static_cast<std::int64_t>(size_of(s.dtype));
}

bool takes_long(const ScalarProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(), [](const ScalarInstruction& i) {
    return (i.op >= ScalarOp::exp && i.op <= ScalarOp::sigmoid) || i.op == ScalarOp::pow ||
           i.op == ScalarOp::atan2;
  });
}

}  // namespace

bool cannot_fail(const Graph& graph, const Node& node) {
  // An environment has the elements that its functions read, each written once.
  if (is_environment_of(node.outputs[0])) return !node.op->evaluate;
  if (node.op->name == "ListRead")
    return is_environment_of(graph.spec(node.inputs[0])) &&
           graph.node(node.inputs[1].node).op->name == "Constant";
  const auto is_known = [](const ValueSpec& s) { return has_known_elements(s) && !is_string(s); };
  if (!std::all_of(node.outputs.begin(), node.outputs.end(), is_known) ||
      !std::all_of(node.inputs.begin(), node.inputs.end(),
                   [&](Edge e) { return is_known(graph.spec(e)); }))
    return false;
  if (!node.op->pointwise) return kSafe.contains(node.op->name);
  return !kPartial.contains(node.op->name) || is_floating(node.outputs[0].dtype) ||
         is_complex(node.outputs[0].dtype);
}

bool has_draws(const Node& node) {
  if (node.op->random) return true;
  if (const FunctionDef* f = function_of(node)) return f->has_draws;
  const auto subs = subgraphs_of(node);
  return std::any_of(subs.begin(), subs.end(), [](const auto& s) {
    const auto& nodes = s->graph.nodes();
    return std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return has_draws(n); });
  });
}

bool is_movable(const Node& node) {
  if (!node.controls.empty() || node.outputs.empty()) return false;
  if (std::any_of(node.outputs.begin(), node.outputs.end(), [](const ValueSpec& s) {
        return (s.is_list() && !is_environment_of(s)) || is_string(s);
      }))
    return false;
  if (!node.op->evaluate) return node.op->is_pure();
  if (!effects_of(node).empty() || has_effect(node)) return false;
  if (const FunctionDef* f = function_of(node); f && !f->body) return false;
  return !has_draws(node);
}

InvariantNodes::InvariantNodes(const WhileView& loop, const SubGraph& sub)
    : loop_(loop), sub_(sub), g_(sub.graph), argument_(at(g_.size()), -1),
      invariant_(at(g_.size()), 0), may_fail_(at(g_.size()), 0), worth_it_(at(g_.size()), 0),
      waits_(at(g_.size()), 0), users_(at(g_.size())) {
  for (std::size_t k = 0; k < sub.inputs.size(); ++k)
    argument_[at(sub.inputs[k].node)] = static_cast<int>(k);
  for (std::int32_t id = 0; id < g_.size(); ++id) {
    for (Edge e : g_.node(id).inputs) users_[at(e.node)].push_back(id);
    for (std::int32_t c : g_.node(id).controls) waits_[at(c)] = 1;
  }
  find();
  choose();
}

void InvariantNodes::find() {
  for (std::int32_t id = 0; id < g_.size(); ++id) {
    const Node& node = g_.node(id);
    if (const int k = argument_[at(id)]; k >= 0) {
      // A variable that the body passes on unchanged keeps its initial value.
      const bool is_kept =
          k < loop_.explicit_variables && loop_.body.outputs[at(k)] == loop_.body.inputs[at(k)];
      invariant_[at(id)] = k >= loop_.variables || is_kept;
      continue;
    }
    if (node.op->name == "Constant") {
      invariant_[at(id)] = node.controls.empty();
      continue;
    }
    // A node that others wait for would leave them nothing to wait for.
    if (waits_[at(id)] || !is_movable(node) ||
        !std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](Edge e) { return invariant_[at(e.node)] != 0; }))
      continue;
    invariant_[at(id)] = 1;
    may_fail_[at(id)] =
        !cannot_fail(g_, node) || std::any_of(node.inputs.begin(), node.inputs.end(),
                                              [&](Edge e) { return may_fail_[at(e.node)] != 0; });
  }
}

void InvariantNodes::choose() {
  for (std::int32_t id = 0; id < g_.size(); ++id) {
    const Node& node = g_.node(id);
    if (!invariant_[at(id)] || argument_[at(id)] >= 0 || node.op->name == "Constant" ||
        kFree.contains(node.op->name) || node.inputs.empty())
      continue;
    // The predicate stays, so that the diagnosis of a loop that never ends names the compared
    // values.
    const bool is_predicate = &sub_ == &loop_.condition && sub_.outputs[0].node == id;
    // EdgeAsBf16 sets how a value is sent to another device, and has to stay with that edge.
    const bool is_of_edge = node.op->name == "EdgeAsBf16";
    worth_it_[at(id)] =
        !is_predicate && !is_of_edge && (!node.op->pointwise || is_worthy_pointwise(id));
  }
}

// A chain of pointwise nodes computes its invariant members in its registers: they stay, but for
// those that take long, and those that feed no chain. A node whose result is larger than its
// operands stays, too.
bool InvariantNodes::is_worthy_pointwise(std::int32_t id) const {
  const Node& node = g_.node(id);
  const auto is_known = [&](Edge e) { return has_known_elements(g_.spec(e)); };
  std::int64_t largest = 0;
  for (Edge e : node.inputs) {
    if (!is_known(e)) return false;
    if (g_.node(e.node).op->name != "Constant") largest = std::max(largest, bytes_of(g_.spec(e)));
  }
  if (!has_known_elements(node.outputs[0]) || bytes_of(node.outputs[0]) > largest) return false;
  return takes_long(*program_of(g_, node)) ||
         std::any_of(users_[at(id)].begin(), users_[at(id)].end(), [&](std::int32_t user) {
           const Node& n = g_.node(user);
           return !invariant_[at(user)] && !n.op->pointwise && !kFree.contains(n.op->name);
         });
}

void InvariantNodes::keep_failing() {
  for (std::size_t i = 0; i < worth_it_.size(); ++i) worth_it_[i] = worth_it_[i] && !may_fail_[i];
}

bool InvariantNodes::has_worthy() const {
  return std::find(worth_it_.begin(), worth_it_.end(), 1) != worth_it_.end();
}

bool InvariantNodes::has_failing() const {
  for (std::size_t i = 0; i < worth_it_.size(); ++i)
    if (worth_it_[i] && may_fail_[i]) return true;
  return false;
}

std::vector<std::int32_t> InvariantNodes::boundary(std::vector<char>& stays) const {
  stays.assign(at(g_.size()), 0);
  for (Edge e : sub_.outputs) stays[at(e.node)] = 1;
  std::vector<std::int32_t> found;
  for (std::int32_t id = g_.size() - 1; id >= 0; --id) {
    const Node& node = g_.node(id);
    if (!stays[at(id)] && !has_effect(node)) continue;
    if (worth_it_[at(id)]) {
      found.push_back(id);
      continue;
    }
    stays[at(id)] = 1;
    for (Edge e : node.inputs) stays[at(e.node)] = 1;
    for (std::int32_t c : node.controls) stays[at(c)] = 1;
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace troupe
