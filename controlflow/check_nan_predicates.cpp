#include <troupe/controlflow/check_nan_predicates.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/comparison_ops.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

// Ops beside pointwise ones that take no longer than reading their inputs and writing their
// outputs.
const std::set<std::string_view> kLinear{
    "Sum",           "Mean",    "Max",         "Min",          "Product",    "Any",
    "All",           "Reshape", "ReshapeLike", "Squeeze",      "ExpandDims", "Transpose",
    "Slice",         "Split",   "Concat",      "Gather",       "Fill",       "FillLike",
    "BroadcastLike", "ShapeOf", "Identity",    "StopGradient", "EdgeAsBf16", "ReshapeTo"};

class Watch {
 public:
  Watch(const SubGraph& condition, int variables, const std::vector<std::int64_t>& numbers)
      : from_(condition), g_(condition.graph), variables_(variables), numbers_(numbers),
        check_(condition.graph.blank()) {
    std::vector<char> is_argument(at(g_.size()), 0);
    for (Edge e : from_.inputs) is_argument[at(e.node)] = 1;
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      const bool goes = goes_through(n);
      depends_.push_back(is_comparison(n) ||
                         (goes && std::any_of(n.inputs.begin(), n.inputs.end(),
                                              [&](Edge e) { return depends(e); })));
      const bool is_given = n.op->name == "Constant" || is_argument[at(id)] != 0;
      anew_.push_back(is_given ? 0
                      : goes && (n.op->pointwise || kLinear.contains(n.op->name))
                          ? bytes_for(n.inputs)
                          : kNever);
    }
  }

  std::optional<Comparisons> run() {
    const Edge predicate = from_.outputs[0];
    if (!depends(predicate)) return {};
    for (Edge e : from_.inputs) {
      inputs_.push_back(argument(e));
      copies_[e] = inputs_.back();
    }
    copy_for(predicate);
    if (compared_.empty()) return {};  // numbers alone
    auto condition = std::make_shared<SubGraph>(Graph(g_));
    condition->inputs = from_.inputs;
    condition->outputs = from_.outputs;
    condition->outputs.insert(condition->outputs.end(), carried_.begin(), carried_.end());
    std::vector<Edge> outputs{copies_.at(predicate)};
    std::string what;
    for (const auto& [edge, text] : compared_) {
      outputs.push_back(told_of(edge));
      what += (what.empty() ? "" : "\n") + text;
    }
    auto check = std::make_shared<SubGraph>(std::move(check_));
    check->inputs = std::move(inputs_);
    check->outputs = std::move(outputs);
    return Comparisons{std::move(condition), std::move(check), std::move(what)};
  }

 private:
  bool is_comparison(const Node& n) const {
    return is_ordering(*n.op) && is_floating(g_.spec(n.inputs[0]).dtype);
  }
  // True if the node is computed again from a comparison's other outcome. Functional nodes, reads
  // of a state and primitives are not pure, so their earlier results are used. Lists are not copied
  // for it.
  bool goes_through(const Node& n) const {
    return n.op->is_pure() &&
           std::none_of(n.outputs.begin(), n.outputs.end(),
                        [](const ValueSpec& s) { return s.is_list(); }) &&
           std::none_of(n.inputs.begin(), n.inputs.end(),
                        [&](Edge e) { return g_.spec(e).is_list(); });
  }
  bool depends(Edge e) const { return depends_[at(e.node)] != 0; }

  // ---- recomputation. The check runs once an execution. A value that the condition computes in
  // time linear in its inputs may be computed again. Any other value leaves the loop, or its
  // operands do, if they are smaller.

  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double bytes_of(Edge e) const {
    const ValueSpec& s = g_.spec(e);
    return s.is_list() || !s.shape.is_known()
               ? kNever
               : static_cast<double>(s.shape.elements()) * static_cast<double>(size_of(s.dtype));
  }
  bool is_anew(Edge e) const {
    const double bytes = bytes_of(e), from = anew_[at(e.node)];
    return depends(e) || from == 0 || (from <= bytes && bytes < kNever);
  }
  double bytes_for(const std::vector<Edge>& inputs) const {
    double bytes = 0;
    for (auto e = inputs.begin(); e != inputs.end(); ++e)
      if (std::find(inputs.begin(), e, *e) == e)
        bytes += is_anew(*e) ? anew_[at(e->node)] : bytes_of(*e);
    return bytes;
  }

  // Makes copies of all that `predicate` needs. Conditions are as large as users write them: no
  // recursion.
  void copy_for(Edge predicate) {
    std::vector<char> is_wanted(at(g_.size()), 0);
    std::set<Edge> carried;
    is_wanted[at(predicate.node)] = 1;
    for (std::int32_t id = predicate.node; id >= 0; --id) {
      if (!is_wanted[at(id)]) continue;
      for (Edge in : g_.node(id).inputs) {
        if (copies_.contains(in)) continue;
        if (is_anew(in)) is_wanted[at(in.node)] = 1;
        else carried.insert(in);
      }
    }
    auto next = carried.begin();
    for (std::int32_t id = 0; id <= predicate.node; ++id) {
      if (is_wanted[at(id)]) copy(id);
      for (; next != carried.end() && next->node == id; ++next)
        if (!is_wanted[at(id)]) carry(*next);
    }
  }

  void carry(Edge e) {
    carried_.push_back(e);
    inputs_.push_back(argument(e));
    copies_[e] = inputs_.back();
  }

  void copy(std::int32_t id) {
    const Node& n = g_.node(id);
    if (n.op->name == "Identity" && n.controls.empty()) {
      copies_[{id, 0}] = copies_.at(n.inputs[0]);
      return;
    }
    Node made = n;
    made.controls.clear();
    for (Edge& in : made.inputs) in = copies_.at(in);
    if (is_comparison(n)) {
      for (std::size_t i = 0; i < n.inputs.size(); ++i) compare(id, n.inputs[i], made.inputs[i]);
      made.op = &negated_comparison(*n.op);
      copies_[{id, 0}] = bound("LogicalNot", {check_.append(std::move(made)), 0}, n);
      return;
    }
    const std::int32_t copied = check_.append(std::move(made));
    for (std::size_t o = 0; o < n.outputs.size(); ++o)
      copies_[{id, static_cast<std::int32_t>(o)}] = {copied, static_cast<std::int32_t>(o)};
  }

  // ---- nodes of the check

  // Returns a node with scope, device, site and origin of `n`, which it replaces.
  static Node like(const Node& n) {
    Node made;
    made.scope = n.scope;
    made.device = n.device;
    made.site = n.site;
    made.origin = n.origin;
    return made;
  }

  Edge argument(Edge of) {
    Node n = like(g_.node(of.node));
    n.op = &find_op("Input");
    n.outputs = {g_.spec(of)};
    n.attrs = Attrs{{"dtype", n.outputs[0].dtype}, {"shape", n.outputs[0].shape}};
    return {check_.append(std::move(n)), 0};
  }

  // ---- compared values

  void compare(std::int32_t comparison, Edge operand, Edge copy) {
    const Node& n = g_.node(operand.node);
    if (n.op->name == "Constant" && !has_nan(n.attrs.get<Tensor>("value"))) return;
    compared_.emplace_back(copy,
                           fmt::format("{} compares {}", g_.describe(comparison), text(operand)));
  }

  std::string text(Edge e) const {
    // A node that only repeats a value, perhaps in another dtype (mixed precision), is named by
    // that value.
    while (g_.node(e.node).op->name == "Cast" || g_.node(e.node).op->name == "Identity")
      e = g_.node(e.node).inputs[0];
    if (g_.node(e.node).op->name == "Constant") return "a constant";
    for (std::size_t k = 0; k < from_.inputs.size(); ++k)
      if (from_.inputs[k] == e)
        return k < at(variables_) ? fmt::format("variable {}", number_of(k))
                                  : "a value from outside of the loop";
    std::set<std::int64_t> variables;
    std::vector<Edge> open{e};
    std::set<Edge> seen;
    while (!open.empty()) {
      const Edge next = open.back();
      open.pop_back();
      if (!seen.insert(next).second) continue;
      const auto it = std::find(from_.inputs.begin(), from_.inputs.end(), next);
      if (it != from_.inputs.end() && it - from_.inputs.begin() < variables_)
        variables.insert(number_of(static_cast<std::size_t>(it - from_.inputs.begin())));
      for (Edge in : g_.node(next.node).inputs) open.push_back(in);
    }
    return g_.describe(e.node) +
           (variables.empty() ? "" : fmt::format(" of variable {}", fmt::join(variables, ", ")));
  }

  std::int64_t number_of(std::size_t k) const {
    return k < numbers_.size() ? numbers_[k] : static_cast<std::int64_t>(k);
  }

  // Returns a scalar as it is, which saves a firing; for a tensor whether any element is NaN.
  Edge told_of(Edge e) {
    if (check_.spec(e).shape.is_scalar()) return e;
    const Node of = like(check_.node(e.node));
    return bound("Any", bound("IsNan", e, of), of);
  }

  Edge bound(const char* op, Edge of, const Node& whose) {
    const OpDef& def = find_op(op);
    Attrs attrs;
    const std::vector<ValueSpec> specs{check_.spec(of)};
    Node n = like(whose);
    n.op = &def;
    n.outputs = infer_outputs(def, specs, attrs);
    n.attrs = std::move(attrs);
    n.inputs = {of};
    return {check_.append(std::move(n)), 0};
  }

  const SubGraph& from_;
  const Graph& g_;
  const int variables_;
  const std::vector<std::int64_t>& numbers_;  // errors name the variables by them
  // by node: 1 if it depends on a comparison through recomputed nodes
  std::vector<char> depends_;
  // by node: bytes that have to leave the loop to compute it again; kNever: it is not
  std::vector<double> anew_;
  Graph check_;
  std::vector<Edge> inputs_;  // the check's
  std::map<Edge, Edge> copies_;
  std::vector<Edge> carried_;  // values of the condition that leave the loop
  std::vector<std::pair<Edge, std::string>> compared_;
};

}  // namespace

