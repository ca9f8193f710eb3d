// Variables that are stored in pieces: which they are, and their nodes.
#include <troupe/ops/mesh/lowering.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::mesh::detail {
namespace {

// A rule for this dimension holds for variables that are named below another: `w/adam/m`.
constexpr std::string_view kSlots = "slots/";

bool is_access(const Node& n) {
  for (const char* op :
       {"ReadVariable", "AssignVariable", "AssignAdd", "AssignSub", "ScatterVariable"})
    if (n.op->name == op) return true;
  return false;
}

bool is_slot(const Graph& graph, const std::string& name) {
  return std::any_of(graph.states().begin(), graph.states().end(), [&](const StateSpec& s) {
    return s.kind == StateSpec::Kind::variable && name.size() > s.name.size() &&
           name.starts_with(s.name) && name[s.name.size()] == '/';
  });
}

// The variables that nodes use in no other way than as wholes of their own, at top level.
std::set<std::int32_t> plain_variables(const Graph& graph) {
  std::set<std::int32_t> plain, other;
  for (const Node& n : graph.nodes()) {
    if (n.op->evaluate)
      for (const auto& [state, effect] : effects_of(n)) other.insert(state);
    if (n.state < 0) continue;
    const StateSpec& spec = graph.states()[static_cast<std::size_t>(n.state)];
    const bool fits = spec.kind == StateSpec::Kind::variable && spec.device.empty() &&
                      n.device.empty() && is_access(n) && spec.values[0].shape.is_known() &&
                      spec.values[0].dtype != DType::string;
    (fits ? plain : other).insert(n.state);
  }
  for (std::int32_t state : other) plain.erase(state);
  return plain;
}

}  // namespace

bool Lowering::is_used(const std::string& rule) const {
  const bool is_of_slots = rule.starts_with(kSlots);
  return names_.dims().has(is_of_slots ? rule.substr(kSlots.size()) : rule);
}

int Lowering::rule_of_slot(DimId d) const {
  return names_.dims().is_named(d) ? rule_named(std::string(kSlots) + dims()[d].name) : -1;
}

Axes Lowering::axes_of_variable(std::int32_t state) const {
  for (std::int32_t id = 0; id < from_.size(); ++id)
    if (from_.node(id).state == state) return names_.of(Edge{id, 0});
  return {};
}

VariableHomes::Laid Lowering::pieces_of(const StateSpec& spec, const Stored& stored) const {
  LaidVariable laid;
  laid.whole = spec;
  const Shape local = local_shape(stored.axes, stored.splits);
  std::vector<std::string> axes;
  for (std::size_t a = 0; a < stored.axes.size(); ++a) {
    axes.push_back(dims().text(stored.axes[a]));
    for (int m : stored.splits[a])
      if (m >= 0) axes.back() += "/" + axis_name(m);
  }
  laid.text = fmt::format("[{}] over mesh {}", fmt::join(axes, ", "), text_of(mesh_.axes()));
  if (!shared_mesh_) shared_mesh_ = std::make_shared<const Mesh>(mesh_);
  laid.mesh = shared_mesh_;
  std::vector<int> split_along;  // by axis: a mesh axis, or -1
  for (const std::vector<int>& splits : stored.splits)
    split_along.push_back(splits.empty() ? -1 : splits[0]);
  laid.pieces = Pieces(mesh_.size(), [mesh = shared_mesh_, pattern = spec.name + "@mesh",
                                      value = ValueSpec{spec.values[0].dtype, local},
                                      site = spec.site, split_along](int device) {
    Piece piece;
    piece.spec.kind = StateSpec::Kind::variable;
    piece.spec.name = piece_name(pattern, device);
    piece.spec.values = {value};
    piece.spec.initial = Initializer::constant(0);
    piece.spec.device = mesh->device(device);
    piece.spec.site = site;
    for (std::size_t a = 0; a < split_along.size(); ++a) {
      const int m = split_along[a];
      piece.starts.push_back(
          m < 0 ? 0 : mesh->coordinate(device, m) * value.shape[static_cast<int>(a)]);
    }
    return piece;
  });
  return std::make_shared<const LaidVariable>(std::move(laid));
}

