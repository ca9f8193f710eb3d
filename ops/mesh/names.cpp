#include <troupe/ops/mesh/names.hpp>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/mesh/flow.hpp>

namespace troupe::mesh::detail {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(Code::invalid_argument, why); }

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(separator, at);
    parts.push_back(text.substr(at, end - at));
    if (end == std::string_view::npos) return parts;
    at = end + 1;
  }
}

bool are_known(const Graph& graph, const Node& node) {
  const auto is_known = [](const ValueSpec& s) { return !s.is_list() && s.shape.is_known(); };
  return std::all_of(node.outputs.begin(), node.outputs.end(), is_known) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](Edge e) { return is_known(graph.spec(e)); });
}

}  // namespace

// ---- dimensions

std::string_view whole_of(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == name.size()) return name;
  const std::string_view count = name.substr(slash + 1);
  const bool is_part =
      std::all_of(count.begin(), count.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_part ? name.substr(0, slash) : name;
}

DimId DimTable::named(const Dim& dim, const std::string& where) {
  const auto [it, is_new] = number_of_.try_emplace(dim.name, static_cast<DimId>(dims_.size()));
  if (is_new) {
    dims_.push_back(dim);
    where_.push_back(where);
  } else if (const Dim& known = (*this)[it->second]; known.size != dim.size)
    refuse(where_[static_cast<std::size_t>(it->second)] == where
               ? fmt::format("dimension '{}' has sizes {} and {}; a name has one size", dim.name,
                             known.size, dim.size)
               : fmt::format("dimension '{}' has size {} at {} and {} at {}; a name has one size",
                             dim.name, known.size, where_[static_cast<std::size_t>(it->second)],
                             dim.size, where));
  return it->second;
}

DimId DimTable::anonymous(std::int64_t size) {
  dims_.push_back({"", size});
  where_.emplace_back();
  return static_cast<DimId>(dims_.size()) - 1;
}

bool DimTable::has_name(const Axis& axis) const {
  return std::any_of(axis.begin(), axis.end(), [&](DimId d) { return is_named(d); });
}

std::int64_t DimTable::extent(const Axis& axis) const {
  std::int64_t extent = 1;
  for (DimId d : axis) extent *= (*this)[d].size;
  return extent;
}

std::string DimTable::text(const Axis& axis) const {
  if (axis.empty()) return "1";
  std::vector<std::string> names;
  for (DimId d : axis)
    names.push_back(is_named(d) ? (*this)[d].name : fmt::format("#{}", (*this)[d].size));
  return fmt::format("{}", fmt::join(names, "*"));
}

std::string DimTable::text(const Axes& axes) const {
  std::vector<std::string> all;
  for (const Axis& a : axes) all.push_back(text(a));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string axes_text(const DimTable& dims, const Axes& axes) {
  std::vector<std::string> all;
  for (const Axis& axis : axes) {
    std::vector<std::string> factors;
    for (DimId d : axis) factors.push_back(fmt::format("{}:{}", dims[d].name, dims[d].size));
    all.push_back(fmt::format("{}", fmt::join(factors, "*")));
  }
  return fmt::format("{}", fmt::join(all, ";"));
}

Axes parse_axes(std::string_view text, DimTable& dims, const std::string& where) {
  Axes axes;
  for (std::string_view axis : parts_of(text, ';')) {
    Axis& made = axes.emplace_back();
    if (axis.empty()) continue;
    for (std::string_view factor : parts_of(axis, '*')) {
      const std::size_t colon = factor.find(':');
      Dim dim{std::string(factor.substr(0, colon)), -1};
      const std::string_view size =
          colon == std::string_view::npos ? std::string_view() : factor.substr(colon + 1);
      const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), dim.size);
      if (error != std::errc() || end != size.data() + size.size() || dim.size < 0)
        refuse(fmt::format("'{}' names no dimension; it is NAME:SIZE", factor));
      made.push_back(dim.name.empty() ? dims.anonymous(dim.size) : dims.named(dim, where));
    }
  }
  return axes;
}

