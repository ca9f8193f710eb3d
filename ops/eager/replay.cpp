#include <troupe/ops/eager/replay.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {
namespace {

bool is_compatible(const ValueSpec& value, const ValueSpec& wanted) {
  return value.depth == wanted.depth &&
         (wanted.depth == ValueSpec::kAnyDepth ||
          (value.dtype == wanted.dtype && value.shape.is_compatible(wanted.shape)));
}

// No part of `Replay::bind`, because its stack frame nests with calls.
[[noreturn, gnu::noinline]] void refuse_output(const Graph& from, std::int32_t id, std::size_t i,
                                               const ValueSpec& made) {
  throw Error(Code::internal,
              fmt::format("{}: inference expected {} of output {}, the kernel made {}",
                          from.describe(id), from.node(id).outputs[i].text(), i, made.text()));
}

// The smallest and largest origins in a graph, in its sub-graphs and in the functions it calls.
class OriginRange {
 public:
  void add(const Graph& graph, const std::set<std::int32_t>& except = {}) {
    for (std::int32_t id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (except.contains(id)) continue;
      if (node.origin > 0) smallest = std::min(smallest, node.origin);
      largest = std::max(largest, node.origin);
      for (const auto& sub : subgraphs_of(node)) add(sub->graph);
      const FunctionDef* f = function_of(node);
      if (f && f->body && functions_.insert(f).second) add(f->body->graph);
    }
  }
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t largest = 0;

 private:
  std::set<const FunctionDef*> functions_;
};

// Replays graphs that share states, functions and the shift of their origins.
class Replay {
 public:
  Replay(Reader& reader, std::span<const StateSpec> states)
      : graph_(dynamic_cast<Graph*>(&reader)), states_(states), numbers_(states.size(), -1) {}

  // Chooses the shift such that no node gets an origin that the reader's graph has given.
  void make_room(const Program& program) {
    if (!graph_) return;
    std::set<std::int32_t> fed;
    for (Edge e : program.feeds) fed.insert(e.node);
    OriginRange range;
    range.add(program.graph, fed);
    if (range.smallest <= graph_->origins()) shift_ = graph_->origins();
    graph_->reserve_origins(range.largest + shift_);
  }

  Exprs run(const Graph& from, std::span<const Edge> inputs, std::span<const Expr> arguments,
            std::span<const Edge> outputs, Reader& to) {
    std::vector<Exprs> values(static_cast<std::size_t>(from.size()));
    std::vector<std::int32_t> placed(values.size(), -1);  // as nodes of a graph
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      values[index(inputs[i].node)] = {arguments[i]};
      placed[index(inputs[i].node)] = arguments[i].edge().node;
    }
    for (std::int32_t id = 0; id < from.size(); ++id) {
      if (!values[index(id)].empty()) continue;
      const Node& node = from.node(id);
      Exprs operands;
      operands.reserve(node.inputs.size());
      for (Edge e : node.inputs) operands.push_back(values[index(e.node)][index(e.output)]);
      values[index(id)] = bind(from, id, operands, placed, to);
      if (graph_) placed[index(id)] = static_cast<const Graph&>(to).size() - 1;
    }
    Exprs out;
    out.reserve(outputs.size());
    for (Edge e : outputs) out.push_back(values[index(e.node)][index(e.output)]);
    return out;
  }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  [[gnu::noinline]] Exprs bind(const Graph& from, std::int32_t id, const Exprs& operands,
                               const std::vector<std::int32_t>& placed, Reader& to) {
    const Node& node = from.node(id);
    std::vector<std::int32_t> controls;
    if (graph_)
      for (std::int32_t c : node.controls) controls.push_back(placed[index(c)]);
    Attrs attrs = graph_ ? copied(node, to) : node.attrs;
    const int state = node.state < 0 ? -1 : number_of(node, to);
    const Reader::Replayed replayed{from, id, states_, controls, shift_};
    const Reader::Replaying replaying(to, replayed);
    Exprs out = to.bind(*node.op, operands, std::move(attrs), node.site, state);
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (const ValueSpec made = to.spec_of(out[i]); !is_compatible(made, node.outputs[i]))
        refuse_output(from, id, i, made);
    return out;
  }

  int number_of(const Node& node, Reader& to) {
    int& number = numbers_[index(node.state)];
    if (number < 0) {
      StateSpec spec = states_[index(node.state)];
      // Another graph declared it, and the reader shares it by name; actors must agree.
      if (spec.kind != StateSpec::Kind::actor) spec.site = Site();
      number = to.declare(spec, node.site);
    }
    return number;
  }

  // ---- on a graph: a functional node gets sub-graphs and functions of that graph

