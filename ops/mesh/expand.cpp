#include <troupe/ops/mesh/spmd.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/graph/subgraph.hpp>
#include <troupe/ops/mesh/flow.hpp>

namespace troupe::mesh::detail {
namespace {

using Integers = std::vector<std::int64_t>;

// A loop or a branch in an SPMD program, whose sub-graphs are cut.
void put_sub_graphs(Node& node, const SpmdFlow& flow) {
  std::vector<std::shared_ptr<const SubGraph>> subs;
  for (const auto& sub : flow.subs) {
    Program program = one_program(*sub);
    auto made = std::make_shared<SubGraph>(std::move(program.graph));
    made->inputs = std::move(program.feeds);
    made->outputs = std::move(program.fetches);
    subs.push_back(std::move(made));
  }
  node.attrs.set("graphs", make_subgraphs(std::move(subs)));
  if (!is_loop(node)) return;
  const auto given = static_cast<std::size_t>(node.attrs.get<std::int64_t>("variables"));
  std::vector<ValueSpec> implicit(node.outputs.begin() + static_cast<std::ptrdiff_t>(given),
                                  node.outputs.end());
  node.attrs.set("implicit", make_specs_attr(std::move(implicit)));
}

class Expansion {
 public:
  Expansion(const Program& program, const Mesh& mesh)
      : Expansion(program.graph, program.feeds, program.fetches, mesh) {}

  Program run() {
    expand_all();
    for (Edge e : feeds_) to_.feeds.push_back(on(e, 0));
    for (Edge e : fetches_) to_.fetches.push_back(on(e, 0));
    wait_for_updates();
    for (const auto& [pattern, pieces] : states_) to_.graph.settle(pattern, {});
    return std::move(to_);
  }

 private:
  Expansion(const Graph& graph, const std::vector<Edge>& feeds, const std::vector<Edge>& fetches,
            const Mesh& mesh)
      : from_(graph), feeds_(feeds), fetches_(fetches), mesh_(mesh), to_{graph.blank(), {}, {}} {
    to_.graph.reserve_origins(from_.origins());
  }

  // Sub-graphs have the arguments' and results' values one a device, or one for all.
  void take_arguments(const std::vector<char>& is_once) {
    for (std::size_t i = 0; i < feeds_.size(); ++i)
      if (!is_once[i]) everywhere_.insert(feeds_[i].node);
  }
  bool is_once(Edge e) const { return values_of(e).size() == 1; }
  std::shared_ptr<const SubGraph> sub_graph(const std::vector<char>& is_once) {
    auto made = std::make_shared<SubGraph>(Graph());
    for (Edge e : feeds_)
      for (Edge on_device : values_of(e)) made->inputs.push_back(on_device);
    for (std::size_t i = 0; i < is_once.size(); ++i)
      for (int device = 0; device < (is_once[i] ? 1 : mesh_.size()); ++device)
        made->outputs.push_back(on(fetches_[i], device));
    made->graph = std::move(to_.graph);
    return made;
  }

  // Groups that run once wait for all devices.
  bool runs_once(std::int32_t id) const {
    const Node& n = from_.node(id);
    if (n.device == kEveryDevice || everywhere_.contains(id)) return false;
    return n.op->name == "Group" ||
           std::all_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) { return is_once(e); });
  }
  bool is_flow(std::int32_t id) const {
    const Node& n = from_.node(id);
    if (n.op->name != "While" && !is_branch(n)) return false;
    const auto is_everywhere = [](const Node& inner) { return inner.device == kEveryDevice; };
    return !runs_once(id) ||
           std::any_of(subgraphs_of(n).begin(), subgraphs_of(n).end(), [&](const auto& sub) {
             const auto& nodes = sub->graph.nodes();
             return std::any_of(nodes.begin(), nodes.end(), is_everywhere);
           });
  }

  void expand_all() {
    for (std::int32_t id = 0; id < from_.size(); ++id) {
      const Node& node = from_.node(id);
      offset_.push_back(static_cast<std::int32_t>(values_.size()));
      values_.resize(values_.size() + node.outputs.size());
      copies_.emplace_back();
      Reader::AtSite site(to_.graph, node.site);
      const std::string& op = node.op->name;
      if (op == "MeshCoordinate") coordinates(id);
      else if (op == "MeshSlice") slice(id);
      else if (op == "MeshAllReduce") all_reduce(id);
      else if (op == "MeshReduceScatter") reduce_scatter(id);
      else if (op == "MeshAllGather") all_gather(id);
      else if (op == "MeshAllToAll") all_to_all(id);
      else if (op == "MeshShift") shift(id);
      else if (op == "MeshExport") gather_whole(id);
      else if (is_flow(id)) flow(id);
      else copy(id);
      // A node that waits for a collective waits for its results.
      if (copies_.back().empty())
        for (Edge e : values_of(id, 0)) copies_.back().push_back(e.node);
    }
  }

