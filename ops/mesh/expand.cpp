#include <troupe/ops/mesh/spmd.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::mesh::detail {
namespace {

using Integers = std::vector<std::int64_t>;

class Expansion {
 public:
  Expansion(const SpmdProgram& spmd, const Mesh& mesh)
      : spmd_(spmd), from_(spmd.program.graph), mesh_(mesh), to_{from_.blank(), {}, {}} {
    to_.graph.reserve_origins(from_.origins());
  }

  Program run() {
    expand_all();
    for (Edge e : spmd_.program.feeds) to_.feeds.push_back(on(e, 0));
    for (Edge e : spmd_.program.fetches) to_.fetches.push_back(on(e, 0));
    wait_for_updates();
    return std::move(to_);
  }

  // A sub-graph, whose arguments and results are one a device, or one. `is_once`: the results.
  std::shared_ptr<const SubGraph> sub_graph(const std::vector<char>& is_once) {
    expand_all();
    auto made = std::make_shared<SubGraph>(Graph());
    for (Edge e : spmd_.program.feeds)
      for (Edge on_device : values_of(e)) made->inputs.push_back(on_device);
    for (std::size_t i = 0; i < is_once.size(); ++i)
      for (int device = 0; device < (is_once[i] ? 1 : mesh_.size()); ++device)
        made->outputs.push_back(on(spmd_.program.fetches[i], device));
    made->graph = std::move(to_.graph);
    return made;
  }

 private:
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
      else if (spmd_.flows.contains(id)) flow(id);
      else copy(id);
    }
  }

  // Whole values come from some devices. A fetch waits for the updates of pieces on the others.
  void wait_for_updates() {
    if (to_.fetches.empty() || spmd_.pieces.empty()) return;
    const std::vector<char> is_needed = needed_nodes(to_.graph, to_.feeds, to_.fetches);
    Node last;
    for (std::int32_t id = 0; id < from_.size(); ++id) {
      const Node& n = from_.node(id);
      if (!spmd_.pieces.contains(n.state) || spmd_.is_once[static_cast<std::size_t>(id)] ||
          n.op->name == "ReadVariable")
        continue;
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

  void copy(std::int32_t id) {
    const bool is_once = spmd_.is_once[static_cast<std::size_t>(id)];
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
      if (const auto pieces = spmd_.pieces.find(node.state);
          !is_once && pieces != spmd_.pieces.end())
        node.state = pieces->second[static_cast<std::size_t>(device)];
      std::vector<std::int32_t> controls;
      for (std::int32_t c : node.controls) {
        const auto& all = copies_[static_cast<std::size_t>(c)];
        controls.insert(controls.end(), all.begin(), all.end());
      }
      std::sort(controls.begin(), controls.end());
      node.controls = std::move(controls);
      if (!is_once) node.device = mesh_.device(device);
      const std::int32_t made = to_.graph.append(std::move(node));
      copies_.back().push_back(made);
      for (std::size_t o = 0; o < from_.node(id).outputs.size(); ++o)
        values_of(id, o).push_back({made, static_cast<std::int32_t>(o)});
    }
  }

  // A loop or a branch over all devices: its variables, captures and results are one a device.
  void flow(std::int32_t id) {
    const SpmdFlow& flow = spmd_.flows.at(id);
    Node node = from_.node(id);
    const bool is_loop = node.op->name == "While";
    std::vector<char> argument_is_once;
    for (Edge e : flow.subs.back()->program.feeds)
      argument_is_once.push_back(flow.subs.back()->is_once[static_cast<std::size_t>(e.node)]);
    const auto copies = [&](bool is_once) { return is_once ? 1 : mesh_.size(); };
    const std::size_t variables = is_loop ? node.outputs.size() : 0;
    const std::size_t given =
        is_loop ? static_cast<std::size_t>(node.attrs.get<std::int64_t>("variables")) : 0;

    std::vector<Edge> inputs;
    std::int64_t given_now = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      // Inputs are variables that begin with them, then captures; a branch's first one chooses.
      const std::size_t argument = is_loop ? (i < given ? i : i - given + variables) : i - 1;
      const int n = !is_loop && i == 0 ? 1 : copies(argument_is_once[argument]);
      for (int device = 0; device < n; ++device) inputs.push_back(on(node.inputs[i], device));
      if (is_loop && i < given) given_now += n;
    }
    std::vector<std::int32_t> controls;
    for (std::int32_t c : node.controls) {
      const auto& all = copies_[static_cast<std::size_t>(c)];
      controls.insert(controls.end(), all.begin(), all.end());
    }
    std::sort(controls.begin(), controls.end());
    const std::vector<ValueSpec> outputs = std::exchange(node.outputs, {});
    std::vector<ValueSpec> implicit;
    Integers numbers;
    for (std::size_t o = 0; o < outputs.size(); ++o)
      for (int device = 0; device < copies(flow.is_once[o]); ++device) {
        values_of(id, o).push_back({0, static_cast<std::int32_t>(node.outputs.size())});
        node.outputs.push_back(outputs[o]);
        if (is_loop && o >= given) implicit.push_back(outputs[o]);
        numbers.push_back(number_of(node, o));
      }
    if (is_loop) {
      node.attrs.set("variables", given_now);
      node.attrs.set("implicit", make_specs_attr(std::move(implicit)));
      node.attrs.set("numbers", numbers);
    } else node.attrs.set("results", static_cast<std::int64_t>(node.outputs.size()));
    std::vector<std::shared_ptr<const SubGraph>> subs;
    for (std::size_t s = 0; s < flow.subs.size(); ++s)
      subs.push_back(Expansion(*flow.subs[s], mesh_)
                         .sub_graph(is_loop && s == 0 ? std::vector<char>{1} : flow.is_once));
    node.attrs.set("graphs", make_subgraphs(std::move(subs)));
    node.inputs = std::move(inputs);
    node.controls = std::move(controls);
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

  const SpmdProgram& spmd_;
  const Graph& from_;
  const Mesh& mesh_;
  Program to_;
  std::vector<std::int32_t> offset_;               // the first output of each node in values_
  std::vector<std::vector<Edge>> values_;          // on each device, or one for all
  std::vector<std::vector<std::int32_t>> copies_;  // the copies of each node
};

}  // namespace

Program expand(const SpmdProgram& spmd, const Mesh& mesh) { return Expansion(spmd, mesh).run(); }

}  // namespace troupe::mesh::detail