  [[gnu::noinline]] Attrs copied(const Node& node, Reader& to) {
    Attrs attrs = node.attrs;
    auto& outer = static_cast<Graph&>(to);
    if (const auto subs = subgraphs_of(node); !subs.empty()) {
      std::vector<std::shared_ptr<const SubGraph>> copies;
      for (const auto& sub : subs) copies.push_back(copied(*sub, outer));
      attrs.set("graphs", make_subgraphs(std::move(copies)));
    }
    if (const FunctionDef* f = function_of(node)) attrs.set("function", refer_to(copied(*f)));
    return attrs;
  }

  struct Close {
    Graph& graph;
    ~Close() { graph.close(); }
  };

  std::shared_ptr<SubGraph> copied(const SubGraph& from, Graph& outer) {
    auto to = std::make_shared<SubGraph>(outer, from.graph.what());
    const Close close{to->graph};
    fill(from, *to);
    to->graph.seal();
    return to;
  }

  void fill(const SubGraph& from, SubGraph& to) {
    Exprs arguments;
    for (Edge e : from.inputs) {
      arguments.push_back(to.graph.argument(from.graph.spec(e), from.graph.node(e.node).site));
      to.inputs.push_back(arguments.back().edge());
    }
    for (const Expr& e : run(from.graph, from.inputs, arguments, from.outputs, to.graph))
      to.outputs.push_back(e.edge());
  }

  const FunctionDef& copied(const FunctionDef& from) {
    if (const auto known = functions_.find(&from); known != functions_.end()) return *known->second;
    Graph& root = graph_->root();
    for (const auto& f : root.functions())
      if (f.get() == &from) return from;
    auto made = std::make_shared<FunctionDef>();
    made->name = from.name;
    made->site = from.site;
    made->parameters = from.parameters;
    made->results = from.results;
    FunctionDef& to = root.add_function(std::move(made));
    functions_.emplace(&from, &to);
    if (from.body) root.define(to, body_of(from, root));
    return to;
  }

  // A function belongs to the outermost graph, even while a sub-graph is being built.
  std::shared_ptr<const SubGraph> body_of(const FunctionDef& from, Graph& root) {
    auto body = std::make_shared<SubGraph>(Graph::detached(root, from.body->graph.what()));
    fill(*from.body, *body);
    const auto& inputs = from.body->inputs;
    const auto at = std::find(inputs.begin(), inputs.end(), from.body->graph.environment());
    if (at != inputs.end())
      body->graph.take_in_from(
          body->inputs[static_cast<std::size_t>(at - inputs.begin())],
          [name = from.name](Graph&, const Expr&, const Site& site) -> Expr {
            throw Error(Code::invalid_argument,
                        fmt::format("function '{}': a gradient uses a value at {} that its body "
                                    "does not use; use the value in the body",
                                    name, site.text()));
          });
    body->graph.seal();
    return body;
  }

  Graph* const graph_;  // null: the reader is no graph
  const std::span<const StateSpec> states_;
  std::vector<int> numbers_;  // the reader's numbers of the states
  std::uint64_t shift_ = 0;
  std::map<const FunctionDef*, FunctionDef*> functions_;
};

void require_fit(const Program& program, std::span<const Expr> arguments) {
  const Graph& graph = program.graph;
  if (arguments.size() != program.feeds.size())
    throw Error(Code::invalid_argument, fmt::format("{} values were fed to {} inputs",
                                                    arguments.size(), program.feeds.size()));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const ValueSpec& wanted = graph.spec(program.feeds[i]);
    const ValueSpec given = arguments[i].spec();
    if (!is_compatible(given, wanted))
      throw Error(Code::invalid_argument,
                  fmt::format("{} takes {}, not {}", graph.describe(program.feeds[i].node),
                              wanted.text(), given.text()));
  }
}

}  // namespace

Exprs replay(const Program& program, Reader& reader, std::span<const Expr> arguments) {
  Reader& here = reader.current();
  require_fit(program, arguments);
  Exprs mine;
  for (const Expr& e : arguments) mine.push_back(&e.reader() == &here ? e : here.adopt(e, Site()));
  Replay replay(here, program.graph.states());
  replay.make_room(program);
  return replay.run(program.graph, program.feeds, mine, program.fetches, here);
}

Exprs replay(const Graph& graph, Reader& reader, const std::vector<Expr>& feeds,
             std::span<const Expr> arguments, const std::vector<Expr>& fetches) {
  return replay(prune(graph, graph.edges_to_feed(feeds), graph.edges_to_fetch(fetches)), reader,
                arguments);
}

Exprs replay(const SubGraph& sub_graph, std::span<const StateSpec> states, Reader& reader,
             std::span<const Expr> arguments) {
  return Replay(reader, states)
      .run(sub_graph.graph, sub_graph.inputs, arguments, sub_graph.outputs, reader);
}

}  // namespace troupe
