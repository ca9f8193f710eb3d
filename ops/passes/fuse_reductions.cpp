#include <troupe/ops/graph/program.hpp>

#include <algorithm>
#include <optional>

#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/made_by.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/pointwise.hpp>

// A reduction of a pointwise node's result goes into that node:
//
//   y, t ─► Fused ─► Mean          y, t ─► FusedReduce
//
// so that a loss reads its operands once and stores no error, and the sum that is a bias's gradient
// is taken while the cotangent is in the cache. If other nodes use the reduced value, it is stored
// as well.
// 1. One reduction goes into a node. It is the sole user of one of the results.
// 2. Other users of the node's results come after it: so the node keeps its place, unless there are
//    no other users.

namespace troupe::detail {
namespace {

struct Named {
  const char* op;
  Reduction kind;
};
constexpr Named kReductions[] = {{"Sum", Reduction::sum},
                                 {"SumTo", Reduction::sum},
                                 {"Mean", Reduction::mean},
                                 {"Product", Reduction::product},
                                 {"Min", Reduction::min},
                                 {"Max", Reduction::max},
                                 {"Any", Reduction::any},
                                 {"All", Reduction::all},
                                 {"ArgMin", Reduction::argmin},
                                 {"ArgMax", Reduction::argmax},
                                 {"LogSumExp", Reduction::logsumexp}};

std::optional<Reduction> reduction_of(const Node& n) {
  for (const Named& r : kReductions)
    if (n.op->name == r.op) return r.kind;
  return {};
}

class Reducing {
 public:
  explicit Reducing(const Program& program)
      : program_(program), g_(program.graph), users_(size()), has_order_(size(), 0),
        reduction_of_(size(), -1), goes_into_(size(), -1) {
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      for (Edge e : g_.node(id).inputs) users_[at(e.node)].push_back({id, e.output});
      for (std::int32_t c : g_.node(id).controls) has_order_[at(c)] = 1;
      if (!g_.node(id).controls.empty()) has_order_[at(id)] = 1;
    }
    for (Edge e : program.fetches) users_[at(e.node)].push_back({-1, e.output});
  }

  Program run() {
    for (std::int32_t id = 0; id < g_.size(); ++id)
      if (reduction_of(g_.node(id))) choose(id);
    Rewriter rewriter(program_);
    for (std::int32_t id = 0; id < g_.size(); ++id) {
      const std::int32_t maker = goes_into_[at(id)], reduction = reduction_of_[at(id)];
      if (maker >= 0 && is_alone(maker)) emit_alone(rewriter, maker, id);
      else if (reduction >= 0 && !is_alone(id)) emit_beside(rewriter, id, reduction);
      else if (maker < 0 && reduction < 0) rewriter.keep(id);
    }
    return rewriter.finish();
  }

 private:
  struct User {
    std::int32_t id, output;  // the user (-1: a fetch), and the output that it uses
  };
  struct Axes {
    std::vector<std::int64_t> axes;
    bool keep_dims;
  };

  std::size_t size() const { return at(g_.size()); }

  void choose(std::int32_t id) {
    const Node& n = g_.node(id);
    const Edge e = n.inputs[0];
    const Node& maker = g_.node(e.node);
    if (!(maker.op->pointwise || maker.op->name == "Fused") || has_order_[at(id)] ||
        has_order_[at(e.node)] || maker.device != n.device)
      return;
    const Shape& shape = maker.outputs[0].shape;
    if (!shape.has_rank() || shape.rank() == 0 || (shape.is_known() && shape.elements() == 1) ||
        !axes_of(n))
      return;
    const std::int32_t before = reduction_of_[at(e.node)];
    if (before >= 0 && (is_sole_user(g_.node(before).inputs[0]) || !is_sole_user(e))) return;
    if (before >= 0) goes_into_[at(before)] = -1;
    reduction_of_[at(e.node)] = id;
    goes_into_[at(id)] = e.node;
  }