Axis flat(const Axes& axes) {
  Axis all;
  for (const Axis& a : axes) all.insert(all.end(), a.begin(), a.end());
  return all;
}

bool regroup(const DimTable& dims, const Axes& from, const Shape& to, Axes& out) {
  out.clear();
  const Axis all = flat(from);
  std::size_t next = 0;
  for (int i = 0; i < to.rank(); ++i) {
    Axis& axis = out.emplace_back();
    std::int64_t extent = 1;
    while (extent < to[i] && next < all.size()) {
      const DimId d = all[next++];
      if (dims[d].size == 1 && to[i] != 1) continue;
      axis.push_back(d);
      extent *= dims[d].size;
    }
    if (extent != to[i]) {
      out.clear();
      return false;
    }
  }
  return true;
}

// ---- names of values

Axes Names::anonymous(const Shape& shape) {
  Axes axes;
  for (std::int64_t extent : shape.dims()) {
    Axis& axis = axes.emplace_back();
    if (extent != 1) axis.push_back(dims_->anonymous(extent));
  }
  return axes;
}

void Names::extend() {
  for (auto id = static_cast<std::int32_t>(offset_.size()); id < graph_.size(); ++id) {
    const std::size_t values = axes_.size();
    try {
      infer(id);
    } catch (const Error&) {
      offset_.resize(static_cast<std::size_t>(id));  // the next call is refused, too
      axes_.resize(values);
      throw;
    }
  }
}

void Names::extend(const Captured& captured) {
  for (const auto& [argument, text] : captured)
    if (argument.node >= size())
      arguments_[argument] = parse_axes(text, *dims_, graph_.node(argument.node).site.text());
  extend();
}

void Names::infer(std::int32_t id) {
  const Node& node = graph_.node(id);
  offset_.push_back(static_cast<std::int32_t>(axes_.size()));
  const auto add = [&](Axes axes) { axes_.push_back(std::move(axes)); };
  // The text of no dimension is that of one axis without a name, too.
  if (node.op->name == "NameDims" && node.outputs[0].shape.is_scalar()) return add({});
  if (node.op->name == "NameDims")
    return add(parse_axes(node.attrs.get<std::string>("dims"), *dims_, node.site.text()));
  if (const auto names = of_variables_.find(node.state);
      node.state >= 0 && names != of_variables_.end() && node.outputs.size() == 1)
    return add(parse_axes(names->second, *dims_, node.site.text()));
  if (const auto given = arguments_.find(Edge{id, 0}); given != arguments_.end())
    return add(given->second);
  if (is_loop(node)) {
    for (Axes& axes : of_loop(node)) add(std::move(axes));
    return;
  }
  if (is_branch(node)) return infer_branch(id);
  if (list_roles(node) || is_list_product(node)) return infer_list(id);
  if (are_known(graph_, node) && !node.outputs.empty()) {
    if (is_reshape(node)) {
      Axes made;
      // The names of `like` serve where the input's dimensions do not fit.
      if (!regroup(*dims_, of(node.inputs[0]), node.outputs[0].shape, made))
        made =
            node.op->name == "ReshapeLike" ? of(node.inputs[1]) : anonymous(node.outputs[0].shape);
      return add(std::move(made));
    }
    if (const std::optional<Terms> terms = terms_of(graph_, node)) {
      const std::vector<Axis> over = resolved(id, *terms);
      for (const std::vector<int>& axes : terms->outputs) {
        Axes made;
        for (int term : axes)
          made.push_back(term == Terms::kNone ? Axis{} : over[static_cast<std::size_t>(term)]);
        add(std::move(made));
      }
      return;
    }
  }
  for (const ValueSpec& out : node.outputs)
    add(out.shape.has_rank() ? anonymous(out.shape) : Axes{});
}

