#include <troupe/ops/mesh/instances.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/graph/subgraph.hpp>
#include <troupe/ops/mesh/flow.hpp>
#include <troupe/ops/mesh/spmd.hpp>

namespace troupe {

TROUPE_OP(MeshGive) {
  op.doc("Gives its input, or that it fired, to the MeshTake of the same `key`, across instances.");
  op.inputs(0, 1);
  op.takes_strings();
  op.attr<std::int64_t>("key");
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::boolean, Shape{}); });
}

TROUPE_OP(MeshTake) {
  op.doc("The value of the MeshGive of the same `key`; made by a pass, which states its spec.");
  op.inputs(0);
  op.takes_strings();
  op.attr<std::int64_t>("key");
  op.not_differentiable();
  op.infer([](Inference& c) { c.output(DType::boolean, Shape{}); });
}

}  // namespace troupe

namespace troupe::mesh::detail {
namespace {

using Integers = std::vector<std::int64_t>;

bool is_constant(const Node& n) {
  return n.op->name == "Constant" && n.inputs.empty() && n.controls.empty();
}

bool holds_everywhere(const Node& flow) {
  const auto& subs = subgraphs_of(flow);
  return std::any_of(subs.begin(), subs.end(), [](const auto& sub) {
    const auto& nodes = sub->graph.nodes();
    return std::any_of(nodes.begin(), nodes.end(), [](const Node& n) {
      return n.device == kEveryDevice || holds_everywhere(n);
    });
  });
}

// Finds for each node whether it runs once, as `expand` does.
std::vector<char> runs_once(const Graph& graph) {
  std::vector<char> once;
  for (const Node& n : graph.nodes()) {
    const bool is_apart =
        n.device == kEveryDevice || holds_everywhere(n) ||
        (n.op->name != "Group" && n.op->name != "MeshExport" &&
         std::any_of(n.inputs.begin(), n.inputs.end(),
                     [&](Edge e) { return !once[static_cast<std::size_t>(e.node)]; })) ||
        n.op->name == "MeshCoordinate" || n.op->name == "MeshSlice";
    once.push_back(!is_apart);
  }
  return once;
}

class Instances {
 public:
  Instances(const Program& from, const Mesh& mesh)
      : from_(from.graph), is_once_(runs_once(from.graph)), to_{from.graph.blank(), {}, {}},
        mesh_(std::make_shared<const MeshAttr>(mesh)), is_over_nodes_(nodes_of(mesh) > 1) {
    to_.graph.reserve_origins(from_.origins());
    for (std::int32_t id = 0; id < from_.size(); ++id) {
      offset_.push_back(static_cast<std::int32_t>(once_.size()));
      once_.resize(once_.size() + from_.node(id).outputs.size(), kNone);
    }
    each_ = once_;
    fired_.resize(static_cast<std::size_t>(from_.size()), -1);
    for (std::int32_t id = 0; id < from_.size(); ++id) add(id);
    for (Edge e : from.feeds) to_.feeds.push_back(once(e, e.node));
    for (Edge e : from.fetches) to_.fetches.push_back(once(e, e.node));
    for (const auto& [pattern, piece] : states_) to_.graph.settle(pattern, {});
  }

  Program take() { return std::move(to_); }

 private:
  static constexpr Edge kNone{-1, 0};

  const Node& node(std::int32_t id) const { return from_.node(id); }
  bool is_once(std::int32_t id) const { return is_once_[static_cast<std::size_t>(id)]; }
  std::size_t at(Edge e) const {
    return static_cast<std::size_t>(offset_[static_cast<std::size_t>(e.node)] + e.output);
  }

  // ---- crossings

