#include <troupe/ops/mesh/spmd_writer.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::mesh::detail {

using collective::Combine;
using Integers = std::vector<std::int64_t>;

namespace {

bool is_collective(std::string_view op) {
  return op.starts_with("Mesh") && op != "MeshSlice" && op != "MeshCoordinate";
}

}  // namespace

bool Laid::has_splits() const {
  for (const auto& axis : splits)
    for (int m : axis)
      if (m >= 0) return true;
  return false;
}

bool Laid::has_partials() const {
  return std::find(is_partial.begin(), is_partial.end(), 1) != is_partial.end();
}

SpmdWriter::SpmdWriter(const Program& from, const Partitioning& p)
    : from_(from.graph), partitioning_(p), mesh_(p.mesh), layout_(p.layout),
      names_of_variables_(names_of_variables(from.graph)), names_(from.graph, names_of_variables_) {
  begin();
}
SpmdWriter::SpmdWriter(const Program& from, const Partitioning& p, std::shared_ptr<DimTable> dims,
                       std::map<Edge, Axes> arguments)
    : from_(from.graph), partitioning_(p), mesh_(p.mesh), layout_(p.layout),
      names_(from.graph, std::move(dims), std::move(arguments)) {
  begin();
}
void SpmdWriter::begin() {
  to_.program.graph = from_.blank();
  graph().reserve_origins(from_.origins());
  for (const auto& [dimension, axis] : layout_.rules()) {
    rule_of_[dimension] = mesh_.axis(axis);
    if (rule_of_[dimension] < 0)
      throw Error(Code::invalid_argument,
                  fmt::format("layout '{}' has the axis '{}', which mesh {} lacks", layout_.text(),
                              axis, text_of(mesh_.axes())));
  }
}

// ---- layouts

// The mesh axis that the rules give a dimension; an axis of one device splits nothing.
int SpmdWriter::rule(DimId d) const { return rule_named(dims()[d].name); }
int SpmdWriter::rule_named(const std::string& name) const {
  const auto it = rule_of_.find(name);
  if (it != rule_of_.end()) return members(it->second) == 1 ? -1 : it->second;
  const std::string_view whole = whole_of(name);
  return whole == name ? -1 : rule_named(std::string(whole));
}
std::vector<int> SpmdWriter::rules(const Axis& axis) const {
  std::vector<int> splits;
  for (DimId d : axis) splits.push_back(rule(d));
  return splits;
}
Splits SpmdWriter::rules(const Axes& axes) const {
  Splits splits;
  for (const Axis& a : axes) splits.push_back(rules(a));
  return splits;
}
Splits SpmdWriter::none(const Axes& axes) {
  Splits splits;
  for (const Axis& a : axes) splits.emplace_back(a.size(), -1);
  return splits;
}
bool SpmdWriter::holds(const std::vector<int>& splits, int axis) {
  return std::find(splits.begin(), splits.end(), axis) != splits.end();
}
// Refuses a size that an axis does not divide, and two dimensions on one axis.
void SpmdWriter::require_legal(const Axes& axes, const Splits& splits) const {
  std::map<int, DimId> taken;
  for (std::size_t a = 0; a < axes.size(); ++a)
    for (std::size_t f = 0; f < axes[a].size(); ++f) {
      const int axis = splits[a][f];
      const DimId d = axes[a][f];
      if (axis < 0) continue;
      if (dims()[d].size % members(axis) != 0)
        refuse(fmt::format("axis '{}' of {} devices does not divide dimension '{}' of size {}",
                           axis_name(axis), members(axis), dims()[d].name, dims()[d].size));
      const auto [it, is_new] = taken.emplace(axis, d);
      if (!is_new)
        refuse(fmt::format(
            "dimensions '{}' and '{}' of {} are both split along mesh axis '{}'; "
            "give one of them another axis, none, or another name for this tensor",
            dims()[it->second].name, dims()[d].name, dims().text(axes), axis_name(axis)));
    }
}
void SpmdWriter::refuse(const std::string& why) const {
  throw Error(Code::invalid_argument,
              fmt::format("{} under layout '{}' on mesh {}: {}", from_.describe(at_),
                          layout_.text(), text_of(mesh_.axes()), why));
}
bool SpmdWriter::has_same_sizes(const Axis& a, const Axis& b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](DimId x, DimId y) { return dims()[x].size == dims()[y].size; });
}
std::int64_t SpmdWriter::local(DimId d, int axis) const {
  return dims()[d].size / (axis < 0 ? 1 : members(axis));
}
Shape SpmdWriter::local_shape(const Axes& axes, const Splits& splits) const {
  Shape shape;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    std::int64_t extent = 1;
    for (std::size_t f = 0; f < axes[a].size(); ++f) extent *= local(axes[a][f], splits[a][f]);
    shape.push_back(extent);
  }
  return shape;
}
Shape SpmdWriter::flat_shape(const Axis& all, const std::vector<int>& splits) const {
  Shape shape;
  for (std::size_t i = 0; i < all.size(); ++i) shape.push_back(local(all[i], splits[i]));
  return shape;
}

