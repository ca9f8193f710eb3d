// Names of dimensions, as they pass from node to node of a graph.
//
// Each axis of a value is a product of dimensions, outermost first: a reshape that joins `batch`
// and `length` makes one axis of two dimensions, and one that parts them finds them again. An axis
// of extent 1 may have none. A dimension that no user named is anonymous; no rule of a layout holds
// for it. `Terms` (terms.hpp) describes how the axes of a node belong together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <troupe/ops/graph/graph.hpp>
#include <troupe/ops/mesh/mesh.hpp>
#include <troupe/ops/mesh/terms.hpp>

namespace troupe::mesh::detail {

/// Returns the name of the dimension that `name`, "batch/4", is a part of: "batch", whose rules
/// hold for its parts, too. Another name is returned as it is.
std::string_view whole_of(std::string_view name);

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
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> all;
    for (const auto& [name, id] : number_of_) all.push_back(name);
    return all;
  }

 private:
  std::vector<Dim> dims_;
  std::vector<std::string> where_;  // first named there
  std::map<std::string, DimId> number_of_;
};

/// The names of all values of a graph. Throws invalid_argument where two named dimensions meet that
/// differ, naming the node, its line, the axis and both dimensions.
class Names {
 public:
  using Captured = std::vector<std::pair<troupe::detail::Edge, std::string>>;

  /// `of_variables`: the axes, as text, of variables that have names, by the number of the state.
  explicit Names(const Graph& graph, std::map<std::int32_t, std::string> of_variables = {})
      : graph_(graph), of_variables_(std::move(of_variables)), dims_(std::make_shared<DimTable>()),
        is_strict_(of_variables_.empty()) {
    extend();
  }
  /// For a sub-graph that is being built: `captured` has the axes of arguments, as text.
  Names(const Graph& graph, const Captured& captured)
      : graph_(graph), dims_(std::make_shared<DimTable>()), is_strict_(true) {
    extend(captured);
  }
  /// For a sub-graph, whose arguments have these axes, of dimensions in `dims`.
  Names(const Graph& graph, std::shared_ptr<DimTable> dims,
        std::map<troupe::detail::Edge, Axes> arguments)
      : graph_(graph), arguments_(std::move(arguments)), dims_(std::move(dims)), is_strict_(false) {
    extend();
  }

  /// Takes in the nodes that were appended since.
  void extend();
  void extend(const Captured& captured);
  /// The number of nodes that it knows.
  std::int32_t size() const { return static_cast<std::int32_t>(offset_.size()); }
  /// One entry an axis; empty for a value of unknown rank. A list has its elements' axes.
  const Axes& of(troupe::detail::Edge e) const {
    return axes_[static_cast<std::size_t>(offset_[static_cast<std::size_t>(e.node)] + e.output)];
  }
  const DimTable& dims() const { return *dims_; }
  DimTable& dims() { return *dims_; }
  const std::shared_ptr<DimTable>& shared_dims() const { return dims_; }
  bool has_name(const Axes& axes) const;
  /// The axes of a loop's variables: as they begin, or as the body leaves them.
  std::vector<Axes> of_loop(const troupe::detail::Node& node);
  /// The axes of the arguments of a loop's or a branch's sub-graphs.
  std::map<troupe::detail::Edge, Axes> arguments_of(const troupe::detail::Node& node,
                                                    std::size_t sub,
                                                    const std::vector<Axes>& variables) const;
  /// The dimensions that each term of a node runs over.
  std::vector<Axis> resolved(std::int32_t id, const Terms& terms);

 private:
  void infer(std::int32_t id);
  void infer_list(std::int32_t id);
  void infer_branch(std::int32_t id);
  Axes anonymous(const Shape& shape);

  const Graph& graph_;
  std::map<std::int32_t, std::string> of_variables_;
  std::map<troupe::detail::Edge, Axes> arguments_;
  std::shared_ptr<DimTable> dims_;
  // Names that come from elsewhere are not the user's at this place: the first of two that meet and
  // differ counts, and nothing is refused.
  bool is_strict_;
  std::vector<std::int32_t> offset_;  // the first output of each node in axes_
  std::vector<Axes> axes_;
};

/// The axes as an attribute of NameDims, and back: "batch:4*length:8;:3".
std::string axes_text(const DimTable& dims, const Axes& axes);
Axes parse_axes(std::string_view text, DimTable& dims, const std::string& where);
/// The names of variables that are read or assigned at top level: those that the first reader gives
/// them, or those of a value that is assigned. By the number of the state, as `axes_text`.
std::map<std::int32_t, std::string> names_of_variables(const Graph& graph);
/// The parts of all axes, in order: dimensions, or mesh axes.
Axis flat(const Axes& axes);
/// The factors of `from`, without those of size 1, parted by the extents of `to`; empty, and false,
/// where an extent's end is within a factor.
bool regroup(const DimTable& dims, const Axes& from, const Shape& to, Axes& out);

}  // namespace troupe::mesh::detail
