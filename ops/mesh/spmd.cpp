#include <troupe/ops/mesh/spmd.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/mesh/spmd_writer.hpp>

namespace troupe::mesh::detail {
namespace {

using collective::Combine;
using Integers = std::vector<std::int64_t>;

// Lowers node by node, in the program's order.
class Lowering final : private SpmdWriter {
 public:
  Lowering(const Program& from, const Partitioning& p) : SpmdWriter(from, p), program_(from) {
    find_needed_sums();
  }

  SpmdProgram run() {
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
    for (Edge e : program_.fetches) {
      at_ = e.node;
      to_.program.fetches.push_back(whole(e, "it is fetched"));
    }
    for (const auto& [dimension, axis] : layout_.rules())
      if (!names_.dims().has(dimension))
        to_.told.push_back(
            fmt::format("layout '{}': no tensor has a dimension '{}'", layout_.text(), dimension));
    return std::move(to_);
  }

 private:
  Laid& value(Edge e) {
    return values_[static_cast<std::size_t>(offset_[static_cast<std::size_t>(e.node)] + e.output)];
  }
  Laid& input(std::size_t i) { return value(node().inputs[i]); }

  // The current node on these inputs, with attributes of its own.
  std::int32_t emit(Attrs attrs, std::vector<Edge> inputs, bool is_once) {
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
  // The values of which some node needs the sum itself: they stay partial for no other node.
  void find_needed_sums() {
    for (const Node& n : from_.nodes()) {
      const bool passes = n.op->name == "NameDims" || is_reshape(n);
      const std::optional<Terms> terms =
          passes || !has_known_shapes(from_, n) ? std::nullopt : terms_of(from_, n);
      for (std::size_t i = 0; i < n.inputs.size(); ++i) {
        const bool is_product_with_itself =
            std::count(n.inputs.begin(), n.inputs.end(), n.inputs[i]) > 1;
        const bool may_be_partial =
            passes || (terms && (terms->is_sum ||
                                 ((terms->linear >> i & 1) != 0 && !is_product_with_itself)));
        if (!may_be_partial && !n.op->takes_only_shape(i)) needs_sum_.insert(n.inputs[i]);
      }
    }
  }

  // The whole value in one place.
  Edge whole(Edge e, const std::string& why) {
    if (const auto it = whole_.find(e); it != whole_.end()) return it->second;
    const Laid v = value(e);
    Edge made = v.edge;
    if (v.is_constant) {
      Node copy = graph().node(v.edge.node);
      made = {append(std::move(copy), true), 0};
    } else if (!v.is_once) made = exported(v, why);
    return whole_.emplace(e, made).first->second;
  }

  // ---- one node

  void set(std::size_t output, Laid v) {
    if (v.is_partial.empty()) v.is_partial.assign(static_cast<std::size_t>(mesh_.rank()), 0);
    value(Edge{at_, static_cast<std::int32_t>(output)}) = std::move(v);
  }
  void tell_layout(std::int32_t id, std::size_t output) {
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
    to_.layouts.push_back(fmt::format("{}: [{}] {}{}{}", from_.describe(id), fmt::join(axes, ", "),
                                      graph().spec(v.edge).text(), v.is_once ? " once" : "", sums));
  }

  static bool has_known_shapes(const Graph& g, const Node& n) {
    const auto is_known = [](const ValueSpec& s) {
      return !s.is_list() && s.shape.is_known() && s.dtype != DType::string;
    };
    return std::all_of(n.outputs.begin(), n.outputs.end(), is_known) &&
           std::all_of(n.inputs.begin(), n.inputs.end(),
                       [&](Edge e) { return is_known(g.spec(e)); });
  }
  bool must_run_once() const {
    const Node& n = node();
    return n.op->evaluate || n.op->effect != Effect::none || n.op->side_effect || n.state >= 0 ||
           !n.device.empty() || !n.controls.empty() || n.outputs.empty() ||
           !has_known_shapes(from_, n);
  }

  void lower(std::int32_t id) {
    const Node& n = from_.node(id);
    if (must_run_once() || n.op->name == "Input") return run_once();
    if (n.op->name == "NameDims") return name_dims();
    if (n.inputs.empty()) return run_everywhere();
    if (is_reshape(n)) return reshape();
    if (n.op->name == "Softmax" || n.op->name == "LogSoftmax")
      if (normalize_over_split_axis()) return;
    if (n.op->name == "Gather" && gather_from_split_axis()) return;
    if (n.op->name == "ScatterAdd" && add_to_split_axis()) return;
    if (const std::optional<Terms> terms = terms_of(from_, n)) return run_on_pieces(*terms);
    run_whole();
  }

  void run_once() {
    std::vector<Edge> inputs;
    for (Edge e : std::vector<Edge>(node().inputs))
      inputs.push_back(whole(e, "a node that runs once takes it"));
    const std::int32_t made = emit(node().attrs, std::move(inputs), true);
    set_outputs(made, true);
  }
  void set_outputs(std::int32_t made, bool is_once) {
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
  void run_everywhere() { set_outputs(emit(node().attrs, {}, false), false); }

  // A node without terms, on whole inputs.
  void run_whole() {
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

  void name_dims() {
    const Axes& axes = names_.of(Edge{at_, 0});
    const Splits wanted = rules(axes);
    require_legal(axes, wanted);
    set(0, moved(input(0), axes, wanted, "its dimensions are renamed"));
    // Controls on a naming node become controls on the named node.
    made_[static_cast<std::size_t>(at_)] = value(Edge{at_, 0}).edge.node;
  }

  void reshape() {
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
    set(0, moved(std::move(v), axes, wanted, "its dimensions are renamed"));
    made_[static_cast<std::size_t>(at_)] = value(Edge{at_, 0}).edge.node;
  }

  // Softmax along a last axis that is split: the maximum and the sum cross devices, the values do
  // not. False: the axis is whole.
  bool normalize_over_split_axis() {
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

  // ---- rows of tables that are split

  // The rows of a device's piece of `local` rows that indices name, row 0 for others, and whether
  // they are in the piece.
  std::pair<Edge, Edge> rows_here(Edge indices, int axis, std::int64_t local) {
    const auto number = [&](std::int64_t n) {
      return bind("Constant", {}, Attrs{{"value", Tensor::scalar(n)}}, false);
    };
    if (graph().spec(indices).dtype != DType::i64)
      indices = bind("Cast", {indices}, Attrs{{"dtype", DType::i64}}, false);
    const Edge here = bind("MeshCoordinate", {}, Attrs{{"mesh_axis", std::int64_t{axis}}}, false);
    const Edge first = bind("Mul", {here, number(local)}, {}, false);
    const Edge rows = bind("Sub", {indices, first}, {}, false);
    const Edge is_here = bind("LogicalAnd",
                              {bind("GreaterEqual", {rows, number(0)}, {}, false),
                               bind("Less", {rows, number(local)}, {}, false)},
                              {}, false);
    return {bind("Where", {is_here, rows, number(0)}, {}, false), is_here};
  }
  // `values` where `is_here`, whose axes lie from `axis` on, else 0.
  Edge kept_where(Edge is_here, Edge values, int axis) {
    const Shape &mask = graph().spec(is_here).shape, &all = graph().spec(values).shape;
    Shape wide = mask;
    for (int i = axis + mask.rank(); i < all.rank(); ++i) wide.push_back(1);
    const Edge zero = bind("Constant", {},
                           Attrs{{"value", Tensor::zeros(graph().spec(values).dtype, {})}}, false);
    return bind("Where", {reshaped(is_here, wide, false), values, zero}, {}, false);
  }
  // The one mesh axis that splits an axis of one dimension; -1: none, or not so simply.
  int split_of(const Axis& axis) const { return axis.size() == 1 ? rule(axis[0]) : -1; }

  // Each device gathers the rows that it holds, and zeros for others: the table stays where it is.
  bool gather_from_split_axis() {
    Laid table = input(0);
    std::int64_t at = node().attrs.get<std::int64_t>("axis");
    if (at < 0) at += static_cast<std::int64_t>(table.axes.size());
    const auto axis = static_cast<std::size_t>(at);
    const int along = split_of(table.axes[axis]);
    if (along < 0 || dtype_is_text()) return false;
    Laid indices = input(1);
    const Splits wanted = rules(table.axes), wanted_rows = rules(indices.axes);
    Axes axes;
    Splits splits;
    const auto add = [&](const Axes& from, const Splits& how, std::size_t begin, std::size_t end) {
      axes.insert(axes.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
                  from.begin() + static_cast<std::ptrdiff_t>(end));
      splits.insert(splits.end(), how.begin() + static_cast<std::ptrdiff_t>(begin),
                    how.begin() + static_cast<std::ptrdiff_t>(end));
    };
    add(table.axes, wanted, 0, axis);
    add(indices.axes, wanted_rows, 0, indices.axes.size());
    add(table.axes, wanted, axis + 1, table.axes.size());
    if (holds(flat(splits), along)) return false;
    require_legal(table.axes, wanted);
    require_legal(axes, splits);
    const std::string why = "rows are gathered from a split axis";
    table = moved(summed(std::move(table), why), input(0).axes, wanted, why);
    indices = moved(summed(std::move(indices), why), input(1).axes, wanted_rows, why);
    const auto [rows, is_here] =
        rows_here(indices.edge, along, graph().spec(table.edge).shape[static_cast<int>(axis)]);
    const Edge gathered = bind("Gather", {table.edge, rows}, node().attrs, false);
    Laid v;
    v.edge = kept_where(is_here, gathered, static_cast<int>(axis));
    v.axes = std::move(axes);
    v.splits = std::move(splits);
    v.is_partial.assign(static_cast<std::size_t>(mesh_.rank()), 0);
    v.is_partial[static_cast<std::size_t>(along)] = 1;
    set(0, std::move(v));
    return true;
  }
  bool dtype_is_text() const { return node().outputs[0].dtype == DType::string; }

  // Each device adds the updates of the rows that it holds.
  bool add_to_split_axis() {
    Laid table = input(0), indices = input(1), updates = input(2);
    if (table.axes.empty()) return false;
    const int along = split_of(table.axes[0]);
    const Splits wanted = rules(table.axes);
    if (along < 0) return false;
    require_legal(table.axes, wanted);
    const std::string why = "rows are added to a split axis";
    table = moved(summed(std::move(table), why), input(0).axes, wanted, why);
    indices = moved(summed(std::move(indices), why), input(1).axes, none(input(1).axes), why);
    Axes axes = indices.axes;
    axes.insert(axes.end(), table.axes.begin() + 1, table.axes.end());
    Splits splits = none(indices.axes);
    splits.insert(splits.end(), wanted.begin() + 1, wanted.end());
    updates = moved(summed(std::move(updates), why), axes, splits, why);
    const auto [rows, is_here] = rows_here(indices.edge, along, graph().spec(table.edge).shape[0]);
    Laid v = table;
    v.edge = bind("ScatterAdd", {table.edge, rows, kept_where(is_here, updates.edge, 0)},
                  node().attrs, false);
    set(0, std::move(v));
    return true;
  }

  // ---- nodes on pieces

  void run_on_pieces(const Terms& terms) {
    // The dimensions that each term runs over, and how these are split.
    std::vector<Axis> over = names_.resolved(at_, terms);
    for (std::size_t o = 0; o < terms.outputs.size(); ++o)
      for (std::size_t a = 0; a < terms.outputs[o].size(); ++a)
        if (const int t = terms.outputs[o][a]; t != Terms::kNone)
          over[static_cast<std::size_t>(t)] = names_.of(Edge{at_, static_cast<std::int32_t>(o)})[a];
    std::vector<std::vector<int>> split;
    bool is_split = false;
    for (std::size_t t = 0; t < over.size(); ++t) {
      split.push_back(terms.is_whole[t] ? std::vector<int>(over[t].size(), -1) : rules(over[t]));
      for (int m : split.back()) is_split = is_split || m >= 0;
    }
    bool are_once = !is_split;
    for (std::size_t i = 0; i < terms.inputs.size(); ++i)
      are_once = are_once && (input(i).is_once || input(i).is_constant);
    if (are_once) return run_once();

    const auto laid = [&](const std::vector<int>& axes) {
      std::pair<Axes, Splits> made;
      for (int t : axes) {
        made.first.push_back(t == Terms::kNone ? Axis{} : over[static_cast<std::size_t>(t)]);
        made.second.push_back(t == Terms::kNone ? std::vector<int>{}
                                                : split[static_cast<std::size_t>(t)]);
      }
      return made;
    };
    for (const auto& axes : terms.inputs) {
      const auto [a, s] = laid(axes);
      require_legal(a, s);
    }
    for (const auto& axes : terms.outputs) {
      const auto [a, s] = laid(axes);
      require_legal(a, s);
    }
    std::set<int> summed_over;
    for (std::size_t o = 0; o < terms.outputs.size(); ++o)
      for (int m : reduced_axes(terms, split, o)) summed_over.insert(m);
    std::vector<char> partial = kept_partials(terms, split, summed_over);
    std::vector<Edge> inputs;
    for (std::size_t i = 0; i < terms.inputs.size(); ++i) {
      Laid v = input(i);
      const std::string why = fmt::format("input {} of {} has another layout", i, node().op->name);
      const bool is_kept = v.has_partials() && v.is_partial == partial;
      if (!is_kept && !node().op->takes_only_shape(i))
        v = summed(std::move(v), fmt::format("input {} of {} is a sum", i, node().op->name));
      const auto [axes, splits] = laid(terms.inputs[i]);
      inputs.push_back(
          moved(std::move(v), as_in(terms.inputs[i], input(i).axes, axes), splits, why).edge);
    }
    Attrs attrs = node().attrs;
    if (terms.localise) {
      std::vector<Shape> outputs;
      for (const auto& axes : terms.outputs) {
        const auto [a, s] = laid(axes);
        outputs.push_back(local_shape(a, s));
      }
      terms.localise(attrs, outputs);
    }
    const std::int32_t made = emit(std::move(attrs), std::move(inputs), false);
    for (std::size_t o = 0; o < terms.outputs.size(); ++o) {
      auto [axes, splits] = laid(terms.outputs[o]);
      Laid v;
      v.edge = {made, static_cast<std::int32_t>(o)};
      v.axes = std::move(axes);
      v.splits = std::move(splits);
      v.is_partial = partial;
      combine_over(v, terms, reduced_axes(terms, split, o));
      set(o, std::move(v));
    }
  }
  // An axis of extent 1 that a node repeats keeps the dimension of extent 1 that it has.
  Axes as_in(const std::vector<int>& terms, const Axes& own, Axes axes) const {
    for (std::size_t a = 0; a < axes.size(); ++a)
      if (terms[a] == Terms::kNone) axes[a] = {};
    (void)own;
    return axes;
  }

  // The mesh axes that split terms which an output lacks.
  std::set<int> reduced_axes(const Terms& terms, const std::vector<std::vector<int>>& split,
                             std::size_t output) const {
    std::vector<char> is_kept(split.size(), 0);
    for (int t : terms.outputs[output])
      if (t != Terms::kNone) is_kept[static_cast<std::size_t>(t)] = 1;
    std::set<int> axes;
    for (std::size_t t = 0; t < split.size(); ++t)
      for (int m : split[t])
        if (m >= 0 && !is_kept[t]) axes.insert(m);
    return axes;
  }

  // The mesh axes over which the result may stay partial because its inputs are.
  std::vector<char> kept_partials(const Terms& terms, const std::vector<std::vector<int>>& split,
                                  const std::set<int>& summed_over) {
    const std::vector<char> nothing(static_cast<std::size_t>(mesh_.rank()), 0);
    std::vector<std::size_t> partial_inputs;
    for (std::size_t i = 0; i < terms.inputs.size(); ++i)
      if (input(i).has_partials() && !node().op->takes_only_shape(i)) {
        if (needs_sum_.contains(node().inputs[i]) || is_summed(input(i))) return nothing;
        partial_inputs.push_back(i);
      }
    if (partial_inputs.empty()) return nothing;
    const std::vector<char>& partial = input(partial_inputs[0]).is_partial;
    if (terms.is_sum) {
      if (partial_inputs.size() != terms.inputs.size()) return nothing;
      for (std::size_t i : partial_inputs)
        if (input(i).is_partial != partial) return nothing;
    } else if (partial_inputs.size() != 1 || !(terms.linear >> partial_inputs[0] & 1)) {
      return nothing;
    } else if (node().outputs[0].shape.elements() >
               from_.spec(node().inputs[partial_inputs[0]]).shape.elements()) {
      return nothing;  // a smaller value is summed sooner
    }
    // Along these, devices must hold summands of the same elements.
    for (const auto& splits : split)
      for (int m : splits)
        if (m >= 0 && partial[static_cast<std::size_t>(m)]) return nothing;
    for (int m : summed_over)
      if (partial[static_cast<std::size_t>(m)]) return nothing;
    return partial;
  }

  // Values that each device has of its own pieces meet along `axes`.
  void combine_over(Laid& v, const Terms& terms, const std::set<int>& axes) {
    if (axes.empty()) return;
    const bool is_mean = terms.combine == Combine::mean;
    if (is_mean || terms.combine == Combine::sum) {
      std::int64_t count = 1;
      for (int m : axes) {
        v.is_partial[static_cast<std::size_t>(m)] = 1;
        count *= members(m);
      }
      if (is_mean) {
        // Each device has the mean of as many elements.
        const DType dtype = graph().spec(v.edge).dtype;
        Tensor scale = Tensor::zeros(dtype, {});
        scale = Operand(1.0 / static_cast<double>(count)).number_as(dtype);
        const Edge factor = bind("Constant", {}, Attrs{{"value", std::move(scale)}}, false);
        v.edge = bind("Mul", {v.edge, factor}, {}, false);
      }
      return;
    }
    for (int m : axes) {
      tell("all-reduce", v.edge, m, fmt::format("{} along a split axis", node().op->name));
      v.edge = all_reduced(v.edge, m, terms.combine);
    }
  }

  const Program& program_;
  std::vector<std::int32_t> offset_;  // the first output of each node in values_
  std::vector<Laid> values_;
  // the node of the SPMD program that stands for one
  std::vector<std::optional<std::int32_t>> made_;
  std::set<Edge> needs_sum_;    // values of which some node needs the sum itself
  std::map<Edge, Edge> whole_;  // values in one place
};

}  // namespace

SpmdProgram to_spmd(const Program& program, const Partitioning& partitioning) {
  return Lowering(program, partitioning).run();
}

}  // namespace troupe::mesh::detail
