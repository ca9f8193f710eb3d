#include <troupe/ops/mesh/spmd.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/suggest_name.hpp>
#include <troupe/ops/mesh/lowering.hpp>

namespace troupe::mesh::detail {
namespace {

bool has_known_shapes(const Graph& g, const Node& n) {
  const auto is_known = [](const ValueSpec& s) {
    return !s.is_list() && s.shape.is_known() && s.dtype != DType::string;
  };
  return std::all_of(n.outputs.begin(), n.outputs.end(), is_known) &&
         std::all_of(n.inputs.begin(), n.inputs.end(), [&](Edge e) { return is_known(g.spec(e)); });
}
}  // namespace

using collective::Combine;
using Integers = std::vector<std::int64_t>;

Lowering::Lowering(const Program& from, const Partitioning& p, VariableHomes* homes)
    : SpmdWriter(from, p), program_(from) {
  find_needed_sums();
  lay_out_variables(homes);
}

SpmdProgram Lowering::run() {
  for (const auto& [state, stored] : stored_)
    to_.pieces[state] = graph().declare(piece_pattern(*stored.laid), stored.laid->whole.site);
  for (std::int32_t id = 0; id < from_.size(); ++id) {
    offset_.push_back(static_cast<std::int32_t>(values_.size()));
    values_.resize(values_.size() + from_.node(id).outputs.size());
    made_.emplace_back();
    at_ = id;
    lower(id);
    if (!made_[static_cast<std::size_t>(id)])
      made_[static_cast<std::size_t>(id)] = to_.program.graph.size() - 1;
    for (std::size_t o = 0; o < from_.node(id).outputs.size(); ++o) tell_layout(id, o);
  }
  for (Edge e : program_.feeds) to_.program.feeds.push_back(value(e).edge);
  for (std::size_t i = 0; i < program_.fetches.size(); ++i) {
    const Edge e = program_.fetches[i];
    at_ = e.node;
    if (const auto sum = partial_result(i, e, wanted_.empty() ? Laid() : wanted_[i]))
      to_.program.fetches.push_back(*sum);
    else to_.program.fetches.push_back(is_sub_ ? result(e, wanted_[i]) : whole(e, "it is fetched"));
  }
  if (is_sub_) return std::move(to_);
  for (const auto& [dimension, axis] : layout_.rules())
    if (!is_used(dimension))
      to_.warnings.push_back(fmt::format("layout '{}': no tensor has a dimension '{}'{}",
                                         layout_.text(), dimension,
                                         did_you_mean(dimension, names_.dims().names())));
  return std::move(to_);
}

std::int32_t Lowering::emit(Attrs attrs, std::vector<Edge> inputs, bool is_once) {
  Node made = node();
  std::vector<ValueSpec> specs;
  for (Edge e : inputs) specs.push_back(graph().spec(e));
  if (!is_once) made.outputs = infer_outputs(*made.op, specs, attrs);
  made.attrs = std::move(attrs);
  made.inputs = std::move(inputs);
  for (std::int32_t& c : made.controls) c = *made_[static_cast<std::size_t>(c)];
  const std::int32_t id = append(std::move(made), is_once);
  made_[static_cast<std::size_t>(at_)] = id;
  return id;
}
// Finds the values of which some node needs the sum itself: they stay partial for no other node.
void Lowering::find_needed_sums() {
  for (Edge e : program_.fetches) ++uses_[e];
  for (const Node& n : from_.nodes()) {
    const bool passes = n.op->name == "NameDims" || is_reshape(n);
    const std::optional<Terms> terms =
        passes || !has_known_shapes(from_, n) ? std::nullopt : terms_of(from_, n);
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      const bool is_product_with_itself =
          std::count(n.inputs.begin(), n.inputs.end(), n.inputs[i]) > 1;
      const bool may_be_partial =
          passes ||
          (terms && (terms->is_sum || ((terms->linear >> i & 1) != 0 && !is_product_with_itself)));
      if (n.op->takes_only_shape(i)) continue;
      ++uses_[n.inputs[i]];
      if (!may_be_partial) needs_sum_.insert(n.inputs[i]);
    }
  }
}

Lowering::Edge Lowering::whole(Edge e, const std::string& why) {
  if (const auto it = whole_.find(e); it != whole_.end()) return it->second;
  const Laid v = value(e);
  Edge made = v.edge;
  if (v.is_constant) {
    Node copy = graph().node(v.edge.node);
    made = {append(std::move(copy), true), 0};
  } else if (!v.is_once) {
    made = from_.spec(e).is_list() ? whole_list(v, from_.spec(e)) : exported(v, why);
  }
  return whole_.emplace(e, made).first->second;
}

// ---- one node