  // A SumTo of known shapes is a Sum if it removes axes or keeps them, not both.
  std::optional<Axes> axes_of(const Node& n) const {
    if (n.op->name != "SumTo")
      return Axes{n.attrs.get<std::vector<std::int64_t>>("axes"), n.attrs.get<bool>("keep_dims")};
    const Shape &from = g_.spec(n.inputs[0]).shape, &to = n.outputs[0].shape;
    if (!from.is_known() || !to.is_known() || from == to) return {};
    const int lead = from.rank() - to.rank();
    Axes found{{}, lead == 0};
    for (int i = 0; i < from.rank(); ++i)
      if (i < lead || (to[i - lead] == 1 && from[i] != 1)) found.axes.push_back(i);
    if (found.axes.empty() ||
        reduced_shape(from, reduced_axes(found.axes, from.rank()), found.keep_dims) != to)
      return {};
    return found;
  }

  bool is_sole_user(Edge e) const {
    const auto& users = users_[at(e.node)];
    return std::count_if(users.begin(), users.end(),
                         [&](const User& u) { return u.output == e.output; }) == 1;
  }
  /// True if the reduction is the only user of a node.
  bool is_alone(std::int32_t maker) const {
    return users_[at(maker)].size() == 1 && g_.node(maker).outputs.size() == 1;
  }

  Attrs attrs(std::int32_t maker, std::int32_t reduction) const {
    const Node& n = g_.node(reduction);
    const Axes axes = *axes_of(n);
    Attrs made{{"program", std::shared_ptr<const AttrObject>(
                               std::make_shared<ProgramAttr>(program_of(g_, g_.node(maker))))},
               {"reduced", std::int64_t{n.inputs[0].output}},
               {"reduction", static_cast<std::int64_t>(*reduction_of(n))},
               {"stored", !is_sole_user(n.inputs[0])},
               {"axes", axes.axes},
               {"keep_dims", axes.keep_dims}};
    std::string parts;
    for (const Part& part : parts_of(g_.node(maker).attrs)) add_part(parts, part.last, part.text);
    if (!parts.empty()) add_part(parts, -1, part_text(n.attrs));
    set_parts(made, std::move(parts));
    return made;
  }

  void emit_alone(Rewriter& rewriter, std::int32_t maker, std::int32_t reduction) const {
    Node node = rewriter.translated(maker);
    const Node& last = g_.node(reduction);
    node.name = last.name, node.scope = last.scope, node.site = last.site,
    node.origin = last.origin;
    node.op = &find_op("FusedReduce");
    node.attrs = attrs(maker, reduction);
    node.outputs = last.outputs;
    rewriter.replace(reduction, std::move(node));
  }

  void emit_beside(Rewriter& rewriter, std::int32_t maker, std::int32_t reduction) const {
    Node node = rewriter.translated(maker);
    const Edge reduced = g_.node(reduction).inputs[0];
    const bool is_stored = !is_sole_user(reduced);
    node.op = &find_op("FusedReduce");
    node.attrs = attrs(maker, reduction);
    node.outputs = g_.node(reduction).outputs;
    std::vector<std::int32_t> outputs;
    for (std::int32_t o = 0; o < static_cast<std::int32_t>(g_.node(maker).outputs.size()); ++o) {
      const bool is_here = is_stored || o != reduced.output;
      outputs.push_back(is_here ? static_cast<std::int32_t>(node.outputs.size()) : 0);
      if (is_here) node.outputs.push_back(g_.node(maker).outputs[at(o)]);
    }
    const std::int32_t id = rewriter.graph().append(std::move(node));
    std::vector<Edge> edges;
    for (std::int32_t o : outputs) edges.push_back({id, o});
    rewriter.alias(maker, edges, id);
    rewriter.alias(reduction, {{id, 0}}, id);
  }

  const Program& program_;
  const Graph& g_;
  std::vector<std::vector<User>> users_;
  std::vector<char> has_order_;             // the node has a control edge in or out
  std::vector<std::int32_t> reduction_of_;  // by node: the reduction that goes into it; -1: none
  std::vector<std::int32_t> goes_into_;     // the reverse
};

}  // namespace

Program fuse_reductions(Program program) {
  if (std::none_of(program.graph.nodes().begin(), program.graph.nodes().end(),
                   [](const Node& n) { return reduction_of(n).has_value(); }))
    return program;
  return Reducing(program).run();
}

}  // namespace troupe::detail