  // A node beside `like`. Nodes of instances are on kInstances.
  std::int32_t append(const char* op, Attrs attrs, std::vector<Edge> inputs, ValueSpec output,
                      std::vector<std::int32_t> controls, const Node& like, bool is_of_instances) {
    Node n;
    n.op = &find_op(op);
    n.attrs = std::move(attrs);
    n.attrs.set("instances", std::shared_ptr<const AttrObject>(mesh_));
    n.inputs = std::move(inputs);
    n.outputs = {std::move(output)};
    n.controls = std::move(controls);
    n.scope = like.scope;
    n.site = like.site;
    n.origin = like.origin;
    if (is_of_instances) n.device = kInstances;
    return to_.graph.append(std::move(n));
  }
  // A pair of nodes. `to_instances`: one gives and each instance takes. Else those instances give
  // that hold a distinct piece (`mesh_axes`), or all if there is no value, and one takes.
  Edge cross(std::vector<Edge> given, std::vector<std::int32_t> after, const ValueSpec& taken,
             Attrs attrs, const Node& like, bool to_instances) {
    attrs.set("key", next_key_++);
    attrs.set("to_instances", to_instances);
    attrs.set("has_value", !given.empty());
    attrs.set("taken", make_specs_attr({taken}));
    Attrs taker = attrs;
    append("MeshGive", std::move(attrs), std::move(given), {DType::boolean, Shape{}},
           std::move(after), like, !to_instances);
    return {append("MeshTake", std::move(taker), {}, taken, {}, like, to_instances), 0};
  }
  std::int32_t copy_of_constant(std::int32_t id, bool is_of_instances) {
    Node copy = node(id);
    copy.device = is_of_instances ? kInstances : "";
    copy.name.clear();
    return to_.graph.append(std::move(copy));
  }

  // The value in one place: that of the first device. `user`: the node that needs it.
  Edge once(Edge e, std::int32_t user) {
    Edge& known = once_[at(e)];
    if (known.node >= 0) return known;
    if (is_constant(node(e.node))) return known = {copy_of_constant(e.node, false), 0};
    return known = cross({each_[at(e)]}, {}, from_.spec(e), Attrs{{"mesh_axes", Integers{}}},
                         node(user), false);
  }
  // The value on each device.
  Edge each(Edge e, std::int32_t user) {
    Edge& known = each_[at(e)];
    if (known.node >= 0) return known;
    // Feeds come to each partition that takes them.
    if (node(e.node).op->name == "Input") return known = once_[at(e)];
    if (is_constant(node(e.node))) return known = {copy_of_constant(e.node, true), 0};
    return known = cross({once_[at(e)]}, {}, from_.spec(e), {}, node(user), true);
  }
  // A value that is there when some nodes have fired on all devices.
  Edge all_fired(std::vector<std::int32_t> on_each, const Node& like) {
    std::sort(on_each.begin(), on_each.end());
    on_each.erase(std::unique(on_each.begin(), on_each.end()), on_each.end());
    return cross({}, std::move(on_each), {DType::boolean, Shape{}}, {}, like, false);
  }
  std::int32_t fired_for_each(std::int32_t once, const Node& like) {
    auto [it, is_new] = fired_for_each_.try_emplace(once);
    if (is_new) it->second = cross({}, {once}, {DType::boolean, Shape{}}, {}, like, true).node;
    return it->second;
  }

  // ---- nodes

  void add(std::int32_t id) {
    const Node& n = node(id);
    if (n.op->name == "MeshExport" && !is_once(n.inputs[0].node)) add_export(id);
    else if (n.op->name == "MeshExport") {
      once_[at({id, 0})] = once_[at(n.inputs[0])];
      fired_[static_cast<std::size_t>(id)] = once_[at(n.inputs[0])].node;
    } else if (n.op->name == "MeshSlice" && is_once(n.inputs[0].node) &&
               (is_over_nodes_ || node(n.inputs[0].node).op->name != "Input")) {
      add_cut(id);
    } else if (is_once(id)) add_once(id);
    else add_each(id);
  }
  void set(std::int32_t id, std::int32_t made, bool is_of_instances) {
    fired_[static_cast<std::size_t>(id)] = made;
    for (std::size_t o = 0; o < node(id).outputs.size(); ++o)
      (is_of_instances ? each_ : once_)[at({id, static_cast<std::int32_t>(o)})] = {
          made, static_cast<std::int32_t>(o)};
  }

  void add_export(std::int32_t id) {
    const Node& n = node(id);
    const Edge whole = cross({each_[at(n.inputs[0])]}, {}, n.outputs[0],
                             Attrs{{"mesh_axes", n.attrs.get<Integers>("mesh_axes")}}, n, false);
    once_[at({id, 0})] = whole;
    fired_[static_cast<std::size_t>(id)] = whole.node;
  }
  // A whole value is cut where it lies: each device takes its piece.
  void add_cut(std::int32_t id) {
    const Node& n = node(id);
    const Edge piece = cross({once_[at(n.inputs[0])]}, {}, n.outputs[0],
                             Attrs{{"cut_axes", n.attrs.get<Integers>("axes")},
                                   {"cut_mesh_axes", n.attrs.get<Integers>("mesh_axes")},
                                   {"piece", n.outputs[0].shape}},
                             n, true);
    each_[at({id, 0})] = piece;
    fired_[static_cast<std::size_t>(id)] = piece.node;
  }