void Lowering::set(std::size_t output, Laid v) {
  if (v.is_partial.empty()) v.is_partial.assign(static_cast<std::size_t>(mesh_.rank()), 0);
  value(Edge{at_, static_cast<std::int32_t>(output)}) = std::move(v);
}
void Lowering::tell_layout(std::int32_t id, std::size_t output) {
  const Laid& v = value(Edge{id, static_cast<std::int32_t>(output)});
  std::vector<std::string> axes;
  for (std::size_t a = 0; a < v.axes.size(); ++a) {
    std::vector<std::string> factors;
    for (std::size_t f = 0; f < v.axes[a].size(); ++f) {
      const int m = v.splits[a][f];
      factors.push_back(dims().text(Axis{v.axes[a][f]}) +
                        (m < 0 ? std::string() : "/" + axis_name(m)));
    }
    axes.push_back(factors.empty() ? "1" : fmt::format("{}", fmt::join(factors, "*")));
  }
  std::string sums;
  for (int axis = 0; axis < mesh_.rank(); ++axis)
    if (v.is_partial[static_cast<std::size_t>(axis)]) sums += " partial over " + axis_name(axis);
  std::string text = fmt::format("[{}] {}{}{}", fmt::join(axes, ", "), graph().spec(v.edge).text(),
                                 v.is_once ? " once" : "", sums);
  to_.layouts.push_back(fmt::format("{}: {}", from_.describe(id), text));
  note(v.edge.node, std::move(text));
}

bool Lowering::must_run_once() const {
  const Node& n = node();
  return n.op->evaluate || n.op->effect != Effect::none || n.op->side_effect || n.state >= 0 ||
         !n.device.empty() || !n.controls.empty() || n.outputs.empty() ||
         !has_known_shapes(from_, n);
}

void Lowering::lower(std::int32_t id) {
  const Node& n = from_.node(id);
  if (is_stored()) return run_on_stored();
  if (take_argument() || flow()) return;
  if (const std::optional<ListRoles> roles = list_roles(n); roles && run_on_lists(*roles)) return;
  if (is_list_product(n) && multiply_lists()) return;
  if (n.op->name == "Group") return group();
  if (must_run_once() || n.op->name == "Input") return run_once();
  if (n.op->name == "NameDims") return name_dims();
  if (n.inputs.empty()) return run_everywhere();
  if (is_reshape(n)) return reshape();
  if (n.op->name == "Softmax" || n.op->name == "LogSoftmax")
    if (normalize_over_split_axis()) return;
  if (n.op->name == "Gather" && gather_from_split_axis()) return;
  if (n.op->name == "ShiftAlong" && shift_along()) return;
  if (n.op->name == "CumSum" && sum_along()) return;
  if (n.op->name.starts_with("Conv") && n.attrs.has("groups") && convolve_with_halo()) return;
  if (n.op->name == "TopK" && largest_along()) return;
  if (n.op->name == "ScatterAdd" && add_to_split_axis()) return;
  if (const std::optional<Terms> terms = terms_of(from_, n)) return run_on_pieces(*terms);
  run_whole();
}

void Lowering::run_once() {
  std::vector<Edge> inputs;
  for (Edge e : std::vector<Edge>(node().inputs))
    inputs.push_back(whole(e, "a node that runs once takes it"));
  const std::int32_t made = emit(node().attrs, std::move(inputs), true);
  set_outputs(made, true);
}
void Lowering::set_outputs(std::int32_t made, bool is_once) {
  for (std::size_t o = 0; o < node().outputs.size(); ++o) {
    Laid v;
    v.edge = {made, static_cast<std::int32_t>(o)};
    v.axes = names_.of(Edge{at_, static_cast<std::int32_t>(o)});
    v.splits = none(v.axes);
    v.is_once = is_once;
    v.is_constant = !is_once && node().inputs.empty() && node().op->is_pure();
    set(o, std::move(v));
  }
}
// A node without inputs: a constant, a fill, a draw. Draws are keyed by the node's origin:
// all devices draw the same.
void Lowering::run_everywhere() { set_outputs(emit(node().attrs, {}, false), false); }

// A node without terms, on whole inputs.
void Lowering::run_whole() {
  bool are_once = true;
  std::vector<Edge> inputs;
  for (std::size_t i = 0; i < node().inputs.size(); ++i)
    are_once = are_once && (input(i).is_once || input(i).is_constant);
  if (are_once) return run_once();
  for (std::size_t i = 0; i < node().inputs.size(); ++i) {
    const std::string why = fmt::format("{} has no rule for pieces", node().op->name);
    Laid v = summed(input(i), why);
    inputs.push_back(moved(v, v.axes, none(v.axes), why).edge);
  }
  set_outputs(emit(node().attrs, std::move(inputs), false), false);
}

