#include <troupe/controlflow/move_invariant.hpp>

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/controlflow/invariant_nodes.hpp>
#include <troupe/ops/eager/eager.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

constexpr int kMostAsked = 32;              // nodes of a condition that is evaluated once more
constexpr std::int64_t kMostElements = 64;  // elements of such a node's inputs

// Moves the nodes of one loop. `to` is the graph that the loop goes into.
class Mover {
 public:
  Mover(Graph& to, const Node& loop)
      : to_(to), loop_(loop), w_(loop), condition_(w_, w_.condition), body_(w_, w_.body) {}

  /// Returns the loop without the moved nodes; empty: there is nothing to move.
  std::optional<Node> run(std::vector<std::string>* told) {
    if (!condition_.has_worthy() && !body_.has_worthy()) return {};
    // The condition computes its nodes at least once.
    Part condition{w_.condition, condition_, condition_.boundary(condition_stays_), {}};
    for (std::int32_t id : condition.moved) (void)copied(condition, id);
    if (body_.has_worthy()) decide(condition);
    Part body{w_.body, body_, body_.boundary(body_stays_), {}};
    for (std::int32_t id : body.moved)
      if (runs_surely_ || !body_.may_fail(id)) (void)copied(body, id);
    guard(condition, body);
    if (condition.moved.empty() && body.moved.empty()) return {};
    tell(told, condition, body);
    return rebuilt(condition, body);
  }

 private:
  // A sub-graph of the loop: its moved nodes, and a map from its values to `to_`.
  struct Part {
    const SubGraph& sub;
    const InvariantNodes& nodes;
    std::vector<std::int32_t> moved;
    std::map<Edge, Edge> outside;
  };

  // ---- copying

  Edge argument_outside(int k) const {
    return loop_.inputs[at(k < w_.variables ? k : k - w_.variables + w_.explicit_variables)];
  }

  /// Copies the invariant nodes that yield `e`; returns the new edge.
  Edge outside(Part& part, Edge e) {
    if (const int k = part.nodes.argument(e.node); k >= 0) return argument_outside(k);
    if (const auto it = part.outside.find(e); it != part.outside.end()) return it->second;
    const std::int32_t made = copied(part, e.node);
    return {made, e.output};
  }

  // Chains are as long as users write them: no recursion.
  std::int32_t copied(Part& part, std::int32_t id) {
    std::vector<std::int32_t> open{id};
    while (!open.empty()) {
      const std::int32_t next = open.back();
      const Node& node = part.sub.graph.node(next);
      bool is_ready = true;
      for (Edge e : node.inputs) {
        if (part.nodes.argument(e.node) >= 0 || part.outside.contains(e)) continue;
        open.push_back(e.node);
        is_ready = false;
      }
      if (!is_ready) continue;
      open.pop_back();
      if (part.outside.contains({next, 0})) continue;
      Node copy = node;
      for (Edge& e : copy.inputs)
        e = part.nodes.argument(e.node) >= 0 ? argument_outside(part.nodes.argument(e.node))
                                             : part.outside.at(e);
      const std::int32_t made = to_.append(std::move(copy));
      for (std::int32_t o = 0; o < static_cast<std::int32_t>(node.outputs.size()); ++o)
        part.outside[{next, o}] = {made, o};
    }
    return part.outside.at({id, 0}).node;
  }

  // ---- the first predicate

  // Nodes that may fail go only where the loop's body runs at least once.
  void decide(Part& condition) {
    const std::optional<bool> known = first_predicate(condition);
    if (known) {
      runs_surely_ = *known;
      if (!*known) body_.keep_all();
    }
    if (runs_surely_ || !body_.has_failing()) return;
    if (is_cheap(condition)) is_guarded_ = true;
    else body_.keep_failing();
  }

