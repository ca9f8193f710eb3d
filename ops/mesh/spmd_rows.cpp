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
// they are in the piece. An index that no piece has stays as it is: kernels refuse it.
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
  const Edge is_nowhere =
      bind("LogicalOr",
           {bind("Less", {indices, number(0)}, {}, false),
            bind("GreaterEqual", {indices, number(local * members(axis))}, {}, false)},
           {}, false);
  const Edge other = bind("Where", {is_nowhere, indices, number(0)}, {}, false);
  return {bind("Where", {is_here, rows, other}, {}, false), is_here};
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
// Each device adds its updates, to the rows that it holds. Updates that are split make a sum over
// devices, of which the table is one summand.
bool Lowering::add_to_split_axis() {
  Laid table = input(0), indices = input(1), updates = input(2);
  if (table.axes.empty()) return false;
  const int along = split_of(table.axes[0]);
  const Splits wanted = rules(table.axes);
  Splits of_rows = rules(indices.axes);
  // A mesh axis that splits the table splits no updates.
  for (std::vector<int>& axis : of_rows)
    for (int& m : axis)
      if (m >= 0 && holds(flat(wanted), m)) m = -1;
  const std::vector<int> over = flat(of_rows);
  const bool is_over = std::any_of(over.begin(), over.end(), [](int m) { return m >= 0; });
  if (along < 0 && !is_over) return false;
  require_legal(table.axes, wanted);
  require_legal(indices.axes, of_rows);
  const std::string why = "rows are added to a table";
  std::vector<char> partial(static_cast<std::size_t>(mesh_.rank()), 0);
  for (int m : over)
    if (m >= 0) partial[static_cast<std::size_t>(m)] = 1;
  // A table that is a sum over the same devices stays one.
  const bool is_summand =
      table.is_partial == partial && !is_summed(table) && uses_.at(node().inputs[0]) == 1;
  table = is_summand ? moved(std::move(table), input(0).axes, wanted, why)
                     : settled(std::move(table), input(0).axes, wanted, why, false);
  indices = settled(std::move(indices), input(1).axes, of_rows, why, false);
  Axes axes = indices.axes;
  axes.insert(axes.end(), table.axes.begin() + 1, table.axes.end());
  Splits splits = of_rows;
  splits.insert(splits.end(), wanted.begin() + 1, wanted.end());
  updates = settled(std::move(updates), axes, splits, why, false);
  Edge rows = indices.edge, added = updates.edge, onto = table.edge;
  if (along >= 0) {
    const auto [here, is_here] = rows_here(rows, along, graph().spec(onto).shape[0]);
    rows = here;
    added = kept_where(is_here, added, 0);
  }
  const auto scalar = [&](Tensor value) {
    return bind("Constant", {}, Attrs{{"value", std::move(value)}}, false);
  };
  for (int m = 0; !is_summand && m < mesh_.rank(); ++m) {
    if (!partial[static_cast<std::size_t>(m)]) continue;
    const Edge me = bind("MeshCoordinate", {}, Attrs{{"mesh_axis", std::int64_t{m}}}, false);
    const Edge is_first = bind("Equal", {me, scalar(Tensor::scalar(std::int64_t{0}))}, {}, false);
    const Edge zero = scalar(Tensor::zeros(graph().spec(onto).dtype, {}));
    onto = bind("Where", {is_first, onto, zero}, {}, false);
  }
  Laid v = table;
  v.is_once = v.is_constant = false;  // the table may be either
  v.edge = bind("ScatterAdd", {onto, rows, added}, node().attrs, false);
  v.is_partial = std::move(partial);
  set(0, std::move(v));
  return true;
}

}  // namespace troupe::mesh::detail
