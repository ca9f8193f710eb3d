// Names of dimensions, as they pass from node to node of a graph.
//
// Each axis of a value is a product of dimensions, outermost first: a reshape that joins `batch`
// and `length` makes one axis of two dimensions, and one that parts them finds them again. An axis
// of extent 1 may have none. A dimension that no user named is anonymous; no rule of a layout holds
// for it. `Terms` (terms.hpp) describes how the axes of a node belong together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/mesh/mesh.hpp>
#include <troupe/ops/mesh/terms.hpp>

namespace troupe::mesh::detail {

/// A dimension's number in its `DimTable`.
using DimId = int;
using Axis = std::vector<DimId>;
using Axes = std::vector<Axis>;

/// The dimensions of one graph.
class DimTable {
 public:
  /// Throws invalid_argument, naming both lines, if the name has another size.
  DimId named(const Dim& dim, const std::string& where);
  DimId anonymous(std::int64_t size);
  const Dim& operator[](DimId id) const { return dims_[static_cast<std::size_t>(id)]; }
  bool is_named(DimId id) const { return !(*this)[id].name.empty(); }
  bool has_name(const Axis& axis) const;
  std::int64_t extent(const Axis& axis) const;
  /// "batch", "batch*length", "#64" of an anonymous one, "1".
  std::string text(const Axis& axis) const;
  std::string text(const Axes& axes) const;
  /// True if there is a dimension of this name.
  bool has(const std::string& name) const { return number_of_.contains(name); }

 private:
  std::vector<Dim> dims_;
  std::vector<std::string> where_;  // first named there
  std::map<std::string, DimId> number_of_;
};

/// The names of all values of a graph. Throws invalid_argument where two named dimensions meet that
/// differ, naming the node, its line, the axis and both dimensions.
class Names {
 public:
  explicit Names(const Graph& graph) : graph_(graph) { extend(); }

  /// Takes in the nodes that were appended since.
  void extend();
  /// One entry an axis; empty for a value of unknown rank, and for lists.
  const Axes& of(troupe::detail::Edge e) const {
    return axes_[static_cast<std::size_t>(offset_[static_cast<std::size_t>(e.node)] + e.output)];
  }
  const DimTable& dims() const { return dims_; }
  DimTable& dims() { return dims_; }
  /// The dimensions that each term of a node runs over.
  std::vector<Axis> resolved(std::int32_t id, const Terms& terms);

 private:
  void infer(std::int32_t id);
  Axes anonymous(const Shape& shape);

  const Graph& graph_;
  DimTable dims_;
  std::vector<std::int32_t> offset_;  // the first output of each node in axes_
  std::vector<Axes> axes_;
};

/// The axes as an attribute of NameDims, and back: "batch:4*length:8;:3".
std::string axes_text(const DimTable& dims, const Axes& axes);
Axes parse_axes(std::string_view text, DimTable& dims, const std::string& where);
/// The parts of all axes, in order: dimensions, or mesh axes.
Axis flat(const Axes& axes);
/// The factors of `from`, without those of size 1, parted by the extents of `to`; empty, and false,
/// where an extent's end is within a factor.
bool regroup(const DimTable& dims, const Axes& from, const Shape& to, Axes& out);

}  // namespace troupe::mesh::detail
