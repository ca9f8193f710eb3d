// Loops, branches and lists as the mesh sees them: their parts, and the roles of list operands.
//
// A list on a mesh is a list on each device, of pieces that are split as its elements' names say. A
// list whose elements have no names stays in one place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::mesh::detail {

/// A While node by parts: its sub-graphs take variables, then captures.
struct LoopParts {
  explicit LoopParts(const troupe::detail::Node& node);
  const troupe::detail::SubGraph& condition;
  const troupe::detail::SubGraph& body;
  std::size_t given;      // variables that inputs begin; the others begin as zero or empty
  std::size_t variables;  // all
  std::size_t captures;
  const std::vector<ValueSpec>& implicit;
  /// The spec of a variable, as the body takes it.
  const ValueSpec& spec(std::size_t variable) const;
};
bool is_loop(const troupe::detail::Node& node);
bool is_branch(const troupe::detail::Node& node);

/// The part of an operand in a list's operation.
enum class ListRole : std::uint8_t {
  list,
  element,
  stacked,  // elements along a new leading axis
  other     // indices, lengths: whole
};
struct ListRoles {
  std::vector<ListRole> inputs, outputs;
};
/// The roles of a node's operands; none: it is no such operation.
std::optional<ListRoles> list_roles(const troupe::detail::Node& node);
/// ListProduct, a sum of products over the rows of the elements.
bool is_list_product(const troupe::detail::Node& node);
/// True if a value's axes, or those of its elements, are known.
bool has_axes(const ValueSpec& spec);

}  // namespace troupe::mesh::detail
