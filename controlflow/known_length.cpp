#include <troupe/controlflow/known_length.hpp>

#include <algorithm>
#include <limits>
#include <optional>

#include <troupe/controlflow/build.hpp>

namespace troupe {
namespace {

using Count = std::optional<std::int64_t>;

// A list has so many elements at most.
constexpr std::int64_t kMostInList = std::numeric_limits<std::int32_t>::max();

Count whole_constant(const Graph& g, Edge e) {
  const Node& n = g.node(e.node);
  if (n.op->name != "Constant") return {};
  const auto& value = n.attrs.get<Tensor>("value");
  if (value.elements() != 1) return {};
  if (value.dtype() == DType::i64) return value.item<std::int64_t>();
  if (value.dtype() == DType::i32) return value.item<std::int32_t>();
  return {};
}

// By how much a step changes the variable: `i + 2`, `2 + i`, `i - 1`.
Count step_of(const SubGraph& body, std::size_t k) {
  const Node& n = body.graph.node(body.outputs[k].node);
  if (n.inputs.size() != 2) return {};
  if (n.op->name == "Add" && n.inputs[0] == body.inputs[k])
    return whole_constant(body.graph, n.inputs[1]);
  if (n.op->name == "Add" && n.inputs[1] == body.inputs[k])
    return whole_constant(body.graph, n.inputs[0]);
  if (n.op->name != "Sub" || n.inputs[0] != body.inputs[k]) return {};
  const Count by = whole_constant(body.graph, n.inputs[1]);
  return by && *by != std::numeric_limits<std::int64_t>::min() ? Count(-*by) : Count();
}

// The number of iterations of a loop whose predicate compares a counter with a constant.
Count iterations_of(const Graph& g, const Node& loop) {
  const WhileView w(loop);
  const Node& predicate = w.condition.graph.node(w.condition.outputs[0].node);
  const std::string& op = predicate.op->name;
  const bool is_less = op == "Less" || op == "LessEqual";
  if (!is_less && op != "Greater" && op != "GreaterEqual") return {};
  for (const int side : {0, 1}) {
    const auto counter =
        std::find(w.condition.inputs.begin(), w.condition.inputs.end(), predicate.inputs[side]);
    const auto k = static_cast<std::size_t>(counter - w.condition.inputs.begin());
    if (k >= static_cast<std::size_t>(w.explicit_variables)) continue;
    const Count first = whole_constant(g, loop.inputs[k]),
                last = whole_constant(w.condition.graph, predicate.inputs[1 - side]),
                by = step_of(w.body, k);
    if (!first || !last || !by) return {};
    // as `counter < end` of a counter that grows
    const bool is_up = is_less == (side == 0);
    __int128 from = *first, end = *last, step = *by;
    if (!is_up) from = -from, end = -end, step = -step;
    if (op == "LessEqual" || op == "GreaterEqual") ++end;
    if (from >= end) return 0;
    if (step <= 0) return {};
    const __int128 n = (end - from + step - 1) / step;
    // The counter would begin anew beyond what its dtype holds.
    const __int128 most = g.spec(loop.inputs[k]).dtype == DType::i32
                              ? std::numeric_limits<std::int32_t>::max()
                              : std::numeric_limits<std::int64_t>::max();
    if (n > kMostInList || from + n * step > most) return {};
    return static_cast<std::int64_t>(n);
  }
  return {};
}

// Goes from `list` back to the list that it was made of, which `list` becomes, and returns how many
// elements it has more than that. Stops at `first`, if it comes there.
Count more_than(const Graph& g, Edge& list, Edge first) {
  std::int64_t more = 0;
  while (list != first) {
    const Node& n = g.node(list.node);
    const std::string& op = n.op->name;
    if (op == "ListPush") {
      ++more;
      list = n.inputs[0];
    } else if (op == "ListPop" && list.output == 0) {
      --more;
      list = n.inputs[0];
    } else if (op == "Identity" || (op == "ListWrite" && !n.attrs.get<bool>("dynamic_size"))) {
      list = n.inputs[0];
    } else if (op == "While") {
      const WhileView w(n);
      const auto k = static_cast<std::size_t>(list.output);
      if (k >= static_cast<std::size_t>(w.explicit_variables)) return {};
      Edge within = w.body.outputs[k];
      const Count each = more_than(w.body.graph, within, w.body.inputs[k]);
      if (!each || within != w.body.inputs[k]) return {};
      const Count iterations = *each == 0 ? Count(0) : iterations_of(g, n);
      if (!iterations || std::abs(*each) > kMostInList) return {};
      const __int128 all = static_cast<__int128>(*each) * *iterations;
      if (all > kMostInList || all < -kMostInList) return {};
      more += static_cast<std::int64_t>(all);
      list = n.inputs[k];
    } else {
      return more;
    }
  }
  return more;
}

}  // namespace

std::int64_t known_length(const Graph& graph, Edge list) {
  const Count more = more_than(graph, list, {});
  if (!more) return -1;
  const Node& made = graph.node(list.node);
  const std::string& op = made.op->name;
  Count first;
  if (op == "ListEmpty") first = 0;
  if (op == "ListReserve") first = whole_constant(graph, made.inputs[0]);
  if (op == "ListUnstack")
    if (const Shape& shape = graph.spec(made.inputs[0]).shape;
        shape.has_rank() && shape.rank() > 0 && shape[0] >= 0)
      first = shape[0];
  if (!first || *first < 0 || *first > kMostInList) return -1;
  const std::int64_t length = *first + *more;
  return length >= 0 && length <= kMostInList ? length : -1;
}

}  // namespace troupe