  void add_once(std::int32_t id) {
    Node made = node(id);
    made.inputs.clear();
    std::vector<std::int32_t> on_each;
    for (Edge e : node(id).inputs)
      if (made.op->name == "Group" && !is_once(e.node)) on_each.push_back(each_[at(e)].node);
      else made.inputs.push_back(once(e, id));
    std::vector<std::int32_t> controls;
    for (std::int32_t c : node(id).controls)
      if (node(c).op->name == "MeshExport" || is_once(c))
        controls.push_back(fired_[static_cast<std::size_t>(c)]);
      else on_each.push_back(fired_[static_cast<std::size_t>(c)]);
    if (!on_each.empty()) {
      const Edge all = all_fired(std::move(on_each), node(id));
      if (made.op->name == "Group") made.inputs.push_back(all);
      else controls.push_back(all.node);
    }
    made.controls = std::move(controls);
    set(id, to_.graph.append(std::move(made)), false);
  }

  void add_each(std::int32_t id) {
    Node made = node(id);
    made.inputs.clear();
    for (Edge e : node(id).inputs) made.inputs.push_back(each(e, id));
    made.controls.clear();
    for (std::int32_t c : node(id).controls) {
      const std::int32_t there = fired_[static_cast<std::size_t>(c)];
      if (!is_once(c)) made.controls.push_back(there);
      else if (node(c).op->name != "Input" && !is_constant(node(c)))
        made.controls.push_back(fired_for_each(there, node(id)));
    }
    if (is_in_pieces(made.state)) made.state = first_piece(made.state);
    on_each(made);
    set(id, to_.graph.append(std::move(made)), true);
  }
  // A node of all devices. Loops and branches go where their sub-graphs are.
  void on_each(Node& made) {
    const bool meets = made.op->name.starts_with("Mesh");
    if (meets) made.attrs.set("key", next_key_++);
    if (meets || made.state >= 0)
      made.attrs.set("instances", std::shared_ptr<const AttrObject>(mesh_));
    if (subgraphs_of(made).empty()) {
      made.device = kInstances;
      return;
    }
    std::vector<std::shared_ptr<const SubGraph>> subs;
    for (const auto& sub : subgraphs_of(made)) {
      Graph graph = sub->graph.blank();
      for (const Node& n : sub->graph.nodes()) {
        Node inner = n;
        on_each(inner);
        graph.append(std::move(inner));
      }
      auto copy = std::make_shared<SubGraph>(std::move(graph));
      copy->inputs = sub->inputs;
      copy->outputs = sub->outputs;
      subs.push_back(std::move(copy));
    }
    made.attrs.set("graphs", make_subgraphs(std::move(subs)));
  }

  bool is_in_pieces(std::int32_t state) const {
    return state >= 0 && from_.states()[static_cast<std::size_t>(state)].device == kEveryDevice;
  }
  // The state of the first device's piece stands for all.
  std::int32_t first_piece(std::int32_t pattern) {
    auto [it, is_new] = states_.try_emplace(pattern);
    if (is_new) {
      StateSpec piece = from_.states()[static_cast<std::size_t>(pattern)];
      piece.name = piece_name(piece.name, 0);
      piece.device = kInstances;
      const Site site = piece.site;
      it->second = to_.graph.declare(piece, site);
    }
    return it->second;
  }

