#include <troupe/controlflow/watch_predicates.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/node_index.hpp>
#include <troupe/ops/ordering.hpp>

namespace troupe {
namespace {

class Watch {
 public:
  Watch(const SubGraph& condition, int variables) : from_(condition), g_(condition.graph), variables_(variables), check_(condition.graph.blank()) {
    for (const Node& n : g_.nodes()) depends_.push_back(is_comparison(n) || (goes_through(n) && std::any_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) { return depends(e); })));
  }

  std::optional<Comparisons> run() {
    const Edge predicate = from_.outputs[0];
    if (!depends(predicate)) return {};
    for (std::size_t k = 0; k < from_.inputs.size(); ++k) {
      inputs_.push_back(argument(from_.inputs[k]));
      copies_[from_.inputs[k]] = inputs_.back();
    }
    const Edge goes_on = again(predicate);
    if (compared_.empty()) return {};  // with constants alone
    auto condition = std::make_shared<SubGraph>(Graph(g_));
    condition->inputs = from_.inputs;
    condition->outputs = from_.outputs;
    condition->outputs.insert(condition->outputs.end(), carried_.begin(), carried_.end());
    std::vector<Edge> outputs{goes_on};
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
  bool is_comparison(const Node& n) const { return is_ordering(*n.op) && is_floating(g_.spec(n.inputs[0]).dtype); }
  // What is computed anew of a comparison's other outcome: functional nodes, what reads a state and primitives are not pure, and so remain what they
  // have yielded. Lists are not copied for it.
  bool goes_through(const Node& n) const {
    return n.op->is_pure() && std::none_of(n.outputs.begin(), n.outputs.end(), [](const ValueSpec& s) { return s.is_list(); }) &&
           std::none_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) { return g_.spec(e).is_list(); });
  }
  bool depends(Edge e) const { return depends_[at(e.node)] != 0; }
  // Cheap enough to be computed twice.
  bool is_light(const Node& n) const {
    return n.op->is_pure() && n.op->pointwise && n.outputs[0].shape.is_scalar() &&
           std::all_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) { return g_.spec(e).shape.is_scalar(); });
  }

  // What says where a node comes from and where it goes, of one that stands for `n`.
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

  // What stands in the check for a value of the condition.
  Edge again(Edge e) {
    if (auto it = copies_.find(e); it != copies_.end()) return it->second;
    const Node& n = g_.node(e.node);
    Edge made;
    if (n.op->name == "Identity" && n.controls.empty()) {
      made = again(n.inputs[0]);
    } else if (n.op->name != "Constant" && !depends(e) && !is_light(n)) {
      carried_.push_back(e);
      made = argument(e);
      inputs_.push_back(made);
    } else {
      Node copy = n;
      copy.controls.clear();
      for (Edge& in : copy.inputs) in = again(in);
      if (is_comparison(n)) {
        for (std::size_t i = 0; i < n.inputs.size(); ++i) compare(e.node, n.inputs[i], copy.inputs[i]);
        copy.op = &opposite_of(*n.op);
        made = bound("LogicalNot", {check_.append(std::move(copy)), 0}, n);
      } else {
        made = {check_.append(std::move(copy)), e.output};
      }
    }
    return copies_[e] = made;
  }

  void compare(std::int32_t comparison, Edge operand, Edge copy) {
    if (g_.node(operand.node).op->name == "Constant") return;
    compared_.emplace_back(copy, fmt::format("{} compares {}", g_.describe(comparison), text(operand)));
  }

  std::string text(Edge e) const {
    for (std::size_t k = 0; k < from_.inputs.size(); ++k)
      if (from_.inputs[k] == e) return k < at(variables_) ? fmt::format("variable {}", k) : "a value from outside of the loop";
    std::set<std::size_t> variables;
    std::vector<Edge> open{e};
    std::set<Edge> seen;
    while (!open.empty()) {
      const Edge next = open.back();
      open.pop_back();
      if (!seen.insert(next).second) continue;
      const auto it = std::find(from_.inputs.begin(), from_.inputs.end(), next);
      if (it != from_.inputs.end() && it - from_.inputs.begin() < variables_) variables.insert(static_cast<std::size_t>(it - from_.inputs.begin()));
      for (Edge in : g_.node(next.node).inputs) open.push_back(in);
    }
    return g_.describe(e.node) + (variables.empty() ? "" : fmt::format(" of variable {}", fmt::join(variables, ", ")));
  }

  // The number itself: one firing less.
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
  std::vector<char> depends_;  // of each node: does it come of a comparison, by what is computed anew?
  Graph check_;
  std::vector<Edge> inputs_;   // of the check
  std::map<Edge, Edge> copies_;
  std::vector<Edge> carried_;  // of the condition
  std::vector<std::pair<Edge, std::string>> compared_;
};

}  // namespace

std::optional<Comparisons> comparisons_of(const SubGraph& condition, int variables) { return Watch(condition, variables).run(); }

bool holds_nan(const Tensor& compared) { return is_floating(compared.dtype()) ? std::isnan(compared.at(0)) : compared.at(0) != 0; }

std::string name_of_loop(const Node& node) {
  const auto& label = node.attrs.get<std::string>("label");
  return label == "while_loop" ? fmt::format("while_loop ({})", node.site.text()) : fmt::format("while_loop '{}' ({})", label, node.site.text());
}

std::string ended_by_nan(const std::string& what, std::size_t i) {
  std::size_t from = 0;
  for (; i > 0; --i) from = what.find('\n', from) + 1;
  return fmt::format("it has ended only because {}, which is NaN, and no comparison with NaN is true; if it is to end there, let its condition ask is_finite",
                     what.substr(from, what.find('\n', from) - from));
}

Program watch_predicates(Program program) {
  if (std::none_of(program.graph.nodes().begin(), program.graph.nodes().end(), [](const Node& n) { return n.op->name == "While"; })) return program;
  Rewriter rewriter(program);
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    if (node.op->name == "While") {
      const WhileView w(node);
      if (auto compared = comparisons_of(w.condition, w.variables)) {
        node.attrs.set("compared", compared->what);
        node.attrs.set("graphs", make_subgraphs({compared->condition, subgraphs_of(node)[1], compared->check}));
      }
    }
    rewriter.replace(id, std::move(node));
  }
  return rewriter.finish();
}

}  // namespace troupe
