#include <troupe/controlflow/drop_unused_outputs.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/controlflow/build.hpp>
#include <troupe/controlflow/liveness.hpp>
#include <troupe/ops/graph/node_index.hpp>
#include <troupe/ops/graph/specs_attr.hpp>

namespace troupe {
namespace {

using Place = Liveness::Place;

template <class T>
std::vector<T> kept(const std::vector<T>& all, const std::vector<char>& keep) {
  std::vector<T> out;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (keep[i]) out.push_back(all[i]);
  return out;
}

std::int64_t kept_of(const std::vector<char>& keep, std::size_t first) {
  return std::count(keep.begin(), keep.begin() + static_cast<std::ptrdiff_t>(first), 1);
}

// Returns the user's numbers of a loop's variables.
std::vector<std::int64_t> numbers_of(const WhileView& w) {
  std::vector<std::int64_t> numbers = w.numbers;
  while (numbers.size() < static_cast<std::size_t>(w.variables))
    numbers.push_back(static_cast<std::int64_t>(numbers.size()));
  return numbers;
}

// Writes live nodes and values into new graphs and functions.
class Remaining {
 public:
  Remaining(const Program& from, Liveness& live, std::vector<std::string>* told)
      : from_(from), live_(live), told_(told) {}

  Program run() {
    Program out;
    Copy top = copy(live_.outermost());
    for (Edge e : from_.feeds) out.feeds.push_back(top.at(e));
    for (Edge e : from_.fetches) out.fetches.push_back(top.at(e));
    out.graph = std::move(top.graph);
    while (!waiting_.empty()) {
      const Liveness::Version* version = waiting_.back();
      waiting_.pop_back();
      const Place& body = *version->body;
      made_.at(version)->body = sub_graph(body, live_.live_arguments(body), version->used);
    }
    std::vector<std::shared_ptr<FunctionDef>> functions;
    for (auto& [version, made] : made_) functions.push_back(made);
    analyse(functions);
    out.graph.set_functions(std::move(functions));
    return out;
  }

 private:
  // A graph under construction, with a map from old edges to its own.
  struct Copy {
    Graph graph;
    std::vector<std::vector<Edge>> edges;  // by node; a result that was dropped has node -1
    Edge at(Edge old) const { return edges[troupe::at(old.node)][troupe::at(old.output)]; }
  };

  Copy copy(const Place& place) {
    const Graph& g = *place.graph;
    Copy made{g.blank(), std::vector<std::vector<Edge>>(at(g.size()))};
    std::vector<std::int32_t> moved(at(g.size()), -1);
    for (std::int32_t id = 0; id < g.size(); ++id) {
      if (!place.needed[at(id)]) continue;
      const Node& node = g.node(id);
      if (live_.is_dropped_write(place, id)) {
        made.edges[at(id)] = {made.at(node.inputs[0])};
        moved[at(id)] = moved[at(node.inputs[0].node)];
        continue;
      }
      std::vector<char> outputs(node.outputs.size(), 1);
      Node now = node.op->evaluate ? smaller(place, id, outputs) : node;
      for (Edge& e : now.inputs) e = made.at(e);
      for (std::int32_t& c : now.controls) c = moved[at(c)];
      std::sort(now.controls.begin(), now.controls.end());
      now.controls.erase(std::unique(now.controls.begin(), now.controls.end()), now.controls.end());
      moved[at(id)] = made.graph.append(std::move(now));
      std::int32_t output = 0;
      for (char keep : outputs)
        made.edges[at(id)].push_back(keep ? Edge{moved[at(id)], output++} : Edge{});
    }
    return made;
  }

  std::shared_ptr<const SubGraph> sub_graph(const Place& place, const std::vector<char>& arguments,
                                            const std::vector<char>& outputs) {
    Copy made = copy(place);
    std::vector<Edge> inputs, results;
    for (std::size_t k = 0; k < arguments.size(); ++k) {
      if (!arguments[k]) continue;
      const Edge old = (*place.inputs)[k];
      // A sub-graph need not use all arguments that its siblings use.
      inputs.push_back(place.needed[at(old.node)] ? made.at(old)
                                                  : unused_argument(made, place, old));
    }
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (outputs[k]) results.push_back(made.at((*place.outputs)[k]));
    auto sub = std::make_shared<SubGraph>(std::move(made.graph));
    sub->inputs = std::move(inputs);
    sub->outputs = std::move(results);
    return sub;
  }