  // Whole values come from some devices. A fetch waits for the updates of pieces on the others.
  void wait_for_updates() {
    if (to_.fetches.empty() || states_.empty()) return;
    const std::vector<char> is_needed = needed_nodes(to_.graph, to_.feeds, to_.fetches);
    Node last;
    for (std::int32_t id = 0; id < from_.size(); ++id) {
      const Node& n = from_.node(id);
      if (!is_in_pieces(n.state) || n.op->name == "ReadVariable") continue;
      for (std::int32_t made : copies_[static_cast<std::size_t>(id)])
        if (!is_needed[static_cast<std::size_t>(made)]) last.controls.push_back(made);
    }
    if (last.controls.empty()) return;
    Edge& fetched = to_.fetches[0];
    last.op = &find_op("Identity");
    last.inputs = {fetched};
    last.outputs = {to_.graph.spec(fetched)};
    last.site = to_.graph.node(fetched.node).site;
    fetched = {to_.graph.append(std::move(last)), 0};
  }

  // A sub-graph's program lists no states: what its body reads is whole.
  bool is_in_pieces(std::int32_t state) const {
    const auto& all = from_.states();
    return state >= 0 && static_cast<std::size_t>(state) < all.size() &&
           all[static_cast<std::size_t>(state)].device == kEveryDevice;
  }
  // The state of a device's piece.
  std::int32_t piece_of(std::int32_t pattern, int device) {
    auto [it, is_new] = states_.try_emplace(pattern);
    if (is_new)
      for (int d = 0; d < mesh_.size(); ++d) {
        StateSpec piece = from_.states()[static_cast<std::size_t>(pattern)];
        piece.name = piece_name(piece.name, d);
        piece.device = mesh_.device(d);
        const Site site = piece.site;
        it->second.push_back(to_.graph.declare(piece, site));
      }
    return it->second[static_cast<std::size_t>(device)];
  }

  // The edge that stands for `e` on a device; of a node that runs once there is one for all.
  Edge on(Edge e, int device) const {
    const std::vector<Edge>& all = values_of(e);
    return all.size() == 1 ? all[0] : all[static_cast<std::size_t>(device)];
  }
  const std::vector<Edge>& values_of(Edge e) const {
    return values_[static_cast<std::size_t>(offset_[static_cast<std::size_t>(e.node)] + e.output)];
  }
  std::vector<Edge>& values_of(std::int32_t id, std::size_t output) {
    return values_[static_cast<std::size_t>(offset_[static_cast<std::size_t>(id)]) + output];
  }
  Expr input_on(std::int32_t id, int device) {
    return to_.graph.expr(on(from_.node(id).inputs[0], device));
  }
  void set(std::int32_t id, int device, const Expr& made) {
    std::vector<Edge>& all = values_of(id, 0);
    all.resize(static_cast<std::size_t>(mesh_.size()));
    all[static_cast<std::size_t>(device)] = made.edge();
  }

  // The nodes that a copy on a device waits for: those of the device, and those that run once. A
  // node that runs once waits for all.
  std::vector<std::int32_t> controls_on(std::int32_t id, int device, bool is_once) const {
    std::vector<std::int32_t> controls;
    for (std::int32_t c : from_.node(id).controls) {
      const auto& all = copies_[static_cast<std::size_t>(c)];
      if (!is_once && all.size() == static_cast<std::size_t>(mesh_.size()))
        controls.push_back(all[static_cast<std::size_t>(device)]);
      else controls.insert(controls.end(), all.begin(), all.end());
    }
    std::sort(controls.begin(), controls.end());
    controls.erase(std::unique(controls.begin(), controls.end()), controls.end());
    return controls;
  }

  void copy(std::int32_t id) {
    const bool is_once = runs_once(id);
    for (int device = 0; device < (is_once ? 1 : mesh_.size()); ++device) {
      Node node = from_.node(id);
      node.inputs.clear();
      for (Edge e : from_.node(id).inputs) {
        const std::vector<Edge>& all = values_of(e);
        // A group waits for all devices.
        if (is_once && node.op->name == "Group")
          node.inputs.insert(node.inputs.end(), all.begin(), all.end());
        else node.inputs.push_back(on(e, device));
      }
      if (is_in_pieces(node.state)) node.state = piece_of(node.state, device);
      node.controls = controls_on(id, device, is_once);
      if (!is_once) node.device = mesh_.device(device);
      const std::int32_t made = to_.graph.append(std::move(node));
      copies_.back().push_back(made);
      for (std::size_t o = 0; o < from_.node(id).outputs.size(); ++o)
        values_of(id, o).push_back({made, static_cast<std::int32_t>(o)});
    }
  }

