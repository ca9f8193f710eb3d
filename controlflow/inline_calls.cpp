#include <troupe/controlflow/inline_calls.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include <troupe/controlflow/changed_functions.hpp>
#include <troupe/controlflow/inline_size.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

bool has_op(const Graph& graph, std::string_view op) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) {
    const auto subs = subgraphs_of(n);
    return n.op->name == op || std::any_of(subs.begin(), subs.end(),
                                           [&](const auto& sub) { return has_op(sub->graph, op); });
  });
}

bool has_call_in_loop(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& n) {
    const auto subs = subgraphs_of(n);
    return std::any_of(subs.begin(), subs.end(), [&](const auto& sub) {
      return n.op->name == "While" ? has_op(sub->graph, "Call") : has_call_in_loop(sub->graph);
    });
  });
}

template <class Predicate>
bool holds_anywhere(const Program& program, Predicate holds) {
  const auto& functions = program.graph.functions();
  return holds(program.graph) ||
         std::any_of(functions.begin(), functions.end(),
                     [&](const auto& f) { return f->body && holds(f->body->graph); });
}

class Inliner {
 public:
  explicit Inliner(const Program& program) : sizes_(program) {}

  Program run(const Program& program) {
    Program out = changed(program, false);
    functions_.finish(out.graph, [&](const SubGraph& body) { return in_sub_graph(body, false); });
    return out;
  }

 private:
  Program changed(const Program& from, bool in_loop) {
    const Graph& g = from.graph;
    std::vector<char> is_waited_for(at(g.size()), 0);
    for (const Node& n : g.nodes())
      for (std::int32_t c : n.controls) is_waited_for[at(c)] = 1;
    Rewriter rewriter(from);
    for (std::int32_t id = 0; id < g.size(); ++id) {
      Node node = rewriter.translated(id);
      if (const FunctionDef* function = function_of(node)) {
        if (in_loop && !is_waited_for[at(id)] && can_inline(node, *function)) {
          rewriter.alias(id, put(rewriter.graph(), node, *body_of(*function)), -1);
          continue;
        }
        node.attrs.set("function", refer_to(*functions_.made_of(*function)));
      }
      std::vector<std::shared_ptr<const SubGraph>> graphs;
      for (const auto& sub : subgraphs_of(node))
        graphs.push_back(in_sub_graph(*sub, in_loop || node.op->name == "While"));
      if (!graphs.empty()) node.attrs.set("graphs", make_subgraphs(std::move(graphs)));
      rewriter.replace(id, std::move(node));
    }
    return rewriter.finish();
  }

  std::shared_ptr<const SubGraph> in_sub_graph(const SubGraph& sub, bool in_loop) {
    Program made = changed(Program{sub.graph, sub.inputs, sub.outputs}, in_loop);
    auto fresh = std::make_shared<SubGraph>(std::move(made.graph));
    fresh->inputs = std::move(made.feeds);
    fresh->outputs = std::move(made.fetches);
    return fresh;
  }

  bool can_inline(const Node& call, const FunctionDef& f) {
    if (!f.body || f.is_recursive || f.has_draws || f.has_effect) return false;
    return call.controls.empty() && call.device.empty() && !sizes_.is_too_large(f);
  }

  // The body in a loop: the calls in it are replaced, too.
  const SubGraph* body_of(const FunctionDef& function) {
    auto& body = bodies_[&function];
    if (!body) body = in_sub_graph(*function.body, true);
    return body.get();
  }

  // Returns the results. Nodes keep their lines and origins, which are the function's.
  static std::vector<Edge> put(Graph& to, const Node& call, const SubGraph& body) {
    std::vector<std::vector<Edge>> put_at(at(body.graph.size()));
    for (std::size_t i = 0; i < body.inputs.size(); ++i)
      put_at[at(body.inputs[i].node)] = {call.inputs[i]};
    for (std::int32_t id = 0; id < body.graph.size(); ++id) {
      if (!put_at[at(id)].empty()) continue;
      Node node = body.graph.node(id);
      const auto outputs = static_cast<std::int32_t>(node.outputs.size());
      for (Edge& e : node.inputs) e = put_at[at(e.node)][at(e.output)];
      std::vector<std::int32_t> controls;
      for (std::int32_t c : node.controls)
        if (!put_at[at(c)].empty()) controls.push_back(put_at[at(c)][0].node);
      node.controls = std::move(controls);
      const std::int32_t made = to.append(std::move(node));
      for (std::int32_t o = 0; o < outputs; ++o) put_at[at(id)].push_back({made, o});
    }
    std::vector<Edge> results;
    for (Edge e : body.outputs) results.push_back(put_at[at(e.node)][at(e.output)]);
    return results;
  }

  InlineSizes sizes_;
  ChangedFunctions functions_;
  std::map<const FunctionDef*, std::shared_ptr<const SubGraph>> bodies_;
};

}  // namespace

Program inline_calls(Program program) {
  // Primitives by hand make values dead, which a call passes on to all of its results.
  const auto by_hand = [](const Graph& g) { return has_op(g, "Enter") || has_op(g, "Switch"); };
  if (!holds_anywhere(program, has_call_in_loop) || holds_anywhere(program, by_hand))
    return program;
  return Inliner(program).run(program);
}

}  // namespace troupe
