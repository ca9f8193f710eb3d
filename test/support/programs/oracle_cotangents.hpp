// The oracle's versions of the ops that gradients add to a program: sums and elements of lists with
// missing elements, and tensors of which only the shape counts.
#pragma once

#include <optional>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/graph.hpp>
#include <troupe/test/support/programs/oracle.hpp>

namespace troupe::test {

inline std::size_t oracle_index(const OracleValue& v) {
  if (v.array.v[0] < 0) throw OracleError("an index is outside the list");
  return static_cast<std::size_t>(v.array.v[0]);
}

inline OracleValue oracle_sum(const OracleValue& a, const OracleValue& b) {
  if (a.is_list != b.is_list) throw OracleError("a list and a tensor are added");
  OracleValue out = a;
  if (!a.is_list) {
    if (a.array.shape != b.array.shape) throw OracleError("cotangents of two shapes are added");
    for (std::size_t i = 0; i < out.array.v.size(); ++i) out.array.v[i] += b.array.v[i];
    return out;
  }
  out.elements.resize(std::max(a.elements.size(), b.elements.size()));
  for (std::size_t i = 0; i < b.elements.size(); ++i) {
    if (!b.elements[i]) continue;
    out.elements[i] =
        out.elements[i]
            ? std::make_shared<const OracleValue>(oracle_sum(*out.elements[i], *b.elements[i]))
            : b.elements[i];
  }
  return out;
}

/// Zeros as the node's attributes say, of the shape of input `like` if there is one.
inline OracleValue oracle_zeros(const Node& n, const std::vector<OracleValue>& in,
                                std::size_t like) {
  const auto dtype = n.attrs.get<DType>("dtype");
  const int depth = static_cast<int>(n.attrs.get_or("depth", std::int64_t{0}));
  Shape shape = n.attrs.get<Shape>("shape");
  if (depth > 0) return {dtype, {}, true, shape, depth, {}};
  if (in.size() > like) shape = in[like].array.shape;
  if (!shape.is_known()) throw OracleError("zeros of a shape that is not known");
  return {dtype, Array::filled(shape, 0), false, {}, 0, {}};
}

/// None if the node is not of these ops.
inline std::optional<std::vector<OracleValue>> fire_cotangent(const Node& n,
                                                              const std::vector<OracleValue>& in) {
  using Values = std::vector<OracleValue>;
  const std::string& op = n.op->name;
  if (op == "EnsureShape") return Values{in[0]};
  if (op == "Blank") {
    if (in.empty()) return Values{oracle_zeros(n, in, 0)};
    Shape shape = Shape{};
    for (std::size_t i = 0; i < in[0].array.v.size(); ++i)
      shape = shape.with_inserted(shape.rank(), static_cast<std::int64_t>(in[0].array.v[i]));
    return Values{{n.outputs[0].dtype, Array::filled(shape, 0), false, {}, 0, {}}};
  }
  if (op == "ListSum") return Values{oracle_sum(in[0], in[1])};
  if (op != "ListAccumulate" && op != "ListPut" && op != "ListTake" && op != "ListReadLike")
    return std::nullopt;
  OracleValue list = in[0];
  const std::size_t i = oracle_index(in[1]);
  if (op == "ListTake" || op == "ListReadLike") {
    const bool has_it = i < list.elements.size() && list.elements[i];
    const OracleValue element = has_it ? *list.elements[i] : oracle_zeros(n, in, 2);
    if (op == "ListReadLike") return Values{element};
    if (i + 1 == list.elements.size()) list.elements.pop_back();
    else if (has_it) list.elements[i] = nullptr;
    return Values{list, element};
  }
  if (i >= list.elements.size()) list.elements.resize(i + 1);
  const bool adds = op == "ListAccumulate" && list.elements[i];
  list.elements[i] =
      std::make_shared<const OracleValue>(adds ? oracle_sum(*list.elements[i], in[2]) : in[2]);
  return Values{list};
}

}  // namespace troupe::test
