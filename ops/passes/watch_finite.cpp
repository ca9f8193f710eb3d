#include <troupe/ops/passes/watch_finite.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <troupe/devices/tensor/finite.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/made_by.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {
namespace {

bool holds_floats(const ValueSpec& s) {
  return !s.is_list() && (is_floating(s.dtype) || is_complex(s.dtype));
}

// Nodes that only pass values on, or make values that the user has written, are not checked.
const std::set<std::string_view> kNeverFirst{
    "Constant",      "Input",          "Fill",          "FillLike",    "Blank",
    "Identity",      "Reshape",        "ReshapeLike",   "ReshapeTo",   "Transpose",
    "Slice",         "SliceLike",      "Split",         "SplitLike",   "Concat",
    "ExpandDims",    "Squeeze",        "BroadcastLike", "Gather",      "GatherNd",
    "TakeAlong",     "ListRead",       "ListReadLike",  "ListStack",   "ListStackLike",
    "ListConcat",    "ListConcatLike", "ListPop",       "ListGather",  "ListGatherLike",
    "ListTake",      "StopGradient",   "WithGradient",  "EnsureShape", "Require",
    "MatchExtents",  "Switch",         "Merge",         "Enter",       "Exit",
    "NextIteration", "LoopCond",       "Argument",      "Return",      "Call",
    "Elsewhere",     "Name",           "Sort",          "MeshTake",    "MeshExport",
    "MeshShift",     "MeshAllGather",  "MeshAllToAll",  "MeshSlice"};

// These make finite results of finite operands.
const std::set<std::string_view> kKeepsFinite{"Neg",   "Abs",     "Sign",    "Relu",    "Relu6",
                                              "Tanh",  "Sigmoid", "Maximum", "Minimum", "Clip",
                                              "Where", "Sin",     "Cos",     "Max",     "Min"};

bool has_number_beyond(const ScalarProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(), [](const ScalarInstruction& i) {
    return i.op == ScalarOp::constant && !std::isfinite(i.constant);
  });
}

// Finds values that may be not finite by the user's intention: those computed from constants that
// are not finite.
class ByWish {
 public:
  explicit ByWish(const Graph& g) : g_(g), is_so_(at(g.size()), 0) {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::int32_t id = 0; id < g.size(); ++id) changed |= look(id);
    }
  }
  bool of_operand(const Node& n) const {
    return std::any_of(n.inputs.begin(), n.inputs.end(),
                       [&](Edge e) { return is_so_[at(e.node)] != 0; });
  }
  /// The node's own constants make such values.
  bool of_itself(const Node& n) const {
    if (n.op->name == "Constant") return !is_all_finite(n.attrs.get<Tensor>("value"));
    if (n.attrs.has("program")) return has_number_beyond(program_of(n.attrs));
    for (const auto& [name, value] : n.attrs.entries())
      if (const auto* number = std::get_if<double>(&value); number && !std::isfinite(*number))
        return true;
    return false;
  }

 private:
  static std::int64_t key_of(const Node& n) { return n.attrs.get<std::int64_t>("key"); }
  bool set(std::int32_t id) { return std::exchange(is_so_[at(id)], 1) == 0; }

  bool look(std::int32_t id) {
    const Node& n = g_.node(id);
    const FunctionDef* const function = function_of(n);
    if (!is_so_[at(id)]) {
      const bool holds = std::any_of(n.outputs.begin(), n.outputs.end(), [](const ValueSpec& s) {
        return s.is_list() || holds_floats(s);
      });
      const bool is_so = (holds && (of_itself(n) || of_operand(n))) ||
                         (n.op->name == "MeshTake" && given_.contains(key_of(n))) ||
                         (n.op->name == "Argument" && called_with_.contains(function)) ||
                         (n.op->name == "Call" && returned_.contains(function));
      if (is_so) set(id);
    }
    bool changed = false;
    if (n.op->name == "MeshGive" && of_operand(n)) changed |= given_.insert(key_of(n)).second;
    if (n.op->name == "Call" && of_operand(n)) changed |= called_with_.insert(function).second;
    if (n.op->name == "Return" && of_operand(n)) changed |= returned_.insert(function).second;
    // the loop's Merge has a smaller id than the NextIteration that feeds it
    if (n.op->name == "NextIteration" && is_so_[at(n.inputs[0].node)])
      changed |= set(n.inputs[1].node);
    changed |= is_so_[at(id)] && known_.insert(id).second;
    return changed;
  }

  const Graph& g_;
  std::vector<char> is_so_;
  std::set<std::int32_t> known_;
  std::set<const FunctionDef*> called_with_, returned_;
  std::set<std::int64_t> given_;  // keys of values that cross instances
};

}  // namespace

Program name_parts(Program program) {
  Rewriter rewriter(program);
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    std::string text;
    if (node.op->pointwise && node.outputs.size() == 1)
      add_part(text, program_of(program.graph, node)->results[0], program.graph.describe(id));
    else if (!node.op->evaluate &&
             std::any_of(node.outputs.begin(), node.outputs.end(), holds_floats))
      add_part(text, -1, program.graph.describe(id));
    if (node.op->name != "Constant" && node.op->name != "Input")
      set_parts(node.attrs, std::move(text));
    rewriter.replace(id, std::move(node));
  }
  return rewriter.finish();
}

Program watch_finite(Program program) {
  const ByWish wish(program.graph);
  Rewriter rewriter(program);
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    const bool has_wish = wish.of_operand(program.graph.node(id)), makes = wish.of_itself(node);
    if (std::any_of(node.outputs.begin(), node.outputs.end(), holds_floats) &&
        !kNeverFirst.contains(node.op->name) &&
        (has_wish || makes || !kKeepsFinite.contains(node.op->name))) {
      std::string how = makes ? "!" : has_wish ? "?" : "=";
      if (node.op->name == "ReadVariable")
        how += fmt::format("variable '{}'", program.graph.states()[at(node.state)].name);
      node.attrs.set(kWatched, how);
    }
    if (!node.attrs.has(kWatched) && node.attrs.has(kMadeBy))
      node.attrs.set(kMadeBy, std::string());
    rewriter.replace(id, std::move(node));
  }
  return rewriter.finish();
}

}  // namespace troupe