bool Names::has_name(const Axes& axes) const {
  return std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return dims_->has_name(a); });
}

std::map<Edge, Axes> Names::arguments_of(const Node& node, std::size_t sub,
                                         const std::vector<Axes>& variables) const {
  const SubGraph& graph = *subgraphs_of(node)[sub];
  std::map<Edge, Axes> arguments;
  const std::size_t first_capture = is_loop(node) ? LoopParts(node).given : 1;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i)
    arguments[graph.inputs[i]] = i < variables.size()
                                     ? variables[i]
                                     : of(node.inputs[first_capture + (i - variables.size())]);
  return arguments;
}

std::vector<Axes> Names::of_loop(const Node& node) {
  const LoopParts loop(node);
  std::vector<Axes> variables;
  for (std::size_t k = 0; k < loop.variables; ++k) {
    const ValueSpec& spec = loop.spec(k);
    const Axes begins = k < loop.given ? of(node.inputs[k]) : Axes{};
    variables.push_back(has_name(begins) && has_axes(spec) ? begins
                        : spec.shape.has_rank()            ? anonymous(spec.shape)
                                                           : Axes{});
  }
  // A variable without names has those that the body gives it, and may give them to others.
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    const Names body(loop.body.graph, dims_, arguments_of(node, 1, variables));
    for (std::size_t k = 0; k < loop.variables; ++k) {
      const Axes& next = body.of(loop.body.outputs[k]);
      bool fits = !has_name(variables[k]) && has_name(next) && has_axes(loop.spec(k)) &&
                  next.size() == variables[k].size();
      for (std::size_t a = 0; fits && a < next.size(); ++a)
        fits = dims_->extent(next[a]) == dims_->extent(variables[k][a]);
      if (fits) variables[k] = next;
      is_changed = is_changed || fits;
    }
  }
  return variables;
}

void Names::infer_branch(std::int32_t id) {
  const Node& node = graph_.node(id);
  std::vector<Axes> all;
  for (const ValueSpec& out : node.outputs)
    all.push_back(out.shape.has_rank() ? anonymous(out.shape) : Axes{});
  for (std::size_t b = 0; b < subgraphs_of(node).size(); ++b) {
    const SubGraph& branch = *subgraphs_of(node)[b];
    const Names names(branch.graph, dims_, arguments_of(node, b, {}));
    for (std::size_t o = 0; o < all.size(); ++o)
      if (const Axes& made = names.of(branch.outputs[o]);
          !has_name(all[o]) && has_name(made) && has_axes(node.outputs[o]))
        all[o] = made;
  }
  for (Axes& axes : all) axes_.push_back(std::move(axes));
}

// The elements of a list have the axes of the first operand with names.
void Names::infer_list(std::int32_t id) {
  const Node& node = graph_.node(id);
  if (is_list_product(node)) {
    Axes made;
    for (std::size_t i : {0, 1})
      made.push_back(of(node.inputs[i]).size() == 2
                         ? of(node.inputs[i])[1]
                         : anonymous(Shape{node.outputs[0].shape[static_cast<int>(i)]})[0]);
    axes_.push_back(std::move(made));
    return;
  }
  const ListRoles roles = *list_roles(node);
  Axes element;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    Axes axes = of(node.inputs[i]);
    if (roles.inputs[i] == ListRole::other || axes.empty()) continue;
    if (roles.inputs[i] == ListRole::stacked) axes.erase(axes.begin());
    if (has_axes(graph_.spec(node.inputs[i])) && !has_name(element)) element = std::move(axes);
  }
  for (std::size_t o = 0; o < node.outputs.size(); ++o) {
    const ValueSpec& out = node.outputs[o];
    Axes axes = out.shape.has_rank() ? anonymous(out.shape) : Axes{};
    const std::size_t skipped = roles.outputs[o] == ListRole::stacked;
    bool fits = has_name(element) && roles.outputs[o] != ListRole::other &&
                axes.size() == element.size() + skipped;
    for (std::size_t a = 0; fits && a < element.size(); ++a)
      fits = dims_->extent(axes[a + skipped]) == dims_->extent(element[a]);
    if (fits)
      std::copy(element.begin(), element.end(),
                axes.begin() + static_cast<std::ptrdiff_t>(skipped));
    axes_.push_back(std::move(axes));
  }
}

