#include <troupe/controlflow/merge_variables.hpp>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/passes/same_nodes.hpp>

namespace troupe {
namespace {

// Finds the classes of equal variables of a loop, by induction over iterations: variables of one
// class start equal, and their next values are the same computation of equal variables.
class EqualVariables {
 public:
  /// `loop` has inputs of `outer`.
  EqualVariables(const Graph& outer, const Node& loop) : outer_(outer), loop_(loop), w_(loop) {
    start();
    while (is_any() && refine()) {}
  }

  /// True if a class has two variables.
  bool is_any() const {
    for (std::size_t k = 0; k < first_.size(); ++k)
      if (first_[k] != k) return true;
    return false;
  }
  /// By variable: the first one of its class.
  const std::vector<std::size_t>& first() const { return first_; }

 private:
  ValueSpec spec(std::size_t k) const { return w_.body.graph.spec(w_.body.inputs[k]); }
  bool is_explicit(std::size_t k) const { return k < at(w_.explicit_variables); }

  bool start_equal(std::size_t a, std::size_t b) const {
    if (spec(a) != spec(b) || is_explicit(a) != is_explicit(b)) return false;
    if (!is_explicit(a)) return true;  // zero, or an empty list
    const Edge x = loop_.inputs[a], y = loop_.inputs[b];
    if (x == y) return true;
    const Node &m = outer_.node(x.node), &n = outer_.node(y.node);
    return m.op->name == "Constant" && detail::is_same(m, n);
  }

  void start() {
    for (std::size_t k = 0; k < at(w_.variables); ++k) {
      std::size_t first = 0;
      while (first < k && !start_equal(first, k)) ++first;
      first_.push_back(first);
    }
  }

  // Parts variables whose next values differ; returns whether there are such.
  bool refine() {
    const std::vector<Edge> next = next_values();
    std::vector<std::size_t> first(first_.size());
    for (std::size_t k = 0; k < first_.size(); ++k) {
      std::size_t f = first_[k];
      while (f < k && (first_[f] != first_[k] || next[f] != next[k])) ++f;
      first[k] = f;
    }
    return std::exchange(first_, std::move(first)) != first_;
  }

  // The next value of each variable as an edge of the body. If variables of a class are equal,
  // values with one edge are.
  std::vector<Edge> next_values() const {
    const Graph& g = w_.body.graph;
    std::map<std::int32_t, Edge> variables;  // by Input node
    for (std::size_t k = 0; k < first_.size(); ++k)
      variables[w_.body.inputs[k].node] = w_.body.inputs[first_[k]];
    std::unordered_multimap<std::size_t, std::pair<Node, std::int32_t>> seen;
    std::vector<std::int32_t> twin(at(g.size()));
    const auto edge = [&](Edge e) {
      const auto variable = variables.find(e.node);
      return variable != variables.end() ? variable->second : Edge{twin[at(e.node)], e.output};
    };
    for (std::int32_t id = 0; id < g.size(); ++id) {
      twin[at(id)] = id;
      Node node = g.node(id);
      if (!node.op->is_pure() || !node.controls.empty() || node.op->name == "Input") continue;
      for (Edge& e : node.inputs) e = edge(e);
      if (node.op->commutative) std::sort(node.inputs.begin(), node.inputs.end());
      const std::size_t key = detail::key_of(node);
      const auto [begin, end] = seen.equal_range(key);
      const auto same = std::find_if(
          begin, end, [&](const auto& entry) { return detail::is_same(entry.second.first, node); });
      if (same != end) twin[at(id)] = same->second.second;
      else seen.emplace(key, std::pair(std::move(node), id));
    }
    std::vector<Edge> next;
    for (std::size_t k = 0; k < first_.size(); ++k) next.push_back(edge(w_.body.outputs[k]));
    return next;
  }

  const Graph& outer_;
  const Node& loop_;
  const WhileView w_;
  std::vector<std::size_t> first_;
};

// The sub-graph, in which one argument of each class is read, and the others are not.
std::shared_ptr<const SubGraph> reading_first(const SubGraph& sub,
                                              const std::vector<std::size_t>& first) {
  // The class's argument has to come before all of its readers, so it is the earliest node.
  std::vector<std::int32_t> earliest(first.size(), sub.graph.size());
  std::map<std::int32_t, std::size_t> variable;  // by Input node
  for (std::size_t k = 0; k < first.size(); ++k) {
    const std::int32_t node = sub.inputs[k].node;
    variable[node] = k;
    earliest[first[k]] = std::min(earliest[first[k]], node);
  }
  const Program from{sub.graph, {}, sub.outputs};
  Rewriter rewriter(from);
  for (std::int32_t id = 0; id < from.graph.size(); ++id) {
    const auto it = variable.find(id);
    const std::int32_t read = it == variable.end() ? id : earliest[first[it->second]];
    if (read == id) rewriter.keep(id);
    else rewriter.alias(id, {rewriter.at({read, 0})}, -1);
  }
  auto made = std::make_shared<SubGraph>(sub.graph.blank());
  for (std::size_t k = 0; k < sub.inputs.size(); ++k)
    made->inputs.push_back(
        k >= first.size() ? rewriter.at(sub.inputs[k])
        : first[k] == k   ? rewriter.at({earliest[k], 0})
                          : Edge{rewriter.graph().append(sub.graph.node(sub.inputs[k].node)), 0});
  Program program = rewriter.finish();
  made->graph = std::move(program.graph);
  made->outputs = std::move(program.fetches);
  return made;
}

// The others feed themselves.
std::shared_ptr<const SubGraph> body_of_first(const SubGraph& body,
                                              const std::vector<std::size_t>& first) {
  auto made = std::make_shared<SubGraph>(*reading_first(body, first));
  for (std::size_t k = 0; k < first.size(); ++k)
    if (first[k] != k) made->outputs[k] = made->inputs[k];
  return made;
}

void tell(std::vector<std::string>* told, const Node& loop, const std::vector<std::size_t>& first) {
  if (!told) return;
  std::vector<std::string> merged;
  for (std::size_t k = 0; k < first.size(); ++k)
    if (first[k] != k) merged.push_back(fmt::format("{} with {}", k, first[k]));
  told->push_back(fmt::format("While '{}' ({}): merged equal variable{} {}",
                              loop.attrs.get<std::string>("label"), loop.site.text(),
                              merged.size() == 1 ? "" : "s", fmt::join(merged, ", ")));
}

}  // namespace

Program merge_variables(Program program, std::vector<std::string>* told) {
  if (!has_loops(program)) return program;
  Rewriter rewriter(program);
  for (std::int32_t id = 0; id < program.graph.size(); ++id) {
    Node node = rewriter.translated(id);
    std::vector<std::size_t> first;  // by variable: the first one of its class; empty: all differ
    if (node.op->name == "While")
      if (const EqualVariables equal(rewriter.graph(), node); equal.is_any()) first = equal.first();
    if (first.empty()) {
      rewriter.replace(id, std::move(node));
      continue;
    }
    tell(told, node, first);
    const WhileView w(node);
    auto graphs = make_subgraphs({reading_first(w.condition, first), body_of_first(w.body, first)});
    node.attrs.set("graphs", std::move(graphs));
    const std::int32_t made = rewriter.graph().append(std::move(node));
    std::vector<Edge> results;
    for (const std::size_t k : first) results.push_back({made, static_cast<std::int32_t>(k)});
    rewriter.alias(id, results, made);
  }
  return rewriter.finish();
}

}  // namespace troupe