  // The nodes of the condition that the predicate needs and that were not moved, ascending.
  std::vector<std::int32_t> asked(const Part& condition) const {
    const Graph& g = condition.sub.graph;
    std::vector<char> wanted(at(g.size()), 0);
    wanted[at(condition.sub.outputs[0].node)] = 1;
    std::vector<std::int32_t> nodes;
    for (std::int32_t id = g.size() - 1; id >= 0; --id) {
      if (!wanted[at(id)] || condition.nodes.argument(id) >= 0 ||
          condition.outside.contains({id, 0}))
        continue;
      nodes.push_back(id);
      for (Edge e : g.node(id).inputs) wanted[at(e.node)] = 1;
    }
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
  }

  // Asking once more before the loop costs a few firings of scalars.
  bool is_cheap(const Part& condition) const {
    const Graph& g = condition.sub.graph;
    const std::vector<std::int32_t> nodes = asked(condition);
    const auto is_small = [](const ValueSpec& s) {
      return !s.is_list() && s.shape.is_known() && s.shape.elements() <= kMostElements;
    };
    return nodes.size() <= kMostAsked && std::all_of(nodes.begin(), nodes.end(), [&](auto id) {
             const Node& n = g.node(id);
             return !n.op->evaluate && is_movable(n) &&
                    std::all_of(n.outputs.begin(), n.outputs.end(), is_small) &&
                    std::all_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) {
                      const int k = condition.nodes.argument(e.node);
                      return k < 0 || k < w_.explicit_variables || k >= w_.variables;
                    });
           });
  }

  /// Returns the predicate of the initial variables, copied into `to_`.
  Edge predicate_before(Part& condition) {
    const Edge e = condition.sub.outputs[0];
    return condition.nodes.argument(e.node) >= 0
               ? argument_outside(condition.nodes.argument(e.node))
           : condition.outside.contains(e) ? condition.outside.at(e)
                                           : Edge{copied(condition, e.node), e.output};
  }

  // Returns the value of an edge outside of the loop if it is known: a constant, or a number of
  // elements.
  std::optional<Tensor> known(Edge e) const {
    const Node& n = to_.node(e.node);
    if (n.op->name == "Constant" && n.controls.empty()) return n.attrs.get<Tensor>("value");
    if (n.op->name != "ListLength") return {};
    std::int64_t length = -1;
    for (Edge list : n.inputs) {
      const Node& from = to_.node(list.node);
      if (from.op->name != "ListUnstack") return {};
      const Shape& shape = to_.spec(from.inputs[0]).shape;
      if (!shape.is_known() || shape.rank() == 0 || (length >= 0 && shape[0] != length)) return {};
      length = shape[0];
    }
    return Tensor::scalar(length);
  }

  // Whether the loop's body runs at all, if its condition depends on constants alone at first.
  std::optional<bool> first_predicate(const Part& condition) const {
    if (!is_cheap(condition)) return {};
    const Graph& g = condition.sub.graph;
    Program program{g.blank(), {}, {}};
    std::map<Edge, Edge> made;
    const auto take = [&](Edge e) {
      if (made.contains(e)) return true;
      const int k = condition.nodes.argument(e.node);
      const auto moved = condition.outside.find(e);
      if (k >= w_.explicit_variables && k < w_.variables) return false;
      if (k < 0 && moved == condition.outside.end()) return false;
      const auto value = known(k >= 0 ? argument_outside(k) : moved->second);
      if (!value) return false;
      Node constant;
      constant.op = &find_op("Constant");
      constant.attrs = Attrs{{"value", *value}};
      constant.outputs = {{value->dtype(), value->shape()}};
      made[e] = {program.graph.append(std::move(constant)), 0};
      return true;
    };
    for (std::int32_t id : asked(condition)) {
      Node copy = g.node(id);
      for (Edge& e : copy.inputs) {
        if (!take(e)) return {};
        e = made.at(e);
      }
      const std::int32_t node = program.graph.append(std::move(copy));
      for (std::int32_t o = 0; o < static_cast<std::int32_t>(g.node(id).outputs.size()); ++o)
        made[{id, o}] = {node, o};
    }
    if (!take(condition.sub.outputs[0])) return {};
    program.fetches = {made.at(condition.sub.outputs[0])};
    try {
      const Tensor told = Eager().run(program, {})[0];
      if (told.elements() == 1) return told.at(0) != 0;
    } catch (const Error&) {}  // it fails when it runs, as it would have
    return {};
  }

  // ---- the guard

  // A Case that computes nodes that may fail, and nodes that depend on them, if the loop's first
  // predicate is true. Its other branch yields blanks that are never read.
  void guard(Part& condition, Part& body) {
    std::vector<std::int32_t> behind;
    for (std::int32_t id : body.moved)
      if (is_guarded_ && !runs_surely_ && body_.may_fail(id)) behind.push_back(id);
    if (behind.empty()) return;
    const Edge predicate = predicate_before(condition);
    GuardedNodes nodes(*this, body, behind);
    Node guarded = like_loop("Case");
    guarded.inputs = {predicate};
    guarded.inputs.insert(guarded.inputs.end(), nodes.captured.begin(), nodes.captured.end());
    guarded.outputs = nodes.specs;
    guarded.attrs =
        Attrs{{"graphs", make_subgraphs({nodes.blank, nodes.computed})},
              {"results", static_cast<std::int64_t>(nodes.specs.size())},
              {"label", std::string("before ") + loop_.attrs.get<std::string>("label")}};
    const std::int32_t made = to_.append(std::move(guarded));
    for (std::size_t i = 0; i < nodes.results.size(); ++i)
      body.outside[nodes.results[i]] = {made, static_cast<std::int32_t>(i)};
  }

  struct GuardedNodes {
    GuardedNodes(Mover& mover, Part& body, const std::vector<std::int32_t>& behind) {
      const Graph& g = body.sub.graph;
      Graph inside = g.blank();
      std::map<Edge, Edge> there;  // by edges of the body
      std::vector<Edge> inputs;
      const auto take = [&](Edge e) {
        if (there.contains(e)) return there.at(e);
        captured.push_back(mover.outside(body, e));
        inputs.push_back({inside.append(mover.argument(g.spec(e))), 0});
        return there[e] = inputs.back();
      };
      std::vector<char> wanted(at(g.size()), 0);
      for (std::int32_t id : behind) wanted[at(id)] = 1;
      std::vector<std::int32_t> order;
      for (std::int32_t id = g.size() - 1; id >= 0; --id) {
        if (!wanted[at(id)]) continue;
        order.push_back(id);
        for (Edge e : g.node(id).inputs)
          if (body.nodes.may_fail(e.node)) wanted[at(e.node)] = 1;
      }
      for (auto id = order.rbegin(); id != order.rend(); ++id) {
        Node copy = g.node(*id);
        for (Edge& e : copy.inputs) {
          const Node& from = g.node(e.node);
          if (from.op->name == "Constant" && !there.contains(e))
            there[e] = {inside.append(from), 0};
          e = take(e);
        }
        const std::int32_t made = inside.append(std::move(copy));
        for (std::int32_t o = 0; o < static_cast<std::int32_t>(g.node(*id).outputs.size()); ++o)
          there[{*id, o}] = {made, o};
      }
      std::vector<Edge> outputs;
      for (std::int32_t id : behind)
        for (std::int32_t o = 0; o < static_cast<std::int32_t>(g.node(id).outputs.size()); ++o) {
          results.push_back({id, o});
          specs.push_back(g.spec({id, o}));
          outputs.push_back(there.at({id, o}));
        }
      auto made = std::make_shared<SubGraph>(std::move(inside));
      made->inputs = inputs;
      made->outputs = std::move(outputs);
      computed = std::move(made);
      blank = mover.blanks(g, inputs.size(), captured, specs);
    }

    std::vector<Edge> captured, results;  // outside of the loop; of the body
    std::vector<ValueSpec> specs;
    std::shared_ptr<const SubGraph> computed, blank;
  };

  std::shared_ptr<const SubGraph> blanks(const Graph& g, std::size_t inputs,
                                         const std::vector<Edge>& captured,
                                         const std::vector<ValueSpec>& specs) const {
    auto made = std::make_shared<SubGraph>(g.blank());
    for (std::size_t i = 0; i < inputs; ++i)
      made->inputs.push_back({made->graph.append(argument(to_.spec(captured[i]))), 0});
    for (const ValueSpec& s : specs) {
      Shape shape = s.shape.has_rank() ? s.shape : Shape{};
      for (int axis = 0; axis < shape.rank(); ++axis)
        if (shape[axis] == kAny) shape.set(axis, 0);
      Node blank = like_loop("Blank");
      blank.attrs = Attrs{{"dtype", s.dtype}, {"shape", shape}};
      blank.outputs = {{s.dtype, shape}};
      made->outputs.push_back({made->graph.append(std::move(blank)), 0});
    }
    return made;
  }

  // ---- the new loop

  Node like_loop(const char* op) const {
    Node n;
    n.op = &find_op(op);
    n.scope = loop_.scope;
    n.device = loop_.device;
    n.site = loop_.site;
    n.origin = loop_.origin;
    return n;
  }
  Node argument(const ValueSpec& spec) const {
    Node n = like_loop("Input");
    n.device.clear();
    n.attrs = Attrs{{"dtype", spec.dtype}, {"shape", spec.shape}};
    n.outputs = {spec};
    return n;
  }

  Node rebuilt(Part& condition, Part& body) {
    std::vector<std::pair<Part*, Edge>> captured;  // edges of a part that become arguments
    for (Part* part : {&condition, &body})
      for (std::int32_t id : part->moved)
        for (std::int32_t o = 0;
             o < static_cast<std::int32_t>(part->sub.graph.node(id).outputs.size()); ++o)
          captured.emplace_back(part, Edge{id, o});
    Node out = loop_;
    for (const auto& [part, e] : captured) out.inputs.push_back(part->outside.at(e));
    out.attrs.set("graphs", make_subgraphs({without(condition, condition_stays_, captured),
                                            without(body, body_stays_, captured)}));
    return out;
  }

  std::shared_ptr<const SubGraph> without(
      const Part& part, const std::vector<char>& stays,
      const std::vector<std::pair<Part*, Edge>>& captured) const {
    const Program from{part.sub.graph, part.sub.inputs, part.sub.outputs};
    Rewriter rewriter(from);
    std::map<std::int32_t, std::vector<Edge>> moved;
    std::vector<Edge> more;
    for (const auto& [whose, e] : captured) {
      more.push_back({rewriter.graph().append(argument(whose->sub.graph.spec(e))), 0});
      if (whose == &part) moved[e.node].push_back(more.back());
    }
    for (std::int32_t id = 0; id < from.graph.size(); ++id) {
      if (const auto it = moved.find(id); it != moved.end()) rewriter.alias(id, it->second, -1);
      else if (stays[at(id)] || part.nodes.argument(id) >= 0) rewriter.keep(id);
    }
    Program made = rewriter.finish();
    auto sub = std::make_shared<SubGraph>(std::move(made.graph));
    sub->inputs = std::move(made.feeds);
    sub->inputs.insert(sub->inputs.end(), more.begin(), more.end());
    sub->outputs = std::move(made.fetches);
    return sub;
  }

  void tell(std::vector<std::string>* told, const Part& condition, const Part& body) const {
    if (!told) return;
    std::vector<std::string> names;
    for (const Part* part : {&condition, &body})
      for (const auto& [from, to] : part->outside)
        if (from.output == 0 && part->nodes.is_worth_it(from.node))
          names.push_back(part->sub.graph.describe(from.node));
    told->push_back(fmt::format("While '{}' ({}): moved before it{}: {}",
                                loop_.attrs.get<std::string>("label"), loop_.site.text(),
                                is_guarded_ ? ", partly behind its first predicate" : "",
                                fmt::join(names, ", ")));
  }

  Graph& to_;
  const Node& loop_;  // with inputs of `to_`
  const WhileView w_;
  InvariantNodes condition_, body_;
  std::vector<char> condition_stays_, body_stays_;
  bool runs_surely_ = false;
  bool is_guarded_ = false;
};

}  // namespace

Program move_invariant(Program program, std::vector<std::string>* told) {
  return change_loops(std::move(program), [&](const ChangedLoop& loop) {
    if (auto changed = Mover(loop.to.graph(), loop.node).run(told)) loop.node = std::move(*changed);
  });
}

}  // namespace troupe
