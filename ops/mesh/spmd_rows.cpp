// Nodes that gather from, and add to, rows of tables that are split.
#include <troupe/ops/mesh/lowering.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::mesh::detail {

using collective::Combine;
using Integers = std::vector<std::int64_t>;

// ---- rows of tables that are split

// The rows of a device's piece of `local` rows that indices name, row 0 for others, and whether
// they are in the piece.
std::pair<Lowering::Edge, Lowering::Edge> Lowering::rows_here(Edge indices, int axis,
                                                              std::int64_t local) {
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
Lowering::Edge Lowering::kept_where(Edge is_here, Edge values, int axis) {
  const Shape &mask = graph().spec(is_here).shape, &all = graph().spec(values).shape;
  Shape wide = mask;
  for (int i = axis + mask.rank(); i < all.rank(); ++i) wide.push_back(1);
  const Edge zero =
      bind("Constant", {}, Attrs{{"value", Tensor::zeros(graph().spec(values).dtype, {})}}, false);
  return bind("Where", {reshaped(is_here, wide, false), values, zero}, {}, false);
}
// The one mesh axis that splits an axis of one dimension; -1: none, or not so simply.
int Lowering::split_of(const Axis& axis) const { return axis.size() == 1 ? rule(axis[0]) : -1; }

// Each device gathers the rows that it holds, and zeros for others: the table stays where it is.
bool Lowering::gather_from_split_axis() {
  Laid table = input(0);
  std::int64_t at = node().attrs.get<std::int64_t>("axis");
  if (at < 0) at += static_cast<std::int64_t>(table.axes.size());
  const auto axis = static_cast<std::size_t>(at);
  const int along = split_of(table.axes[axis]);
  if (along < 0 || node().outputs[0].dtype == DType::string) return false;
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
// Each device adds the updates of the rows that it holds.
bool Lowering::add_to_split_axis() {
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

}  // namespace troupe::mesh::detail
