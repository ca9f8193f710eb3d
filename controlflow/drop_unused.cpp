#include <troupe/controlflow/drop_unused.hpp>

#include <algorithm>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {
namespace {

// Nodes that the given edges, and all effects of the graph, depend on.
std::vector<char> needed_in(const Graph& g, const std::vector<Edge>& outputs) {
  std::vector<char> needed(at(g.size()), 0);
  for (Edge e : outputs) needed[at(e.node)] = 1;
  for (std::int32_t id = g.size() - 1; id >= 0; --id) {
    if (!needed[at(id)] && !has_effect(g.node(id))) continue;
    needed[at(id)] = 1;
    for (Edge e : g.node(id).inputs) needed[at(e.node)] = 1;
    for (std::int32_t c : g.node(id).controls) needed[at(c)] = 1;
  }
  return needed;
}

// Which variables of a loop does anybody need, if these results are used?
std::vector<char> needed_variables(const WhileView& w, std::vector<char> needed) {
  std::vector<char> by_condition = needed_in(w.condition.graph, w.condition.outputs);
  for (std::size_t k = 0; k < needed.size(); ++k)
    needed[k] = needed[k] || by_condition[at(w.condition.inputs[k].node)];
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<Edge> outputs;
    for (std::size_t k = 0; k < needed.size(); ++k)
      if (needed[k]) outputs.push_back(w.body.outputs[k]);
    std::vector<char> in_body = needed_in(w.body.graph, outputs);
    for (std::size_t k = 0; k < needed.size(); ++k)
      if (!needed[k] && in_body[at(w.body.inputs[k].node)]) needed[k] = changed = true;
  }
  return needed;
}

// Results that the user wrote, which stay: what computes them may fail, and is to. Those after them
// were added.
std::int64_t own_results(const Node& node) {
  if (!node.op->evaluate) return 0;
  return node.attrs.get<std::int64_t>(node.op->name == "While" ? "variables" : "results");
}

template <class T>
std::vector<T> kept(const std::vector<T>& all, const std::vector<char>& keep) {
  std::vector<T> out;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i >= keep.size() || keep[i]) out.push_back(all[i]);
  return out;
}

// The sub-graph with these inputs and outputs, without what they do not need.
std::shared_ptr<const SubGraph> reduced(const SubGraph& sub, std::vector<Edge> inputs,
                                        std::vector<Edge> outputs) {
  Program p = drop_unused(prune(sub.graph, inputs, outputs, Keep::effects));
  auto made = std::make_shared<SubGraph>(std::move(p.graph));
  made->inputs = std::move(p.feeds);
  made->outputs = std::move(p.fetches);
  return made;
}

// What a call may call instead, if nobody uses more of it than `used` says.
const FunctionDef& least_version(const FunctionDef& function, const std::vector<char>& used) {
  const FunctionDef* f = &function;
  while (f->base && std::find(used.begin() + static_cast<std::ptrdiff_t>(f->base->results.size()),
                              used.end(), 1) == used.end())
    f = f->base;
  return *f;
}

Node reduced(const Node& node, const std::vector<char>& used) {
  Node out = node;
  out.outputs = kept(node.outputs, used);
  std::vector<std::shared_ptr<const SubGraph>> graphs;
  if (node.op->name == "While") {
    WhileView w(node);
    std::vector<char> of_implicit(used.begin() + w.explicit_variables, used.end());
    out.attrs.set("implicit", make_specs_attr(kept(w.implicit, of_implicit)));
    graphs.push_back(reduced(w.condition, kept(w.condition.inputs, used), w.condition.outputs));
    graphs.push_back(reduced(w.body, kept(w.body.inputs, used), kept(w.body.outputs, used)));
  } else {
    for (const auto& sub : subgraphs_of(node))
      graphs.push_back(reduced(*sub, sub->inputs, kept(sub->outputs, used)));
  }
  out.attrs.set("graphs", make_subgraphs(std::move(graphs)));
  return out;
}

}  // namespace

Program drop_unused(Program program) {
  const Graph& g = program.graph;
  if (std::none_of(g.nodes().begin(), g.nodes().end(),
                   [](const Node& n) { return bool(n.op->evaluate); }))
    return program;
  std::vector<std::vector<char>> used(at(g.size()));
  for (std::int32_t id = 0; id < g.size(); ++id)
    if (g.node(id).op->evaluate) used[at(id)].assign(g.node(id).outputs.size(), 0);
  auto use = [&](Edge e) {
    if (!used[at(e.node)].empty()) used[at(e.node)][at(e.output)] = 1;
  };
  for (const Node& n : g.nodes())
    for (Edge e : n.inputs) use(e);
  for (Edge e : program.fetches) use(e);
  Rewriter rewriter(program);
  for (std::int32_t id = 0; id < g.size(); ++id) {
    Node node = rewriter.translated(id);
    std::vector<char>& keep = used[at(id)];
    if (const FunctionDef* function = function_of(node)) {
      const FunctionDef& least = least_version(*function, keep);
      node.attrs.set("function", refer_to(least));
      node.outputs.resize(least.results.size());
      const auto last = static_cast<std::int32_t>(least.results.size()) - 1;
      const std::int32_t made = rewriter.graph().append(std::move(node));
      std::vector<Edge> edges;
      for (std::int32_t o = 0; o < static_cast<std::int32_t>(keep.size()); ++o)
        edges.push_back({made, std::min(o, std::max(0, last))});
      rewriter.alias(id, edges, made);
      continue;
    }
    const std::int64_t own = own_results(node);
    for (std::size_t k = 0; k < keep.size(); ++k)
      keep[k] = keep[k] || static_cast<std::int64_t>(k) < own;
    if (node.op->name == "While") keep = needed_variables(WhileView(node), keep);
    if (std::find(keep.begin(), keep.end(), 0) == keep.end()) {
      rewriter.replace(id, std::move(node));
      continue;
    }
    std::int32_t made = rewriter.graph().append(reduced(node, keep));
    std::vector<Edge> edges;
    std::int32_t output = 0;
    for (char k : keep) edges.push_back(k ? Edge{made, output++} : Edge{made, 0});
    rewriter.alias(id, edges, made);
  }
  return rewriter.finish();
}

}  // namespace troupe