  const Graph& from_;
  const std::vector<char> is_once_;  // by node
  Program to_;
  const std::shared_ptr<const MeshAttr> mesh_;
  const bool is_over_nodes_;  // pieces of a feed travel, in the place of a whole one to each node
  std::int64_t next_key_ = 0;
  std::vector<std::int32_t> offset_;  // the first output of each node in once_ and each_
  std::vector<Edge> once_, each_;     // by value; kNone: not there
  std::vector<std::int32_t> fired_;   // by node: the new node that stands for it
  std::map<std::int32_t, std::int32_t> fired_for_each_;  // by new node that runs once
  std::map<std::int32_t, std::int32_t> states_;          // by pattern: the first piece
};

}  // namespace

namespace {

bool is_flow(const Node& n) { return n.op->name == "While" || is_branch(n); }

std::string why_no_meeting(const Graph& g, std::int32_t id) {
  const Node& n = g.node(id);
  const bool is_mean =
      n.op->name == "MeshAllReduce" &&
      n.attrs.get<std::int64_t>("combine") == static_cast<std::int64_t>(collective::Combine::mean);
  return is_mean ? fmt::format("{} is a mean", g.describe(id)) : std::string();
}

// In a loop or branch that runs on all devices, each device runs all nodes: those that run once
// too, if they are small and have no effect.
std::string why_not_inside(const Graph& g) {
  constexpr std::int64_t kSmall = 4096;  // elements
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (std::string why = why_no_meeting(g, id); !why.empty()) return why;
    if (!n.op->evaluate && (n.state >= 0 || n.op->effect != Effect::none || n.op->side_effect))
      return fmt::format("{} has an effect in a loop or branch over devices", g.describe(id));
    if (n.op->evaluate && !is_flow(n))
      return fmt::format("{} is called in a loop or branch over devices", g.describe(id));
    for (const auto& sub : subgraphs_of(n))
      if (std::string why = why_not_inside(sub->graph); !why.empty()) return why;
    if (n.device == kEveryDevice || n.op->name == "Input" || is_flow(n)) continue;
    if (!n.device.empty())
      return fmt::format("{} is on {} in a loop or branch over devices", g.describe(id), n.device);
    for (const ValueSpec& spec : n.outputs)
      if (spec.is_list() || !spec.shape.is_known() || spec.shape.elements() > kSmall)
        return fmt::format("{} runs once in a loop or branch over devices", g.describe(id));
  }
  return {};
}

}  // namespace

std::string why_not_instances(const Program& program) {
  const Graph& g = program.graph;
  const std::vector<char> once = runs_once(g);
  const auto is_apart = [&](std::int32_t id) { return !once[static_cast<std::size_t>(id)]; };
  for (std::int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (std::string why = why_no_meeting(g, id); !why.empty()) return why;
    if (n.op->evaluate && is_apart(id)) {
      if (!is_flow(n)) return fmt::format("{} takes values of all devices", g.describe(id));
      for (const auto& sub : subgraphs_of(n))
        if (std::string why = why_not_inside(sub->graph); !why.empty()) return why;
    }
    if (n.device == kInstances) return fmt::format("{} is on {}", g.describe(id), kInstances);
    for (Edge e : n.inputs)
      if (is_apart(id) != is_apart(e.node) && g.spec(e).is_list())
        return fmt::format("a list of {} goes to {}", g.describe(e.node), g.describe(id));
    if (n.op->name == "MeshExport" && !is_apart(n.inputs[0].node))
      for (std::int64_t axis : n.attrs.get<Integers>("mesh_axes"))
        if (axis >= 0) return fmt::format("{} joins a whole value", g.describe(id));
  }
  for (Edge e : program.fetches) {
    if (g.node(e.node).op->name == "Input") return "a feed is fetched as it is";
    if (is_apart(e.node) && g.spec(e).is_list()) return "a list of all devices is fetched";
  }
  return {};
}

Program by_instances(const Program& program, const Mesh& mesh) {
  return Instances(program, mesh).take();
}

int nodes_of(const Mesh& mesh) {
  std::set<std::string_view> nodes;
  for (const std::string& device : mesh.devices()) nodes.insert(node_of(device));
  return static_cast<int>(nodes.size());
}

const Mesh* mesh_of_instances(const Graph& program) {
  for (const Node& n : program.nodes())
    if (const AttrValue* value = n.attrs.find("instances"))
      if (const auto* object = std::get_if<std::shared_ptr<const AttrObject>>(value))
        if (const auto* mesh = dynamic_cast<const MeshAttr*>(object->get())) return &mesh->mesh;
  return nullptr;
}

bool meets_others(const Node& node) {
  return node.op->name.starts_with("Mesh") && node.attrs.has("instances");
}

StateSpec piece_of_instance(StateSpec state, const Mesh& mesh, int instance) {
  if (short_name(state.device) != kInstances) return state;
  const std::size_t last = state.name.rfind('/');
  state.name = piece_name(state.name.substr(0, last), instance);
  state.device = full_name(mesh.device(instance), node_of(state.device));
  return state;
}

}  // namespace troupe::mesh::detail
