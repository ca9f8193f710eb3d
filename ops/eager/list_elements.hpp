// Lists of values whose elements may be in the memory of any device: which ops leave the elements
// there.
#pragma once

#include <set>
#include <span>
#include <string_view>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// True for ops that move the elements of lists and read none, so that these may be anywhere.
inline bool moves_elements(const OpDef& op) {
  static const std::set<std::string_view> names = {
      "Identity", "ListLength", "ListPop", "ListPush", "ListRead", "ListReadLike", "ListWrite"};
  return names.contains(op.name);
}

/// True for the input of such an op that becomes an element.
inline bool is_element(const OpDef& op, std::size_t input) {
  return (op.name == "ListPush" && input == 1) || (op.name == "ListWrite" && input == 2);
}

/// True for a bind whose kernel runs here although its scope computes on another node: it makes a
/// list, or moves elements, which are handles.
inline bool handles_lists(const OpDef& op, std::span<const Expr> inputs) {
  if (op.name == "ListEmpty" || op.name == "ListReserve") return true;
  return moves_elements(op) && !inputs.empty() && inputs[0].held().is_list();
}

}  // namespace troupe::detail