  // A loop or a branch over all devices: its variables, captures and results are one a device.
  void flow(std::int32_t id) {
    Node node = from_.node(id);
    const std::span<const std::shared_ptr<const SubGraph>> subs = subgraphs_of(from_.node(id));
    const bool loops = node.op->name == "While";
    const auto copies = [&](bool is_once) { return is_once ? 1 : mesh_.size(); };
    const std::size_t variables = loops ? node.outputs.size() : 0;
    const std::size_t given =
        loops ? static_cast<std::size_t>(node.attrs.get<std::int64_t>("variables")) : 0;
    // Inputs are variables that begin with them, then captures; a branch's first one chooses.
    const auto argument_of = [&](std::size_t input) {
      return loops ? (input < given ? input : input - given + variables) : input - 1;
    };
    std::vector<char> argument_is_once(subs[0]->inputs.size(), 1);
    for (const auto& sub : subs)
      for (std::size_t a = 0; a < argument_is_once.size(); ++a)
        if (sub->graph.node(sub->inputs[a].node).device == kEveryDevice) argument_is_once[a] = 0;
    for (std::size_t i = loops ? 0 : 1; i < node.inputs.size(); ++i)
      if (!is_once(node.inputs[i])) argument_is_once[argument_of(i)] = 0;

    std::vector<char> known;  // the arguments of the part at hand
    std::vector<std::unique_ptr<Expansion>> parts;
    for (bool is_changed = true; is_changed;) {
      is_changed = false;
      parts.clear();
      known = argument_is_once;
      for (const auto& sub : subs) {
        parts.emplace_back(new Expansion(sub->graph, sub->inputs, sub->outputs, mesh_));
        parts.back()->take_arguments(known);
        parts.back()->expand_all();
        // The check of a loop's end takes the further results of its condition, too.
        if (loops && parts.size() == 1)
          for (std::size_t o = 1; o < sub->outputs.size(); ++o)
            known.push_back(parts[0]->is_once(sub->outputs[o]));
      }
      // A variable is on all devices if an iteration leaves it there: passes put other arguments.
      for (std::size_t k = 0; k < variables; ++k)
        if (argument_is_once[k] && !parts[1]->is_once(subs[1]->outputs[k])) {
          argument_is_once[k] = 0;
          is_changed = true;
        }
    }
    std::vector<char> result_is_once(
        argument_is_once.begin(),
        argument_is_once.begin() + static_cast<std::ptrdiff_t>(variables));
    if (!loops)
      for (std::size_t o = 0; o < node.outputs.size(); ++o)
        result_is_once.push_back(std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
          return part->is_once(part->fetches_[o]);
        }));

    std::vector<Edge> inputs;
    std::int64_t given_now = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const int n = !loops && i == 0 ? 1 : copies(argument_is_once[argument_of(i)]);
      for (int device = 0; device < n; ++device) inputs.push_back(on(node.inputs[i], device));
      if (loops && i < given) given_now += n;
    }
    node.controls = controls_on(id, 0, true);
    const std::vector<ValueSpec> outputs = std::exchange(node.outputs, {});
    std::vector<ValueSpec> implicit;
    Integers numbers;
    for (std::size_t o = 0; o < outputs.size(); ++o)
      for (int device = 0; device < copies(result_is_once[o]); ++device) {
        values_of(id, o).push_back({0, static_cast<std::int32_t>(node.outputs.size())});
        node.outputs.push_back(outputs[o]);
        if (loops && o >= given) implicit.push_back(outputs[o]);
        numbers.push_back(number_of(node, o));
      }
    if (loops) {
      node.attrs.set("variables", given_now);
      node.attrs.set("implicit", make_specs_attr(std::move(implicit)));
      node.attrs.set("numbers", numbers);
    } else node.attrs.set("results", static_cast<std::int64_t>(node.outputs.size()));
    std::vector<std::shared_ptr<const SubGraph>> made_subs;
    for (std::size_t s = 0; s < parts.size(); ++s) {
      std::vector<char> is_one(subs[s]->outputs.size(), 1);
      if (!loops || s == 1) is_one = result_is_once;
      else if (s == 0)
        std::copy(known.begin() + static_cast<std::ptrdiff_t>(argument_is_once.size()), known.end(),
                  is_one.begin() + 1);
      made_subs.push_back(parts[s]->sub_graph(is_one));
    }
    node.attrs.set("graphs", make_subgraphs(std::move(made_subs)));
    node.inputs = std::move(inputs);
    const std::int32_t made = to_.graph.append(std::move(node));
    copies_.back().push_back(made);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      for (Edge& e : values_of(id, o)) e.node = made;
  }
  static std::int64_t number_of(const Node& loop, std::size_t variable) {
    const AttrValue* known = loop.attrs.find("numbers");
    const Integers* numbers = known ? std::get_if<Integers>(known) : nullptr;
    return numbers && variable < numbers->size() ? (*numbers)[variable]
                                                 : static_cast<std::int64_t>(variable);
  }

  void coordinates(std::int32_t id) {
    const auto axis = static_cast<int>(from_.node(id).attrs.get<std::int64_t>("mesh_axis"));
    for (int device = 0; device < mesh_.size(); ++device) {
      const auto there = to_.graph.on_device(mesh_.device(device));
      set(id, device, to_.graph.constant(mesh_.coordinate(device, axis)));
    }
  }

  void slice(std::int32_t id) {
    const Node& node = from_.node(id);
    const auto &mesh_axes = node.attrs.get<Integers>("mesh_axes"),
               &axes = node.attrs.get<Integers>("axes");
    const Shape& piece = node.outputs[0].shape;
    const bool is_from_one = values_of(node.inputs[0]).size() == 1;
    for (int device = 0; device < mesh_.size(); ++device) {
      std::vector<std::int64_t> starts(static_cast<std::size_t>(piece.rank()), 0);
      for (std::size_t i = 0; i < axes.size(); ++i)
        starts[static_cast<std::size_t>(axes[i])] =
            mesh_.coordinate(device, static_cast<int>(mesh_axes[i])) *
            piece[static_cast<int>(axes[i])];
      const std::vector<std::int64_t> extents(piece.begin(), piece.end());
      // A whole value is cut where it lies: only the piece travels.
      const auto cut = [&] { return troupe::slice(input_on(id, device), starts, extents); };
      if (is_from_one) set(id, device, cut());
      else {
        const auto there = to_.graph.on_device(mesh_.device(device));
        set(id, device, cut());
      }
    }
  }

  // Calls `collective` once for each line of devices along a mesh axis.
  template <class Collective>
  void along(std::int32_t id, int axis, const Collective& collective) {
    for (int device = 0; device < mesh_.size(); ++device) {
      if (mesh_.coordinate(device, axis) != 0) continue;
      const std::vector<int> line = mesh_.line(device, axis);
      std::vector<std::string> devices;
      Exprs xs;
      for (int member : line) {
        devices.push_back(mesh_.device(member));
        xs.push_back(input_on(id, member));
      }
      const collective::Group group(
          fmt::format("mesh axis {}", mesh_.axes()[static_cast<std::size_t>(axis)].name),
          std::move(devices));
      const Exprs made = collective(group, xs);
      for (std::size_t i = 0; i < line.size(); ++i) set(id, line[i], made[i]);
    }
  }

  void all_reduce(std::int32_t id) {
    const Attrs& attrs = from_.node(id).attrs;
    const auto how = static_cast<collective::Combine>(attrs.get<std::int64_t>("combine"));
    along(
        id, static_cast<int>(attrs.get<std::int64_t>("mesh_axis")),
        [&](const auto& group, const Exprs& xs) { return collective::all_reduce(group, xs, how); });
  }
  void reduce_scatter(std::int32_t id) {
    const Attrs& attrs = from_.node(id).attrs;
    along(id, static_cast<int>(attrs.get<std::int64_t>("mesh_axis")),
          [&](const auto& group, const Exprs& xs) {
            return collective::reduce_scatter(group, xs, attrs.get<std::int64_t>("axis"));
          });
  }
  void all_gather(std::int32_t id) {
    const Attrs& attrs = from_.node(id).attrs;
    along(id, static_cast<int>(attrs.get<std::int64_t>("mesh_axis")),
          [&](const auto& group, const Exprs& xs) {
            return collective::all_gather(group, xs, attrs.get<std::int64_t>("axis"));
          });
  }
  void all_to_all(std::int32_t id) {
    const Attrs& attrs = from_.node(id).attrs;
    along(id, static_cast<int>(attrs.get<std::int64_t>("mesh_axis")),
          [&](const auto& group, const Exprs& xs) {
            return collective::all_to_all(group, xs, attrs.get<std::int64_t>("split_axis"),
                                          attrs.get<std::int64_t>("axis"));
          });
  }

  // Each device gets one value, the first ones none unless the values wrap.
  void shift(std::int32_t id) {
    const Node& node = from_.node(id);
    const int axis = static_cast<int>(node.attrs.get<std::int64_t>("mesh_axis"));
    const std::int64_t by = node.attrs.get<std::int64_t>("by");
    for (int device = 0; device < mesh_.size(); ++device) {
      const std::vector<int> line = mesh_.line(device, axis);
      const auto n = static_cast<std::int64_t>(line.size());
      std::int64_t from = mesh_.coordinate(device, axis) - by;
      if (node.attrs.get<bool>("wrap")) from = (from % n + n) % n;
      const auto there = to_.graph.on_device(mesh_.device(device));
      const ValueSpec& spec = node.outputs[0];
      set(id, device,
          from >= 0 && from < n ? identity(input_on(id, line[static_cast<std::size_t>(from)]))
                                : to_.graph.constant(Tensor::zeros(spec.dtype, spec.shape)));
    }
  }

  void gather_whole(std::int32_t id) {
    const auto& mesh_axes = from_.node(id).attrs.get<Integers>("mesh_axes");
    std::vector<Expr> pieces;
    std::vector<int> holders;
    for (int device = 0; device < mesh_.size(); ++device) pieces.push_back(input_on(id, device));
    // The first device along a mesh axis gets the joined piece, or has a copy of the value.
    const auto is_first = [&](int device, std::size_t done) {
      for (int axis = 0; axis < mesh_.rank(); ++axis) {
        const auto at = std::find(mesh_axes.begin(), mesh_axes.end(), axis) - mesh_axes.begin();
        const bool is_joined = at <= static_cast<std::ptrdiff_t>(done) ||
                               at == static_cast<std::ptrdiff_t>(mesh_axes.size());
        if (is_joined && mesh_.coordinate(device, axis) != 0) return false;
      }
      return true;
    };
    for (std::size_t i = 0; i < mesh_axes.size(); ++i) {
      if (mesh_axes[i] < 0) continue;
      for (int device = 0; device < mesh_.size(); ++device) {
        if (!is_first(device, i)) continue;
        Exprs joined;
        for (int member : mesh_.line(device, static_cast<int>(mesh_axes[i])))
          joined.push_back(pieces[static_cast<std::size_t>(member)]);
        pieces[static_cast<std::size_t>(device)] = concat(joined, static_cast<std::int64_t>(i));
      }
    }
    values_of(id, 0) = {pieces[0].edge()};
  }

  const Graph& from_;
  const std::vector<Edge>&feeds_, &fetches_;
  const Mesh& mesh_;
  Program to_;
  std::set<std::int32_t> everywhere_;                         // arguments that are one a device
  std::map<std::int32_t, std::vector<std::int32_t>> states_;  // the pieces, by their pattern
  std::vector<std::int32_t> offset_;               // the first output of each node in values_
  std::vector<std::vector<Edge>> values_;          // on each device, or one for all
  std::vector<std::vector<std::int32_t>> copies_;  // the copies of each node
};

}  // namespace