// ---- nodes

std::int32_t SpmdWriter::append(Node made, bool is_once) {
  const std::int32_t id = graph().append(std::move(made));
  to_.is_once.resize(static_cast<std::size_t>(id), 0);
  to_.is_once.push_back(is_once);
  return id;
}
// A node that the current one needs beside it.
SpmdWriter::Edge SpmdWriter::bind(const char* op, std::vector<Edge> inputs, Attrs attrs,
                                  bool is_once) {
  Exprs xs;
  for (Edge e : inputs) xs.push_back(graph().expr(e));
  const Edge made = graph().bind(find_op(op), xs, std::move(attrs), node().site)[0].edge();
  to_.is_once.resize(static_cast<std::size_t>(made.node), 0);
  to_.is_once.push_back(is_once);
  if (!why_.empty() && is_collective(op)) note(made.node, std::exchange(why_, {}));
  return made;
}
void SpmdWriter::note(std::int32_t node, std::string text) {
  const auto at = static_cast<std::size_t>(node);
  if (to_.notes.size() <= at) to_.notes.resize(at + 1);
  if (to_.notes[at].empty()) to_.notes[at] = std::move(text);
}
SpmdWriter::Edge SpmdWriter::reshaped(Edge e, const Shape& shape, bool is_once) {
  if (graph().spec(e).shape == shape) return e;
  return bind("Reshape", {e}, Attrs{{"shape", shape}}, is_once);
}
SpmdWriter::Edge SpmdWriter::all_reduced(Edge e, int axis, Combine how) {
  return bind("MeshAllReduce", {e},
              Attrs{{"mesh_axis", std::int64_t{axis}}, {"combine", static_cast<std::int64_t>(how)}},
              false);
}
void SpmdWriter::tell(const char* what, Edge moved, int axis, const std::string& why) {
  const ValueSpec& spec = graph().spec(moved);
  why_ = fmt::format("{}: {}", from_.describe(at_), why);
  to_.told.push_back(
      fmt::format("{} of {} ({} bytes) along '{}', {} devices: {}: {}", what, spec.text(),
                  spec.shape.elements() * static_cast<std::int64_t>(size_of(spec.dtype)),
                  axis_name(axis), members(axis), from_.describe(at_), why));
}

// ---- moves