  static Edge unused_argument(Copy& made, const Place& place, Edge old) {
    return {made.graph.append(place.graph->node(old.node)), 0};
  }

  // A functional node as it is left, with old edges; `outputs` becomes which it has.
  Node smaller(const Place& place, std::int32_t id, std::vector<char>& outputs) {
    const Node& node = place.graph->node(id);
    outputs = live_.live_outputs(place, id);
    Node now = node;
    now.controls.insert(now.controls.end(), live_.effects_before(place, id).begin(),
                        live_.effects_before(place, id).end());
    if (const Liveness::Version* version = live_.called(place, id)) {
      const FunctionDef& function = *made_of(*version);
      outputs = version->used;
      outputs.resize(node.outputs.size(), 0);
      now.attrs.set("function", refer_to(function));
      now.outputs = function.results;
      now.inputs = kept(node.inputs, live_.live_arguments(*version->body));
      tell(place, id, "result", outputs);
      return now;
    }
    const std::vector<char>& arguments = live_.arguments_of(place, id);
    const bool is_loop = node.op->name == "While";
    // a loop's variables are both arguments and outputs
    std::vector<std::shared_ptr<const SubGraph>> graphs;
    const auto places = live_.inside(place, id);
    for (std::size_t i = 0; i < places.size(); ++i)
      graphs.push_back(sub_graph(
          *places[i], arguments,
          is_loop && i == 0 ? std::vector<char>(places[i]->outputs->size(), 1) : outputs));
    now.attrs.set("graphs", make_subgraphs(std::move(graphs)));
    now.outputs = kept(node.outputs, outputs);
    const auto own = std::min(
        static_cast<std::size_t>(node.attrs.get<std::int64_t>(is_loop ? "variables" : "results")),
        outputs.size());
    now.attrs.set(is_loop ? "variables" : "results", kept_of(outputs, own));
    std::vector<char> inputs;
    if (is_loop) {
      const WhileView w(node);
      now.attrs.set("implicit",
                    make_specs_attr(
                        kept(w.implicit, {outputs.begin() + w.explicit_variables, outputs.end()})));
      inputs.assign(outputs.begin(), outputs.begin() + w.explicit_variables);
      now.attrs.set("numbers", kept(numbers_of(w), outputs));
      inputs.insert(inputs.end(), arguments.begin() + w.variables, arguments.end());
    } else {
      inputs = arguments;
      inputs.insert(inputs.begin(), 1);  // the predicate
    }
    now.inputs = kept(node.inputs, inputs);
    tell(place, id, is_loop ? "variable" : "result", outputs);
    return now;
  }

  // There before its body is, which waits its turn: a chain of calls may be long, and come back.
  const FunctionDef* made_of(const Liveness::Version& version) {
    auto [it, is_new] = made_.try_emplace(&version);
    if (!is_new) return it->second.get();
    const FunctionDef& f = *version.function;
    auto made = it->second = std::make_shared<FunctionDef>();
    made->name = f.name;
    made->site = f.site;
    made->captured = f.captured;
    made->parameters = kept(f.parameters, live_.live_arguments(*version.body));
    made->results = kept(f.results, version.used);
    waiting_.push_back(&version);
    return made.get();
  }

  void tell(const Place& place, std::int32_t id, const char* what,
            const std::vector<char>& outputs) {
    if (!told_) return;
    std::vector<std::size_t> dropped;
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (!outputs[k]) dropped.push_back(k);
    if (dropped.empty()) return;
    told_->push_back(fmt::format("{}: removed {}{} {} of {}", place.graph->describe(id), what,
                                 dropped.size() == 1 ? "" : "s", fmt::join(dropped, ", "),
                                 outputs.size()));
  }

  const Program& from_;
  Liveness& live_;
  std::vector<std::string>* told_;
  std::map<const Liveness::Version*, std::shared_ptr<FunctionDef>, Liveness::InOrder> made_;
  std::vector<const Liveness::Version*> waiting_;  // whose bodies are not yet written
};

}  // namespace

Program drop_unused_outputs(Program program, std::vector<std::string>* told) {
  const auto& nodes = program.graph.nodes();
  if (std::none_of(nodes.begin(), nodes.end(), [](const Node& n) { return bool(n.op->evaluate); }))
    return program;
  Liveness live(program);
  if (!live.drops_any()) return program;
  return Remaining(program, live, told).run();
}

}  // namespace troupe