StateSpec piece_pattern(const LaidVariable& variable) {
  StateSpec pattern = variable.pieces[0].spec;
  pattern.name = variable.whole.name + "@mesh";
  pattern.device = kEveryDevice;
  return pattern;
}

std::string piece_name(const std::string& pattern, int device) {
  return fmt::format("{}/{}", pattern, device);
}

Program one_program(SpmdProgram spmd) {
  Program& from = spmd.program;
  Program made{from.graph.blank(), std::move(from.feeds), std::move(from.fetches)};
  made.graph.reserve_origins(from.graph.origins());
  for (std::int32_t id = 0; id < from.graph.size(); ++id) {
    Node node = from.graph.node(id);
    const bool is_once = spmd.is_once[static_cast<std::size_t>(id)];
    if (const auto flow = spmd.flows.find(id); flow != spmd.flows.end())
      put_sub_graphs(node, flow->second);
    else if (!is_once) node.device = kEveryDevice;
    if (const auto pieces = spmd.pieces.find(node.state); !is_once && pieces != spmd.pieces.end())
      node.state = pieces->second;
    made.graph.append(std::move(node));
  }
  return made;
}

Program expand(const Program& program, const Mesh& mesh) { return Expansion(program, mesh).run(); }

}  // namespace troupe::mesh::detail
