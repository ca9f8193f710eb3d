// Operations along a split axis by small exchanges: shifts, running sums, the largest elements.
#include <troupe/ops/mesh/lowering.hpp>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::mesh::detail {

using Integers = std::vector<std::int64_t>;

// The input under its rules, if the axis is one dimension that is split, along `mesh_axis`.
std::optional<Laid> Lowering::split_along(std::size_t axis, int& mesh_axis) {
  const Axes axes = input(0).axes;
  if (axis >= axes.size()) return std::nullopt;
  mesh_axis = split_of(axes[axis]);
  if (mesh_axis < 0) return std::nullopt;
  const Splits wanted = rules(axes);
  require_legal(axes, wanted);
  return settled(input(0), axes, wanted, fmt::format("{} takes it", node().op->name),
                 may_scatter(0));
}

Lowering::Edge Lowering::rows_of(Edge e, std::size_t axis, std::int64_t begin, std::int64_t count) {
  const Shape& shape = graph().spec(e).shape;
  Integers starts(static_cast<std::size_t>(shape.rank()), 0), extents(shape.begin(), shape.end());
  starts[axis] = begin;
  extents[axis] = count;
  return bind("Slice", {e}, Attrs{{"starts", starts}, {"extents", extents}}, false);
}

Lowering::Edge Lowering::from_neighbour(Edge e, int mesh_axis, std::int64_t by, bool wrap) {
  if (by == 0) return e;
  tell("exchange with a neighbour", e, mesh_axis, "elements move along a split axis");
  return bind("MeshShift", {e},
              Attrs{{"mesh_axis", std::int64_t{mesh_axis}}, {"by", by}, {"wrap", wrap}}, false);
}

// Device i gets the rows of devices i - q and i - q - 1 that come to it.
bool Lowering::shift_along() {
  const auto axis = static_cast<std::size_t>(node().attrs.get<std::int64_t>("axis"));
  int along = -1;
  const std::optional<Laid> x = split_along(axis, along);
  if (!x) return false;
  const bool wrap = node().attrs.get<bool>("wrap");
  const std::int64_t local = graph().spec(x->edge).shape[static_cast<int>(axis)],
                     whole = local * members(along);
  std::int64_t by = node().attrs.get<std::int64_t>("by");
  by = wrap ? ((by % whole) + whole) % whole : std::clamp(by, -whole, whole);
  // by = hops * local + rest, 0 <= rest < local; a shift to the front by few is a hop back.
  std::int64_t hops = by / local, rest = by % local;
  if (rest < 0) rest += local, --hops;
  if (wrap && hops == members(along) - 1 && rest > 0) hops = -1;
  Laid y = *x;
  const auto parts = [&]() -> std::vector<Edge> {
    if (rest == 0) return {from_neighbour(x->edge, along, hops, wrap)};
    return {from_neighbour(rows_of(x->edge, axis, local - rest, rest), along, hops + 1, wrap),
            from_neighbour(rows_of(x->edge, axis, 0, local - rest), along, hops, wrap)};
  }();
  y.edge = parts.size() == 1
               ? parts[0]
               : bind("Concat", parts, Attrs{{"axis", static_cast<std::int64_t>(axis)}}, false);
  set(0, std::move(y));
  return true;
}

// Each device adds the totals of those before it, or behind it in a reverse sum.
bool Lowering::sum_along() {
  std::int64_t at = node().attrs.get<std::int64_t>("axis");
  if (at < 0) at += static_cast<std::int64_t>(input(0).axes.size());
  const auto axis = static_cast<std::size_t>(at);
  int along = -1;
  const std::optional<Laid> x = split_along(axis, along);
  if (!x) return false;
  Attrs attrs = node().attrs;
  attrs.set("axis", at);
  const Edge here = bind("CumSum", {x->edge}, attrs, false);
  const Attrs kept{{"axes", Integers{at}}, {"keep_dims", true}};
  const Edge total = bind("Sum", {x->edge}, kept, false);
  tell("all-gather", total, along, "the totals of a running sum along a split axis");
  const std::int64_t k = members(along);
  const Edge totals =
      bind("MeshAllGather", {total},
           Attrs{{"mesh_axis", std::int64_t{along}}, {"axis", at}, {"parts", k}}, false);
  Shape wide;
  for (std::size_t i = 0; i < x->axes.size(); ++i) wide.push_back(i == axis ? k : 1);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(k));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Edge devices =
      bind("Constant", {}, Attrs{{"value", Tensor::of<std::int64_t>(numbers, wide)}}, false);
  const Edge me = bind("MeshCoordinate", {}, Attrs{{"mesh_axis", std::int64_t{along}}}, false);
  const bool is_reverse = node().attrs.get<bool>("reverse");
  const Edge is_before = bind(is_reverse ? "Greater" : "Less", {devices, me}, {}, false);
  const Edge zero =
      bind("Constant", {}, Attrs{{"value", Tensor::zeros(graph().spec(total).dtype, {})}}, false);
  const Edge before =
      bind("Sum", {bind("Where", {is_before, totals, zero}, {}, false)}, kept, false);
  Laid y = *x;
  y.edge = bind("Add", {here, before}, {}, false);
  set(0, std::move(y));
  return true;
}

// The largest of each device's largest: of equal ones the first, as in a whole row.
bool Lowering::largest_along() {
  const std::size_t axis = input(0).axes.size() - 1;
  int along = -1;
  const std::int64_t k = node().attrs.get<std::int64_t>("k");
  if (input(0).axes.empty() || k < 1) return false;
  const std::optional<Laid> x = split_along(axis, along);
  if (!x) return false;
  const std::int64_t local = graph().spec(x->edge).shape[static_cast<int>(axis)],
                     few = std::min(k, local);
  Attrs attrs = node().attrs;
  attrs.set("k", few);
  const auto bind_top = [&](Edge e, Attrs with) {
    const Edge values = bind("TopK", {e}, std::move(with), false);
    return std::pair(values, Edge{values.node, 1});
  };
  const auto [values, places] = bind_top(x->edge, attrs);
  const Edge me = bind("MeshCoordinate", {}, Attrs{{"mesh_axis", std::int64_t{along}}}, false);
  const Edge rows = bind("Constant", {}, Attrs{{"value", Tensor::scalar(local)}}, false);
  const Edge positions = bind("Add", {places, bind("Mul", {me, rows}, {}, false)}, {}, false);
  const auto gathered = [&](Edge e) {
    tell("all-gather", e, along, "the largest elements of each device");
    return bind("MeshAllGather", {e},
                Attrs{{"mesh_axis", std::int64_t{along}},
                      {"axis", static_cast<std::int64_t>(axis)},
                      {"parts", members(along)}},
                false);
  };
  const Edge candidates = gathered(values), their_positions = gathered(positions);
  const auto [best, chosen] = bind_top(candidates, node().attrs);
  const Edge found = bind("TakeAlong", {their_positions, chosen},
                          Attrs{{"axis", static_cast<std::int64_t>(axis)}}, false);
  for (std::size_t o = 0; o < 2; ++o) {
    Laid y = *x;
    y.edge = o == 0 ? best : found;
    y.axes[axis] = names_.of(Edge{at_, static_cast<std::int32_t>(o)})[axis];
    y.splits[axis].assign(y.axes[axis].size(), -1);
    set(o, std::move(y));
  }
  return true;
}

}  // namespace troupe::mesh::detail
