#include <troupe/controlflow/resident/early_reads.hpp>

#include <algorithm>
#include <map>

#include <troupe/controlflow/build.hpp>
#include <troupe/ops/graph/node_index.hpp>

namespace troupe {
namespace {

bool is_variable_read(const Node& node) { return node.op->name == "ReadVariable"; }

// The first read in the node or in a sub-graph of it; empty: there is none.
std::string read_in(const Graph& graph, std::int32_t id) {
  if (is_variable_read(graph.node(id))) return graph.describe(id);
  for (const auto& sub : subgraphs_of(graph.node(id)))
    for (std::int32_t inner = 0; inner < sub->graph.size(); ++inner)
      if (std::string found = read_in(sub->graph, inner); !found.empty()) return found;
  return {};
}

class ReadMover {
 public:
  explicit ReadMover(const Node& loop) : loop_(loop) {}

  std::optional<EarlyReads> run() {
    const WhileView w(loop_);
    find(w.body);
    if (reads_.empty()) return std::nullopt;
    EarlyReads made{{}, loop_};
    const auto graphs = subgraphs_of(loop_);
    // The check of a condition has what the condition told after the captures.
    const auto arguments = at(w.variables + w.captures);
    std::vector<std::shared_ptr<const SubGraph>> changed;
    for (const auto& sub : graphs) changed.push_back(without_reads(*sub, arguments));
    made.loop.attrs.set("graphs", make_subgraphs(std::move(changed)));
    for (const auto& [state, read] : reads_) {
      made.reads.push_back(read);
      made.reads.back().controls.clear();
      made.loop.inputs.push_back({-1, 0});
    }
    return made;
  }

 private:
  // Nothing in a loop that stays whole waits for anything outside of it. A control edge of a read
  // in it orders nothing that could be seen.
  bool is_moved(const Node& node) const {
    const auto is_fixed = [](const ValueSpec& spec) {
      return !spec.is_list() && spec.dtype != DType::string && spec.shape.is_known();
    };
    return is_variable_read(node) && node.device == loop_.device && is_fixed(node.outputs[0]);
  }

  bool find(const SubGraph& sub) {
    bool has_any = false;
    for (const Node& node : sub.graph.nodes()) {
      if (is_moved(node)) {
        reads_.try_emplace(node.state, node);
        has_any = true;
      }
      if (node.op->name != "Case") continue;
      bool has_case = false;
      for (const auto& branch : subgraphs_of(node)) has_case |= find(*branch);
      has_any |= has_case;
      if (has_case) cases_.push_back(&node);
    }
    return has_any;
  }

  // Returns the sub-graph with an argument for each variable at `place`.
  std::shared_ptr<const SubGraph> without_reads(const SubGraph& sub, std::size_t place) const {
    const Program from{sub.graph, sub.inputs, sub.outputs};
    Rewriter rewriter(from);
    std::map<std::int32_t, Edge> values;  // by state
    std::vector<Edge> more;
    for (const auto& [state, read] : reads_) {
      more.push_back({rewriter.graph().append(argument(read)), 0});
      values[state] = more.back();
    }
    for (std::int32_t id = 0; id < sub.graph.size(); ++id) {
      const Node& node = sub.graph.node(id);
      if (is_moved(node) && values.contains(node.state)) {
        rewriter.alias(id, {values.at(node.state)}, -1);
      } else if (std::find(cases_.begin(), cases_.end(), &node) != cases_.end()) {
        Node made = rewriter.translated(id);
        made.inputs.insert(made.inputs.end(), more.begin(), more.end());
        std::vector<std::shared_ptr<const SubGraph>> branches;
        for (const auto& branch : subgraphs_of(node))
          branches.push_back(without_reads(*branch, branch->inputs.size()));
        made.attrs.set("graphs", make_subgraphs(std::move(branches)));
        rewriter.replace(id, std::move(made));
      } else {
        rewriter.keep(id);
      }
    }
    Program made = rewriter.finish();
    auto changed = std::make_shared<SubGraph>(std::move(made.graph));
    changed->inputs = std::move(made.feeds);
    changed->inputs.insert(changed->inputs.begin() + static_cast<std::ptrdiff_t>(place),
                           more.begin(), more.end());
    changed->outputs = std::move(made.fetches);
    return changed;
  }

  static Node argument(const Node& read) {
    Node n;
    n.op = &find_op("Input");
    n.scope = read.scope;
    n.site = read.site;
    n.origin = read.origin;
    n.outputs = read.outputs;
    n.attrs = Attrs{{"dtype", read.outputs[0].dtype}, {"shape", read.outputs[0].shape}};
    return n;
  }

  const Node& loop_;
  std::map<std::int32_t, Node> reads_;  // by state, the first of each
  std::vector<const Node*> cases_;      // with such reads
};

// Returns by node whether one of the outputs depends on it.
std::vector<char> needed_by(const SubGraph& sub, const std::vector<Edge>& outputs) {
  std::vector<char> needed(at(sub.graph.size()), 0);
  for (Edge e : outputs) needed[at(e.node)] = 1;
  for (std::int32_t id = sub.graph.size() - 1; id >= 0; --id) {
    if (!needed[at(id)]) continue;
    for (Edge e : sub.graph.node(id).inputs) needed[at(e.node)] = 1;
  }
  return needed;
}

}  // namespace

std::optional<EarlyReads> early_reads(const Node& loop) { return ReadMover(loop).run(); }

std::string why_reads_stay(const Node& loop) {
  const WhileView w(loop);
  const auto because = [](const std::string& read) {
    return read + " decides whether it goes on, and another run may change that";
  };
  for (std::int32_t id = 0; id < w.condition.graph.size(); ++id)
    if (const std::string read = read_in(w.condition.graph, id); !read.empty())
      return because(read);
  // Variables on which the predicate depends, in this iteration or in a later one.
  std::vector<char> decides(at(w.variables), 0);
  std::vector<char> needed = needed_by(w.condition, {w.condition.outputs[0]});
  const SubGraph* of = &w.condition;
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    std::vector<Edge> next;
    for (std::size_t k = 0; k < decides.size(); ++k) {
      if (!decides[k] && needed[at(of->inputs[k].node)]) decides[k] = has_changed = true;
      if (decides[k]) next.push_back(w.body.outputs[k]);
    }
    needed = needed_by(w.body, next);
    of = &w.body;
  }
  for (std::int32_t id = 0; id < w.body.graph.size(); ++id)
    if (needed[at(id)])
      if (const std::string read = read_in(w.body.graph, id); !read.empty()) return because(read);
  return {};
}

}  // namespace troupe