void Lowering::name_dims() {
  const Axes& axes = names_.of(Edge{at_, 0});
  const Splits wanted = rules(axes);
  require_legal(axes, wanted);
  set(0, relaid(input(0), axes, wanted, "its dimensions are renamed", may_scatter(0)));
  // Controls on a naming node become controls on the named node.
  made_[static_cast<std::size_t>(at_)] = value(Edge{at_, 0}).edge.node;
}

void Lowering::reshape() {
  const Axes& axes = names_.of(Edge{at_, 0});
  const Splits wanted = rules(axes);
  require_legal(axes, wanted);
  Laid v = input(0);
  const auto sized = [&](const Axes& of) {
    Axis all;
    for (DimId d : flat(of))
      if (dims()[d].size != 1) all.push_back(d);
    return all;
  };
  const Axis before = sized(v.axes), after = sized(axes);
  if (has_same_sizes(before, after)) {
    // Each dimension keeps its split.
    std::vector<int> kept;
    for (std::size_t a = 0; a < v.axes.size(); ++a)
      for (std::size_t f = 0; f < v.axes[a].size(); ++f)
        if (dims()[v.axes[a][f]].size != 1) kept.push_back(v.splits[a][f]);
    std::size_t next = 0;
    v.splits.clear();
    for (const Axis& axis : axes) {
      auto& splits = v.splits.emplace_back();
      for (DimId d : axis) splits.push_back(dims()[d].size == 1 ? -1 : kept[next++]);
    }
  } else {
    const std::string why = "a reshape joins and parts other elements than its pieces hold";
    v = moved(summed(std::move(v), why), input(0).axes, none(input(0).axes), why);
    v.splits = none(axes);
  }
  v.axes = axes;
  v.edge = reshaped(v.edge, local_shape(v.axes, v.splits), v.is_once);
  v.is_constant = false;
  set(0, relaid(std::move(v), axes, wanted, "its dimensions are renamed", may_scatter(0)));
  made_[static_cast<std::size_t>(at_)] = value(Edge{at_, 0}).edge.node;
}

// Softmax along a last axis that is split: the maximum and the sum cross devices, the values do
// not. False: the axis is whole.
bool Lowering::normalize_over_split_axis() {
  const Axes axes = input(0).axes;
  const Splits wanted = rules(axes);
  if (axes.empty() ||
      std::all_of(wanted.back().begin(), wanted.back().end(), [](int m) { return m < 0; }))
    return false;
  require_legal(axes, wanted);
  const Laid x = moved(summed(input(0), "it goes through exp"), axes, wanted, "of its layout");
  const Attrs last{{"axes", Integers{static_cast<std::int64_t>(axes.size()) - 1}},
                   {"keep_dims", true}};
  const auto across = [&](Edge e, Combine how, const char* why) {
    for (int m : wanted.back()) {
      if (m < 0) continue;
      tell("all-reduce", e, m, why);
      e = all_reduced(e, m, how);
    }
    return e;
  };
  const Edge top =
      across(bind("Max", {x.edge}, last, false), Combine::max, "the maximum along a split axis");
  const Edge shifted = bind("Sub", {x.edge, top}, {}, false);
  const Edge powers = bind("Exp", {shifted}, {}, false);
  const Edge total =
      across(bind("Sum", {powers}, last, false), Combine::sum, "the sum along a split axis");
  Laid y = x;
  y.edge = node().op->name == "Softmax"
               ? bind("Div", {powers, total}, {}, false)
               : bind("Sub", {shifted, bind("Log", {total}, {}, false)}, {}, false);
  set(0, std::move(y));
  return true;
}

// The nodes that a group waits for run on all devices: so does the group, and once behind them.
void Lowering::group() {
  const auto is_apart = [&](Edge e) { return !value(e).is_once && !value(e).is_constant; };
  std::vector<Edge> inputs = node().inputs;
  if (!node().device.empty() || std::none_of(inputs.begin(), inputs.end(), is_apart))
    return run_once();
  std::vector<Edge> apart, once;
  for (Edge e : inputs)
    if (is_apart(e)) apart.push_back(value(e).edge);
    else once.push_back(whole(e, "a group waits for it"));
  once.push_back({emit(node().attrs, std::move(apart), false), 0});
  set_outputs(emit(node().attrs, std::move(once), true), true);
}

SpmdProgram to_spmd(const Program& program, const Partitioning& partitioning,
                    VariableHomes* homes) {
  if (!homes || !homes->has_any) return Lowering(program, partitioning, homes).run();
  // Variables whose pieces are those of this program stay; the others are joined.
  std::vector<std::string> kept = Lowering(program, partitioning, homes).stored_names();
  homes->made.clear();
  const Program joined = join_variables(program, *homes, kept);
  return Lowering(joined, partitioning, homes).run();
}

}  // namespace troupe::mesh::detail
