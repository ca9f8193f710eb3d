#include <troupe/ops/mesh/join_all_reduces.hpp>

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::mesh::detail {
namespace {

class JoiningReduces {
 public:
  explicit JoiningReduces(SpmdProgram spmd)
      : from_(std::move(spmd)), graph_(from_.program.graph), group_of_(at(graph_.size()), -1) {
    to_.program.graph = graph_.blank();
    to_.program.graph.reserve_origins(graph_.origins());
    to_.pieces = from_.pieces;
    to_.told = from_.told;
    to_.layouts = from_.layouts;
  }

  SpmdProgram run() {
    find_order();
    find_groups();
    if (groups_.empty() && from_.flows.empty()) return std::move(from_);
    edges_.resize(at(graph_.size()));
    for (std::int32_t id = 0; id < graph_.size(); ++id) put(id);
    const auto moved = [&](const std::vector<Edge>& of) {
      std::vector<Edge> all;
      for (Edge e : of) all.push_back(edge(e));
      return all;
    };
    to_.program.feeds = moved(from_.program.feeds);
    to_.program.fetches = moved(from_.program.fetches);
    return std::move(to_);
  }

 private:
  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  Edge edge(Edge e) const { return edges_[at(e.node)][at(e.output)]; }

  // Effects on one state stay in order; so do all effects without one.
  void find_order() {
    std::map<std::int32_t, std::int32_t> last;
    before_.resize(at(graph_.size()));
    for (std::int32_t id = 0; id < graph_.size(); ++id) {
      const Node& n = graph_.node(id);
      std::vector<std::int32_t>& all = before_[at(id)];
      for (Edge e : n.inputs) all.push_back(e.node);
      all.insert(all.end(), n.controls.begin(), n.controls.end());
      std::vector<std::int32_t> states;
      if (n.state >= 0) states.push_back(n.state);
      if (n.op->evaluate)
        for (const auto& [state, effect] : effects_of(n)) states.push_back(state);
      if (n.op->side_effect && states.empty()) states.push_back(-1);
      for (std::int32_t state : states) {
        if (const auto it = last.find(state); it != last.end()) all.push_back(it->second);
        last[state] = id;
      }
    }
  }

  // All-reduces that are as deep do not depend on each other.
  void find_groups() {
    std::vector<int> depth(at(graph_.size()), 0);
    std::map<std::tuple<int, std::int64_t, DType>, std::vector<std::int32_t>> alike;
    for (std::int32_t id = 0; id < graph_.size(); ++id) {
      const Node& n = graph_.node(id);
      for (std::int32_t b : before_[at(id)])
        depth[at(id)] =
            std::max(depth[at(id)], depth[at(b)] + (graph_.node(b).op->name == "MeshAllReduce"));
      if (n.op->name == "MeshAllReduce" && n.attrs.get<std::int64_t>("combine") ==
                                               static_cast<std::int64_t>(collective::Combine::sum))
        alike[{depth[at(id)], n.attrs.get<std::int64_t>("mesh_axis"), n.outputs[0].dtype}]
            .push_back(id);
    }
    for (const auto& [key, members] : alike) {
      std::vector<std::int32_t> group;
      std::int64_t bytes = 0;
      const auto end = [&] {
        if (group.size() > 1) {
          for (std::int32_t id : group) group_of_[at(id)] = static_cast<int>(groups_.size());
          groups_.push_back(group);
        }
        group.clear();
        bytes = 0;
      };
      for (std::int32_t id : members) {
        const ValueSpec& spec = graph_.node(id).outputs[0];
        const std::int64_t size =
            spec.shape.elements() * static_cast<std::int64_t>(size_of(spec.dtype));
        if (bytes + size > kJoinedBytes) end();
        group.push_back(id);
        bytes += size;
      }
      end();
    }
  }

  // Puts a node behind all that it needs, and a group behind all that its members need.
  void put(std::int32_t first) {
    std::vector<std::int32_t> open{first};
    while (!open.empty()) {
      const std::int32_t id = open.back();
      if (!edges_[at(id)].empty() || is_put(id)) {
        open.pop_back();
        continue;
      }
      const int group = group_of_[at(id)];
      const std::vector<std::int32_t> members =
          group < 0 ? std::vector<std::int32_t>{id} : groups_[at(group)];
      const std::size_t waiting = open.size();
      for (std::int32_t member : members)
        for (std::int32_t b : before_[at(member)])
          if (!is_put(b)) open.push_back(b);
      if (open.size() > waiting) continue;
      open.pop_back();
      if (group < 0) copy(id);
      else join(members);
    }
  }
  bool is_put(std::int32_t id) const { return made_.contains(id); }

  void copy(std::int32_t id) {
    Node node = graph_.node(id);
    for (Edge& e : node.inputs) e = edge(e);
    for (std::int32_t& c : node.controls) c = made_.at(c);
    const std::int32_t made = to_.program.graph.append(std::move(node));
    to_.is_once.push_back(from_.is_once[at(id)]);
    if (at(id) < from_.notes.size()) note(made, from_.notes[at(id)]);
    made_[id] = made;
    if (const auto flow = from_.flows.find(id); flow != from_.flows.end()) {
      // Inside, as outside.
      SpmdFlow joined = flow->second;
      for (auto& sub : joined.subs)
        sub = std::make_shared<const SpmdProgram>(join_all_reduces(*sub));
      to_.flows.emplace(made, std::move(joined));
    }
    for (std::size_t o = 0; o < graph_.node(id).outputs.size(); ++o)
      edges_[at(id)].push_back({made, static_cast<std::int32_t>(o)});
  }

  Edge bind(const char* op, const std::vector<Edge>& inputs, Attrs attrs, const Node& like) {
    Exprs xs;
    for (Edge e : inputs) xs.push_back(to_.program.graph.expr(e));
    const Edge made =
        to_.program.graph.bind(find_op(op), xs, std::move(attrs), like.site)[0].edge();
    to_.is_once.resize(at(made.node) + 1, 0);
    return made;
  }

  void note(std::int32_t node, std::string text) {
    if (to_.notes.size() <= at(node)) to_.notes.resize(at(node) + 1);
    to_.notes[at(node)] = std::move(text);
  }

  void join(const std::vector<std::int32_t>& members) {
    const Node& first = graph_.node(members[0]);
    std::vector<Edge> flat;
    std::int64_t elements = 0;
    for (std::int32_t id : members) {
      const Node& n = graph_.node(id);
      flat.push_back(bind("Reshape", {edge(n.inputs[0])},
                          Attrs{{"shape", Shape{n.outputs[0].shape.elements()}}}, n));
      elements += n.outputs[0].shape.elements();
    }
    const Edge all = bind("Concat", flat, Attrs{{"axis", std::int64_t{0}}}, first);
    const Edge sum = bind("MeshAllReduce", {all}, first.attrs, first);
    note(sum.node, fmt::format("{} sums are one", members.size()));
    std::int64_t begin = 0;
    for (std::int32_t id : members) {
      const Node& n = graph_.node(id);
      const std::int64_t count = n.outputs[0].shape.elements();
      const Edge part = bind("Slice", {sum},
                             Attrs{{"starts", std::vector<std::int64_t>{begin}},
                                   {"extents", std::vector<std::int64_t>{count}}},
                             n);
      edges_[at(id)] = {bind("Reshape", {part}, Attrs{{"shape", n.outputs[0].shape}}, n)};
      made_[id] = edges_[at(id)][0].node;
      begin += count;
    }
    to_.told.push_back(fmt::format("{} all-reduces of {} elements in all are one, first for {}",
                                   members.size(), elements, graph_.describe(members[0])));
  }

  SpmdProgram from_;
  const Graph& graph_;
  SpmdProgram to_;
  std::vector<std::vector<std::int32_t>> before_;  // for each node, those that must precede it
  std::vector<int> group_of_;                      // for each node, or -1
  std::vector<std::vector<std::int32_t>> groups_;
  std::vector<std::vector<Edge>> edges_;       // the outputs of each node, once it is put
  std::map<std::int32_t, std::int32_t> made_;  // the node that stands for one
};

}  // namespace

SpmdProgram join_all_reduces(SpmdProgram spmd) { return JoiningReduces(std::move(spmd)).run(); }

}  // namespace troupe::mesh::detail