std::map<std::int32_t, std::string> names_of_variables(const Graph& graph) {
  const Names names(graph);
  std::map<std::int32_t, std::string> found;
  const auto take = [&](std::int32_t state, Edge e) {
    const StateSpec& spec = graph.states()[static_cast<std::size_t>(state)];
    const Axes& axes = names.of(e);
    bool fits = spec.kind == StateSpec::Kind::variable && graph.spec(e).shape.is_known() &&
                graph.spec(e).shape == spec.values[0].shape &&
                std::any_of(axes.begin(), axes.end(),
                            [&](const Axis& a) { return names.dims().has_name(a); });
    if (fits) found.try_emplace(state, axes_text(names.dims(), axes));
  };
  std::map<Edge, std::int32_t> values;  // a variable's, also in another dtype
  for (std::int32_t id = 0; id < graph.size(); ++id) {
    const Node& n = graph.node(id);
    const bool passes = n.op->name == "Cast" || n.op->name == "Identity";
    if (n.state >= 0 && n.outputs.size() == 1) values[Edge{id, 0}] = n.state;
    else if (passes && values.contains(n.inputs[0])) values[Edge{id, 0}] = values[n.inputs[0]];
    else if (n.op->name == "NameDims" && values.contains(n.inputs[0]))
      take(values[n.inputs[0]], Edge{id, 0});
  }
  for (const Node& n : graph.nodes())
    if (n.state >= 0 && n.op->name != "ScatterVariable" && n.inputs.size() == 1)
      take(n.state, n.inputs[0]);
  return found;
}

std::vector<Axis> Names::resolved(std::int32_t id, const Terms& terms) {
  const Node& node = graph_.node(id);
  struct From {
    std::size_t input;
    int axis;
  };
  std::vector<Axis> over(terms.is_whole.size());
  std::vector<std::optional<From>> from(over.size());
  for (std::size_t i = 0; i < terms.inputs.size(); ++i) {
    const Axes& axes = of(node.inputs[i]);
    for (std::size_t a = 0; a < terms.inputs[i].size(); ++a) {
      const int term = terms.inputs[i][a];
      if (term == Terms::kNone) continue;
      Axis& known = over[static_cast<std::size_t>(term)];
      std::optional<From>& first = from[static_cast<std::size_t>(term)];
      if (!first || (!dims_->has_name(known) && dims_->has_name(axes[a]))) {
        known = axes[a];
        first = From{i, static_cast<int>(a)};
      } else if (is_strict_ && dims_->has_name(axes[a]) && known != axes[a])
        refuse(fmt::format(
            "{}: axis {} of {} is '{}', and axis {} of {} is '{}'; rename one of them, or bring "
            "both in one order with mesh::aligned",
            graph_.describe(id), first->axis, graph_.describe(node.inputs[first->input].node),
            dims_->text(known), a, graph_.describe(node.inputs[i].node), dims_->text(axes[a])));
    }
  }
  // An axis that no input has is anonymous.
  for (std::size_t o = 0; o < terms.outputs.size(); ++o)
    for (std::size_t a = 0; a < terms.outputs[o].size(); ++a) {
      const int term = terms.outputs[o][a];
      if (term == Terms::kNone || from[static_cast<std::size_t>(term)]) continue;
      const std::int64_t extent = node.outputs[o].shape[static_cast<int>(a)];
      if (Axis& made = over[static_cast<std::size_t>(term)]; made.empty() && extent != 1)
        made.push_back(dims_->anonymous(extent));
    }
  return over;
}

}  // namespace troupe::mesh::detail
