// Nodes that every device runs on its pieces.
#include <troupe/ops/mesh/lowering.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::mesh::detail {

using collective::Combine;
using Integers = std::vector<std::int64_t>;

// ---- nodes on pieces

void Lowering::run_on_pieces(const Terms& terms) {
  // The dimensions that each term runs over, and how these are split.
  std::vector<Axis> over = names_.resolved(at_, terms);
  for (std::size_t o = 0; o < terms.outputs.size(); ++o)
    for (std::size_t a = 0; a < terms.outputs[o].size(); ++a)
      if (const int t = terms.outputs[o][a]; t != Terms::kNone)
        over[static_cast<std::size_t>(t)] = names_.of(Edge{at_, static_cast<std::int32_t>(o)})[a];
  TermSplits split;
  for (std::size_t t = 0; t < over.size(); ++t) {
    split.push_back(terms.is_whole[t] ? std::vector<int>(over[t].size(), -1) : rules(over[t]));
  }
  split_further(terms, over, split);
  bool are_once = true;
  for (const std::vector<int>& of_term : split)
    for (int m : of_term) are_once = are_once && m < 0;
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
  Accumulator* const sum = accumulator_here();
  if (sum) begin_sum(*sum);
  std::vector<char> partial = kept_partials(terms, split, summed_over);
  if (sum) end_sum(*sum, partial);
  std::vector<Edge> inputs;
  for (std::size_t i = 0; i < terms.inputs.size(); ++i) {
    Laid v = input(i);
    const bool is_kept = v.has_partials() && v.is_partial == partial;
    const bool is_sum = !is_kept && v.has_partials() && !node().op->takes_only_shape(i);
    const std::string why = fmt::format("input {} of {} {}", i, node().op->name,
                                        is_sum ? "is a sum" : "has another layout");
    const auto [axes, splits] = laid(terms.inputs[i]);
    inputs.push_back((is_sum ? settled(std::move(v), axes, splits, why, may_scatter(i))
                             : moved(std::move(v), axes, splits, why))
                         .edge);
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

// A pointwise node on a variable that is split further than the rules say, as optimizers' may be,
// and one that makes an update of it, run on its pieces.
void Lowering::split_further(const Terms& terms, const std::vector<Axis>& over, TermSplits& split) {
  if (!node().op->pointwise || terms.outputs.size() != 1) return;
  const auto take = [&](const std::vector<int>& of_axes, const Axes& axes, const Splits& splits) {
    for (std::size_t a = 0; a < of_axes.size(); ++a) {
      if (of_axes[a] == Terms::kNone) continue;
      const auto t = static_cast<std::size_t>(of_axes[a]);
      if (!has_same_sizes(axes[a], over[t])) continue;
      for (std::size_t f = 0; f < splits[a].size(); ++f) {
        const int m = splits[a][f];
        const bool is_taken =
            std::any_of(split.begin(), split.end(), [&](const auto& of) { return holds(of, m); });
        if (m >= 0 && split[t][f] < 0 && !is_taken) split[t][f] = m;
      }
    }
  };
  const Edge out{at_, 0};
  if (has_wish(out))
    return take(terms.outputs[0], over_of(terms.outputs[0], over), wishes_.at(out).begin()->first);
  for (std::size_t i = 0; i < terms.inputs.size(); ++i)
    if (is_split_further(input(i))) take(terms.inputs[i], input(i).axes, input(i).splits);
}
Axes Lowering::over_of(const std::vector<int>& terms, const std::vector<Axis>& over) {
  Axes axes;
  for (int t : terms)
    axes.push_back(t == Terms::kNone ? Axis{} : over[static_cast<std::size_t>(t)]);
  return axes;
}
bool Lowering::is_split_further(const Laid& v) const {
  const std::vector<int> now = flat(v.splits), ruled = flat(rules(v.axes));
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i] >= 0 && ruled[i] < 0) return true;
  return false;
}
// A sum of which each use takes a piece alone.
bool Lowering::may_scatter(std::size_t i) const {
  const Edge e = node().inputs[i];
  return uses_.at(e) == 1 || has_wish(e);
}

// The mesh axes that split terms which an output lacks.
std::set<int> Lowering::reduced_axes(const Terms& terms, const TermSplits& split,
                                     std::size_t output) const {
  if (terms.are_apart) return {};
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
std::vector<char> Lowering::kept_partials(const Terms& terms, const TermSplits& split,
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
void Lowering::combine_over(Laid& v, const Terms& terms, const std::set<int>& axes) {
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

}  // namespace troupe::mesh::detail
