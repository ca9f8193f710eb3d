// Loops, branches and lists: their sub-graphs are cut as the program is, and their variables keep
// one layout. A loop or a branch of which nothing lies on the devices runs once.
#include <troupe/ops/mesh/lowering.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/mesh/flow.hpp>

namespace troupe::mesh::detail {

using Integers = std::vector<std::int64_t>;

namespace {

// Some list in a sub-graph is made by an operation that has no roles: the node runs once.
struct NotCut {};

}  // namespace

// True if a value lies on the devices wherever a loop, a branch or a list holds it.
bool Lowering::is_laid(const ValueSpec& spec, const Axes& axes) const {
  const bool is_plain =
      std::all_of(axes.begin(), axes.end(), [](const Axis& a) { return a.size() <= 1; });
  return has_axes(spec) && names_.has_name(axes) && (!spec.is_list() || is_plain);
}

ValueSpec Lowering::local_spec(ValueSpec spec, const Laid& v) const {
  if (!v.is_once) spec.shape = local_shape(v.axes, v.splits);
  return spec;
}

// ---- sub-graphs

Lowering::Lowering(const Program& from, const Partitioning& p, const Names& outer,
                   std::map<Edge, Axes> axes, std::vector<Laid> arguments, std::vector<Laid> wanted)
    : SpmdWriter(from, p, outer.shared_dims(), std::move(axes)), program_(from), is_sub_(true),
      wanted_(std::move(wanted)) {
  for (std::size_t i = 0; i < arguments.size(); ++i)
    arguments_.emplace(program_.feeds[i], std::move(arguments[i]));
  find_needed_sums();
}

// An argument of a sub-graph, of which each device has its piece.
bool Lowering::take_argument() {
  const auto it = arguments_.find(Edge{at_, 0});
  if (it == arguments_.end() || it->second.is_once) return false;
  Laid v = it->second;
  Node made = node();
  made.outputs[0] = local_spec(made.outputs[0], v);
  made.attrs.set("shape", made.outputs[0].shape);
  v.edge = {append(std::move(made), false), 0};
  set(0, std::move(v));
  return true;
}

// A result of a sub-graph, as the node that holds it wants it.
Lowering::Edge Lowering::result(Edge e, const Laid& wanted) {
  at_ = e.node;
  if (wanted.is_once) return whole(e, "it is a result in one place");
  return on_devices(value(e), from_.spec(e), wanted, "it is a result of a loop or a branch");
}

Lowering::Edge Lowering::on_devices(Laid v, const ValueSpec& spec, const Laid& wanted,
                                    const std::string& why) {
  if (!spec.is_list()) return settled(std::move(v), wanted.axes, wanted.splits, why, false).edge;
  if (!v.is_once && v.splits == wanted.splits) return v.edge;
  // A list without elements is made on each device.
  Node empty = graph().node(v.edge.node);
  if (!v.is_once || (empty.op->name != "ListEmpty" && empty.op->name != "ListReserve"))
    throw NotCut();
  empty.outputs[0].shape = local_shape(wanted.axes, wanted.splits);
  empty.attrs.set("shape", empty.outputs[0].shape);
  return {append(std::move(empty), false), 0};
}

Laid Lowering::laid_as_ruled(const ValueSpec& spec, const Axes& axes) {
  Laid v;
  v.axes = axes;
  v.is_once = !is_laid(spec, axes);
  v.splits = v.is_once ? none(axes) : rules(axes);
  v.is_partial.assign(static_cast<std::size_t>(mesh_.rank()), 0);
  if (!v.is_once) require_legal(axes, v.splits);
  return v;
}

std::shared_ptr<const SpmdProgram> Lowering::lowered(std::size_t sub,
                                                     const std::vector<Axes>& variables,
                                                     std::vector<Laid> arguments,
                                                     std::vector<Laid> wanted,
                                                     Accumulators* accumulators) {
  const SubGraph& whole_sub = *subgraphs_of(node())[sub];
  const Program program{whole_sub.graph, whole_sub.inputs, whole_sub.outputs};
  Lowering inner(program, partitioning_, names_, names_.arguments_of(node(), sub, variables),
                 std::move(arguments), std::move(wanted));
  inner.accumulators_ = accumulators;
  inner.reserve_origins(graph().origins());
  SpmdProgram made = inner.run();
  graph().reserve_origins(made.program.graph.origins());
  to_.told.insert(to_.told.end(), made.told.begin(), made.told.end());
  return std::make_shared<const SpmdProgram>(std::move(made));
}

// The values that the sub-graphs of a node capture: as they lie.
std::vector<Laid> Lowering::captures(std::size_t first, std::vector<Edge>& inputs) {
  std::vector<Laid> all;
  for (std::size_t i = first; i < node().inputs.size(); ++i) {
    const Edge e = node().inputs[i];
    Laid v = value(e);
    if (v.is_constant || v.is_once) {
      v.edge = whole(e, "a loop or a branch takes it");
      v.is_once = true;
      v.is_constant = false;
    } else v = summed(std::move(v), "a loop or a branch takes it");
    inputs.push_back(v.edge);
    all.push_back(std::move(v));
  }
  return all;
}

bool Lowering::loop() {
  const LoopParts parts(node());
  Accumulators accumulators = accumulators_of(parts);
  const std::size_t told = to_.told.size();
  while (!loop(parts, accumulators)) {
    const auto failed = [](const auto& a) { return !a.second.is_apart; };
    if (std::erase_if(accumulators, failed) == 0) return false;
    to_.told.resize(told);
  }
  return true;
}

// False: the loop runs once, or some of the accumulators are none.
bool Lowering::loop(const LoopParts& parts, Accumulators& accumulators) {
  std::vector<Axes> axes;
  std::vector<Laid> variables;
  for (std::size_t k = 0; k < parts.variables; ++k) {
    axes.push_back(names_.of(Edge{at_, static_cast<std::int32_t>(k)}));
    variables.push_back(laid_as_ruled(parts.spec(k), axes.back()));
  }
  std::vector<Edge> inputs;
  const std::vector<Laid> ruled = variables;
  for (const auto& [k, sum] : accumulators) variables[k].is_once = false;
  for (std::size_t k = 0; k < parts.given; ++k)
    inputs.push_back(variables[k].is_once ? whole(node().inputs[k], "a loop begins with it")
                                          : on_devices(input(k), from_.spec(node().inputs[k]),
                                                       variables[k], "a loop begins with it"));
  std::vector<Laid> arguments = variables;
  const std::vector<Laid> taken = captures(parts.given, inputs);
  arguments.insert(arguments.end(), taken.begin(), taken.end());
  const auto is_once = [](const Laid& v) { return v.is_once; };
  if (std::all_of(ruled.begin(), ruled.end(), is_once) &&
      std::all_of(taken.begin(), taken.end(), is_once))
    return accumulators.clear(), false;
  Laid predicate;
  predicate.is_once = true;
  SpmdFlow flow;
  flow.subs = {lowered(0, axes, arguments, {predicate}),
               lowered(1, axes, arguments, variables, &accumulators)};
  for (const auto& [k, sum] : accumulators) {
    if (!sum.is_apart) return false;
    if (!sum.is_partial.empty()) variables[k].is_partial = sum.is_partial;
  }
  put_flow(std::move(flow), std::move(inputs), variables);
  return true;
}

bool Lowering::branch() {
  std::vector<Laid> results;
  for (std::size_t o = 0; o < node().outputs.size(); ++o)
    results.push_back(
        laid_as_ruled(node().outputs[o], names_.of(Edge{at_, static_cast<std::int32_t>(o)})));
  std::vector<Edge> inputs{whole(node().inputs[0], "it chooses a branch")};
  const std::vector<Laid> arguments = captures(1, inputs);
  const auto is_once = [](const Laid& v) { return v.is_once; };
  if (std::all_of(arguments.begin(), arguments.end(), is_once) &&
      std::all_of(results.begin(), results.end(), is_once))
    return false;
  SpmdFlow flow;
  for (std::size_t b = 0; b < subgraphs_of(node()).size(); ++b)
    flow.subs.push_back(lowered(b, {}, arguments, results));
  put_flow(std::move(flow), std::move(inputs), results);
  return true;
}

void Lowering::put_flow(SpmdFlow flow, std::vector<Edge> inputs, const std::vector<Laid>& results) {
  Node made = node();
  made.inputs = std::move(inputs);
  for (std::int32_t& c : made.controls) c = *made_[static_cast<std::size_t>(c)];
  for (std::size_t o = 0; o < results.size(); ++o) {
    made.outputs[o] = local_spec(made.outputs[o], results[o]);
    flow.is_once.push_back(results[o].is_once);
  }
  const std::int32_t id = append(std::move(made), true);
  to_.flows.emplace(id, std::move(flow));
  made_[static_cast<std::size_t>(at_)] = id;
  for (std::size_t o = 0; o < results.size(); ++o) {
    Laid v = results[o];
    v.edge = {id, static_cast<std::int32_t>(o)};
    set(o, std::move(v));
  }
}

bool Lowering::flow() {
  if (!node().device.empty()) return false;
  const std::size_t told = to_.told.size();
  try {
    if (is_loop(node())) return loop();
    if (is_branch(node())) return branch();
  } catch (const NotCut&) {
    to_.told.resize(told);
    to_.told.push_back(
        fmt::format("{} runs once: it makes a list in a way that has no rule for "
                    "pieces",
                    from_.describe(at_)));
  }
  return false;
}

// ---- lists

// Each device has a list of its pieces.
bool Lowering::run_on_lists(const ListRoles& roles) {
  if (!node().device.empty() || !node().controls.empty()) return false;
  Axes axes;
  const auto look = [&](Edge e, ListRole role) {
    if (role == ListRole::list && axes.empty() && is_laid(from_.spec(e), names_.of(e)))
      axes = names_.of(e);
  };
  for (std::size_t i = 0; i < node().inputs.size(); ++i) look(node().inputs[i], roles.inputs[i]);
  for (std::size_t o = 0; o < node().outputs.size(); ++o)
    look(Edge{at_, static_cast<std::int32_t>(o)}, roles.outputs[o]);
  if (axes.empty()) return false;
  Splits splits = rules(axes);
  require_legal(axes, splits);
  for (std::size_t i = 0; i < node().inputs.size(); ++i)
    if (roles.inputs[i] == ListRole::list && (input(i).is_once || input(i).splits != splits))
      return false;

  const std::string why = "a list holds its pieces";
  std::vector<Edge> inputs;
  for (std::size_t i = 0; i < node().inputs.size(); ++i) {
    const Laid v = input(i);
    switch (roles.inputs[i]) {
      case ListRole::list: inputs.push_back(v.edge); break;
      case ListRole::element: inputs.push_back(settled(v, axes, splits, why, false).edge); break;
      case ListRole::stacked: {
        const auto [a, s] = stacked(v.axes.empty() ? Axis{} : v.axes[0], axes, splits);
        inputs.push_back(settled(v, a, s, why, false).edge);
        break;
      }
      case ListRole::other: inputs.push_back(settled(v, v.axes, none(v.axes), why, false).edge);
    }
  }
  Attrs attrs = node().attrs;
  const Shape local = local_shape(axes, splits);
  if (attrs.has("shape")) {
    const bool is_stacked = roles.outputs[0] == ListRole::stacked;
    attrs.set("shape", is_stacked && attrs.get<Shape>("shape").rank() == local.rank() + 1
                           ? local.with_inserted(0, attrs.get<Shape>("shape")[0])
                           : local);
  }
  const std::int32_t made = emit(std::move(attrs), std::move(inputs), false);
  for (std::size_t o = 0; o < node().outputs.size(); ++o) {
    Laid v;
    v.edge = {made, static_cast<std::int32_t>(o)};
    v.axes = names_.of(Edge{at_, static_cast<std::int32_t>(o)});
    if (roles.outputs[o] == ListRole::other) v.splits = none(v.axes);
    else if (roles.outputs[o] == ListRole::stacked)
      std::tie(v.axes, v.splits) = stacked(v.axes.empty() ? Axis{} : v.axes[0], axes, splits);
    else std::tie(v.axes, v.splits) = std::pair(axes, splits);
    set(o, std::move(v));
  }
  return true;
}

std::pair<Axes, Splits> Lowering::stacked(const Axis& first, const Axes& axes,
                                          const Splits& splits) {
  std::pair<Axes, Splits> made{{first}, {std::vector<int>(first.size(), -1)}};
  made.first.insert(made.first.end(), axes.begin(), axes.end());
  made.second.insert(made.second.end(), splits.begin(), splits.end());
  return made;
}

// The products of the rows that each device has are summands.
bool Lowering::multiply_lists() {
  const Laid &a = input(0), &b = input(1);
  if (a.is_once || b.is_once || a.axes.size() != 2 || b.axes.size() != 2 ||
      a.splits[0] != b.splits[0] || !node().device.empty() || !node().controls.empty())
    return false;
  Laid v;
  v.axes = {a.axes[1], b.axes[1]};
  v.splits = {a.splits[1], b.splits[1]};
  require_legal(v.axes, v.splits);
  v.is_partial.assign(static_cast<std::size_t>(mesh_.rank()), 0);
  for (int m : a.splits[0])
    if (m >= 0) v.is_partial[static_cast<std::size_t>(m)] = 1;
  v.edge = {emit(node().attrs, {a.edge, b.edge}, false), 0};
  set(0, std::move(v));
  return true;
}

// The whole of a list that lies on the devices: its elements are stacked, and joined.
Lowering::Edge Lowering::whole_list(const Laid& v, const ValueSpec& spec) {
  const Edge rows = bind("ListStack", {v.edge}, {}, false);
  Integers mesh_axes{-1}, parts{1};
  for (const std::vector<int>& axis : v.splits) {
    mesh_axes.push_back(axis.empty() ? -1 : axis[0]);
    parts.push_back(mesh_axes.back() < 0 ? 1 : members(axis[0]));
  }
  const Edge joined =
      bind("MeshExport", {rows}, Attrs{{"mesh_axes", mesh_axes}, {"parts", parts}}, true);
  return bind("ListUnstack", {joined}, Attrs{{"shape", spec.shape}}, true);
}

}  // namespace troupe::mesh::detail