// v with its sums made.
Laid SpmdWriter::summed(Laid v, const std::string& why) {
  for (int axis = 0; axis < mesh_.rank(); ++axis) v = summed_over(std::move(v), axis, why);
  return v;
}
Laid SpmdWriter::summed_over(Laid v, int axis, const std::string& why) {
  if (!v.is_partial[static_cast<std::size_t>(axis)]) return v;
  const auto key = std::pair(v.edge, axis);
  auto it = summed_.find(key);
  if (it == summed_.end()) {
    tell("all-reduce", v.edge, axis, why);
    it = summed_.emplace(key, all_reduced(v.edge, axis, Combine::sum)).first;
  }
  v.edge = it->second;
  v.is_partial[static_cast<std::size_t>(axis)] = 0;
  return v;
}
Laid SpmdWriter::relaid(Laid v, const Axes& axes, const Splits& wanted, const std::string& why,
                        bool may_scatter) {
  if (may_scatter) v = scattered(std::move(v), axes, wanted, why);
  for (int m : flat(wanted))
    if (m >= 0) v = summed_over(std::move(v), m, why);
  return moved(std::move(v), axes, wanted, why);
}
Laid SpmdWriter::settled(Laid v, const Axes& axes, const Splits& wanted, const std::string& why,
                         bool may_scatter) {
  if (may_scatter) v = scattered(std::move(v), axes, wanted, why);
  return moved(summed(std::move(v), why), axes, wanted, why);
}
bool SpmdWriter::is_summed(const Laid& v) const {
  for (int axis = 0; axis < mesh_.rank(); ++axis)
    if (v.is_partial[static_cast<std::size_t>(axis)] && summed_.contains(std::pair(v.edge, axis)))
      return true;
  return false;
}
// v with those sums made whose mesh axis splits a dimension of the result that is whole in v.
Laid SpmdWriter::scattered(Laid v, const Axes& axes, const Splits& wanted, const std::string& why) {
  const std::vector<int> goal = flat(wanted);
  const bool is_alike = has_same_sizes(flat(v.axes), flat(axes));
  for (int m = 0; is_alike && m < mesh_.rank(); ++m) {
    std::vector<int> now = flat(v.splits);
    const auto at = static_cast<std::size_t>(std::find(goal.begin(), goal.end(), m) - goal.begin());
    if (!v.is_partial[static_cast<std::size_t>(m)] || summed_.contains(std::pair(v.edge, m)) ||
        at == goal.size() || now[at] >= 0 || holds(now, m))
      continue;
    const auto key = std::tuple(v.edge, m, at);
    const Edge parted = reshaped(v.edge, flat_shape(flat(v.axes), now), v.is_once);
    now[at] = m;
    std::size_t next = 0;
    for (auto& axis : v.splits)
      for (int& split : axis) split = now[next++];
    auto it = scattered_.find(key);
    if (it == scattered_.end()) {
      tell("reduce-scatter", v.edge, m, why);
      const Edge made = bind("MeshReduceScatter", {parted},
                             Attrs{{"mesh_axis", std::int64_t{m}},
                                   {"axis", static_cast<std::int64_t>(at)},
                                   {"parts", members(m)}},
                             false);
      it = scattered_.emplace(key, reshaped(made, local_shape(v.axes, v.splits), false)).first;
    }
    v.edge = it->second;
    v.is_partial[static_cast<std::size_t>(m)] = 0;
  }
  return v;
}
// True if an axis whose first dimension alone is split is in the same blocks under `axis`.
bool SpmdWriter::has_same_blocks(const std::vector<int>& splits, const Axis& axis) const {
  return !splits.empty() && splits[0] >= 0 && !axis.empty() &&
         std::all_of(splits.begin() + 1, splits.end(), [](int m) { return m < 0; }) &&
         dims()[axis[0]].size % members(splits[0]) == 0;
}
// v under other dimensions of the same extents. Axes whose dimensions have other sizes are
// gathered first, unless the blocks on the devices are those of the new first dimension.
Laid SpmdWriter::renamed(Laid v, const Axes& axes) {
  Splits gathered = v.splits;
  bool is_other = false;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (has_same_sizes(v.axes[a], axes[a]) || has_same_blocks(v.splits[a], axes[a])) continue;
    for (int& m : gathered[a]) is_other = is_other || m >= 0, m = -1;
  }
  if (is_other) v = moved(std::move(v), v.axes, gathered, "its dimensions are others");
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (has_same_sizes(v.axes[a], axes[a])) continue;
    const int first = has_same_blocks(v.splits[a], axes[a]) ? v.splits[a][0] : -1;
    v.splits[a].assign(axes[a].size(), -1);
    if (first >= 0) v.splits[a][0] = first;
  }
  v.axes = axes;
  return v;
}
// Returns v, whose axes have these extents, under `axes` and split by `wanted`. Each step moves
// one mesh axis: to a dimension that is whole by slicing or an all-to-all, away by an all-gather.
Laid SpmdWriter::moved(Laid v, const Axes& axes, const Splits& wanted, const std::string& why) {
  if (v.axes != axes) v = renamed(std::move(v), axes);
  if (v.splits == wanted) return v;
  const auto key = std::tuple(v.edge, v.axes, v.splits, wanted);
  if (const auto it = moved_.find(key); it != moved_.end()) return it->second;
  const Axis all = flat(axes);
  std::vector<int> now = flat(v.splits);
  const std::vector<int> goal = flat(wanted);
  const bool is_plain =
      std::all_of(axes.begin(), axes.end(), [](const Axis& a) { return a.size() == 1; });
  Edge e = is_plain ? v.edge : reshaped(v.edge, flat_shape(all, now), v.is_once);
  bool is_once = v.is_once;
  while (now != goal) {
    if (slice(e, now, goal, is_once)) continue;
    if (exchange(e, now, goal, why)) continue;
    gather(e, now, goal, why);
  }
  v.splits = wanted;
  v.is_constant = false;
  v.is_once = is_once;
  v.edge = is_plain ? e : reshaped(e, local_shape(axes, wanted), is_once);
  return moved_.emplace(key, v).first->second;
}
// Cuts whole dimensions along mesh axes that split none yet. Nothing is sent.
bool SpmdWriter::slice(Edge& e, std::vector<int>& now, const std::vector<int>& goal,
                       bool& is_once) {
  Integers mesh_axes, axes, parts;
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i] < 0 && goal[i] >= 0 && !holds(now, goal[i])) {
      mesh_axes.push_back(goal[i]);
      axes.push_back(static_cast<std::int64_t>(i));
      parts.push_back(members(goal[i]));
    }
  if (axes.empty()) return false;
  for (std::size_t k = 0; k < axes.size(); ++k)
    now[static_cast<std::size_t>(axes[k])] = static_cast<int>(mesh_axes[k]);
  e = bind("MeshSlice", {e}, Attrs{{"mesh_axes", mesh_axes}, {"axes", axes}, {"parts", parts}},
           false);
  is_once = false;
  return true;
}
// Moves a mesh axis from one dimension to another, which is whole.
bool SpmdWriter::exchange(Edge& e, std::vector<int>& now, const std::vector<int>& goal,
                          const std::string& why) {
  for (std::size_t i = 0; i < now.size(); ++i)
    for (std::size_t j = 0; j < now.size(); ++j) {
      if (now[i] < 0 || now[i] == goal[i] || goal[j] != now[i] || now[j] >= 0) continue;
      tell("all-to-all", e, now[i], why);
      e = bind("MeshAllToAll", {e},
               Attrs{{"mesh_axis", std::int64_t{now[i]}},
                     {"split_axis", static_cast<std::int64_t>(j)},
                     {"axis", static_cast<std::int64_t>(i)},
                     {"parts", members(now[i])}},
               false);
      now[j] = std::exchange(now[i], -1);
      return true;
    }
  return false;
}
// Makes a dimension whole. Mesh axes that no dimension keeps come first.
void SpmdWriter::gather(Edge& e, std::vector<int>& now, const std::vector<int>& goal,
                        const std::string& why) {
  std::size_t at = now.size();
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] < 0 || now[i] == goal[i]) continue;
    if (at == now.size() || (holds(goal, now[at]) && !holds(goal, now[i]))) at = i;
  }
  tell("all-gather", e, now[at], why);
  e = bind("MeshAllGather", {e},
           Attrs{{"mesh_axis", std::int64_t{now[at]}},
                 {"axis", static_cast<std::int64_t>(at)},
                 {"parts", members(now[at])}},
           false);
  now[at] = -1;
}

SpmdWriter::Edge SpmdWriter::exported(Laid v, const std::string& why) {
  v = summed(std::move(v), why);
  Integers mesh_axes, parts;
  why_ = why;
  if (!v.has_splits())
    return bind("MeshExport", {v.edge}, Attrs{{"mesh_axes", mesh_axes}, {"parts", parts}}, true);
  const std::vector<int> splits = flat(v.splits);
  for (int m : splits) {
    mesh_axes.push_back(m);
    parts.push_back(m < 0 ? 1 : members(m));
  }
  const Edge flattened = reshaped(v.edge, flat_shape(flat(v.axes), splits), false);
  const Edge whole =
      bind("MeshExport", {flattened}, Attrs{{"mesh_axes", mesh_axes}, {"parts", parts}}, true);
  return reshaped(whole, local_shape(v.axes, none(v.axes)), true);
}

}  // namespace troupe::mesh::detail