std::optional<Comparisons> comparisons_of(const SubGraph& condition, int variables,
                                          const std::vector<std::int64_t>& numbers) {
  return Watch(condition, variables, numbers).run();
}

bool holds_nan(const Tensor& compared) {
  return is_floating(compared.dtype()) ? std::isnan(compared.at(0)) : compared.at(0) != 0;
}

std::string name_of_loop(const Node& node) {
  const auto& label = node.attrs.get<std::string>("label");
  return label == "while_loop" ? fmt::format("while_loop ({})", node.site.text())
                               : fmt::format("while_loop '{}' ({})", label, node.site.text());
}

std::string ended_by_nan(const std::string& what, std::size_t i) {
  std::size_t from = 0;
  for (; i > 0; --i) from = what.find('\n', from) + 1;
  return fmt::format(
      "it has ended only because {}, which is NaN, and no comparison with NaN is true; if it is to "
      "end there, let its condition ask is_finite",
      what.substr(from, what.find('\n', from) - from));
}

Program check_nan_predicates(Program program) {
  return change_loops(std::move(program), [](const ChangedLoop& loop) {
    Node& node = loop.node;
    const WhileView w(node);
    auto compared = comparisons_of(w.condition, w.variables, w.numbers);
    if (!compared) return;
    node.attrs.set("compared", compared->what);
    node.attrs.set("graphs",
                   make_subgraphs({compared->condition, subgraphs_of(node)[1], compared->check}));
  });
}

}  // namespace troupe