void Lowering::lay_out_variables(VariableHomes* homes) {
  for (std::int32_t state : plain_variables(from_)) {
    const StateSpec& spec = from_.states()[static_cast<std::size_t>(state)];
    Stored stored;
    if (!names_of_variables_.contains(state)) continue;
    stored.axes = axes_of_variable(state);
    stored.splits = rules(stored.axes);
    bool is_simple = true;  // each axis is one block on a device
    for (std::size_t a = 0; a < stored.axes.size(); ++a) {
      for (std::size_t f = 0; f < stored.axes[a].size(); ++f) {
        int& m = stored.splits[a][f];
        if (const int of_slot = rule_of_slot(stored.axes[a][f]);
            of_slot >= 0 && m < 0 && is_slot(from_, spec.name))
          m = of_slot;
        is_simple = is_simple && (m < 0 || f == 0);
      }
    }
    for (std::int32_t id = 0; id < from_.size(); ++id) {
      const Node& n = from_.node(id);
      if (n.state != state) continue;
      at_ = id;
      require_legal(stored.axes, stored.splits);
      const bool has_split_rows =
          !stored.splits.empty() && !stored.splits[0].empty() && stored.splits[0][0] >= 0;
      // Rows that other devices hold cannot be left as they are by setting rows.
      if (n.op->name == "ScatterVariable" &&
          n.attrs.get<std::int64_t>("mode") == static_cast<std::int64_t>(Scatter::update))
        is_simple = is_simple && !has_split_rows;
    }
    if (!is_simple) continue;
    stored.laid = pieces_of(spec, stored);
    if (homes) {
      const VariableHomes::Laid known = homes->find(spec);
      if (known && !known->is_same_arrangement(*stored.laid)) continue;
      if (!known && !homes->may_lay_out(spec)) continue;
      if (known) stored.laid = known;
      else homes->made.push_back(stored.laid);
    }
    stored_[state] = std::move(stored);
  }
  find_wishes();
}

std::vector<std::string> Lowering::stored_names() const {
  std::vector<std::string> names;
  for (const auto& [state, stored] : stored_) names.push_back(stored.laid->whole.name);
  return names;
}

// Values that only make updates of a variable which is split further are computed in its pieces.
void Lowering::find_wishes() {
  for (std::int32_t id = from_.size() - 1; id >= 0; --id) {
    const Node& n = from_.node(id);
    const auto stored = stored_.find(n.state);
    if (stored != stored_.end() && n.inputs.size() == 1 &&
        stored->second.splits != rules(stored->second.axes))
      ++wishes_[n.inputs[0]][stored->second.splits];
    const Edge out{id, 0};
    if (!n.op->pointwise || n.outputs.size() != 1 || !has_wish(out)) continue;
    for (Edge e : n.inputs)
      if (from_.spec(e).shape == n.outputs[0].shape) ++wishes_[e][wishes_.at(out).begin()->first];
  }
}
// True if all uses of a value ask for the same splits.
bool Lowering::has_wish(Edge e) const {
  const auto wish = wishes_.find(e);
  return wish != wishes_.end() && wish->second.size() == 1 &&
         wish->second.begin()->second == uses_.at(e);
}

// Reads and updates in place.
void Lowering::run_on_stored() {
  const Stored& stored = stored_.at(node().state);
  Attrs attrs = node().attrs;
  const Shape local = local_shape(stored.axes, stored.splits);
  attrs.set("shape", local);
  std::vector<Edge> inputs;
  if (node().op->name == "ScatterVariable") inputs = rows_for_stored(stored);
  else if (!node().inputs.empty()) {
    const std::string why = fmt::format("{} is stored so", stored.laid->whole.text());
    Laid v = input(0);
    // A value of fewer axes, or of extent 1, is repeated.
    const Shape shape = from_.spec(node().inputs[0]).shape;
    const std::size_t lacking = stored.axes.size() - v.axes.size();
    Axes axes;
    Splits splits;
    for (std::size_t a = 0; a < v.axes.size(); ++a) {
      const bool is_repeated = shape[static_cast<int>(a)] == 1;
      axes.push_back(is_repeated ? v.axes[a] : stored.axes[a + lacking]);
      splits.push_back(is_repeated ? std::vector<int>(v.axes[a].size(), -1)
                                   : stored.splits[a + lacking]);
    }
    inputs = {settled(std::move(v), axes, splits, why, may_scatter(0)).edge};
  }
  Laid v;
  v.edge = {emit(std::move(attrs), std::move(inputs), false), 0};
  v.axes = stored.axes;
  v.splits = stored.splits;
  set(0, std::move(v));
}

// The indices and updates of the rows that each device holds.
std::vector<Lowering::Edge> Lowering::rows_for_stored(const Stored& stored) {
  const std::string why = fmt::format("rows of {} are updated", stored.laid->whole.text());
  Laid indices = settled(input(0), input(0).axes, none(input(0).axes), why, false);
  Axes axes = indices.axes;
  axes.insert(axes.end(), stored.axes.begin() + 1, stored.axes.end());
  Splits splits = none(indices.axes);
  splits.insert(splits.end(), stored.splits.begin() + 1, stored.splits.end());
  const Laid updates = settled(input(1), axes, splits, why, false);
  const int along = stored.splits[0].empty() ? -1 : stored.splits[0][0];
  if (along < 0) return {indices.edge, updates.edge};
  const auto [rows, is_here] =
      rows_here(indices.edge, along, local_shape(stored.axes, stored.splits)[0]);
  return {rows, kept_where(is_here, updates.edge, 0)};
}

}  // namespace troupe::mesh::detail
