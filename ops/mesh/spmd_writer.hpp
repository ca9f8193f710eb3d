// Writes an SPMD program: its nodes on local shapes, and the moves of values between layouts.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/mesh/names.hpp>
#include <troupe/ops/mesh/spmd.hpp>

namespace troupe::mesh::detail {

/// The mesh axis along which each dimension of each axis is split, or -1.
using Splits = std::vector<std::vector<int>>;

/// A value of the program for whole tensors, in the SPMD program.
struct Laid {
  troupe::detail::Edge edge;
  Axes axes;
  Splits splits;
  std::vector<char> is_partial;  // for each mesh axis: a sum over it is still to be made
  bool is_once = false;
  bool is_constant = false;

  bool has_splits() const;
  bool has_partials() const;
};

class SpmdWriter {
 protected:
  using Edge = troupe::detail::Edge;

  SpmdWriter(const troupe::detail::Program& from, const Partitioning& partitioning);
  /// For a sub-graph, whose arguments have these axes.
  SpmdWriter(const troupe::detail::Program& from, const Partitioning& partitioning,
             std::shared_ptr<DimTable> dims, std::map<troupe::detail::Edge, Axes> arguments);
  ~SpmdWriter() = default;

  Graph& graph() { return to_.program.graph; }
  const Graph& graph() const { return to_.program.graph; }
  const DimTable& dims() const { return names_.dims(); }
  /// The node that is being lowered.
  const troupe::detail::Node& node() const { return from_.node(at_); }
  const std::string& axis_name(int axis) const {
    return mesh_.axes()[static_cast<std::size_t>(axis)].name;
  }
  std::int64_t members(int axis) const { return mesh_.axes()[static_cast<std::size_t>(axis)].size; }

  /// The mesh axis that the rules give a dimension, or -1; an axis of one device splits nothing.
  int rule(DimId d) const;
  int rule_named(const std::string& name) const;
  std::vector<int> rules(const Axis& axis) const;
  Splits rules(const Axes& axes) const;
  static Splits none(const Axes& axes);
  static bool holds(const std::vector<int>& splits, int axis);
  /// Refuses a size that an axis does not divide, and two dimensions on one axis.
  void require_legal(const Axes& axes, const Splits& splits) const;
  /// Throws invalid_argument, naming the node and its line.
  [[noreturn]] void refuse(const std::string& why) const;
  bool has_same_sizes(const Axis& a, const Axis& b) const;
  Shape local_shape(const Axes& axes, const Splits& splits) const;
  /// One axis a dimension.
  Shape flat_shape(const Axis& all, const std::vector<int>& splits) const;

  std::int32_t append(troupe::detail::Node made, bool is_once);
  /// A node that the current one needs beside it.
  Edge bind(const char* op, std::vector<Edge> inputs, troupe::detail::Attrs attrs, bool is_once);
  Edge reshaped(Edge e, const Shape& shape, bool is_once);
  Edge all_reduced(Edge e, int axis, collective::Combine how);
  /// Reports a collective: of which value, along which axis, why. `bind` makes it next.
  void tell(const char* what, Edge moved, int axis, const std::string& why);
  /// Keeps a note of a node, if it has none.
  void note(std::int32_t node, std::string text);

  /// v with its sums made.
  Laid summed(Laid v, const std::string& why);
  bool is_summed(const Laid& v) const;
  /// Returns v, whose axes have these extents, under `axes` and split by `wanted`.
  Laid moved(Laid v, const Axes& axes, const Splits& wanted, const std::string& why);
  /// v under `axes` and split by `wanted`. Sums along mesh axes that split the result are made, by
  /// a reduce-scatter if `may_scatter`; others are still to be made.
  Laid relaid(Laid v, const Axes& axes, const Splits& wanted, const std::string& why,
              bool may_scatter);
  /// v with its sums made, under `axes` and split by `wanted`. If `may_scatter`, a sum along a mesh
  /// axis that splits the result is a reduce-scatter.
  Laid settled(Laid v, const Axes& axes, const Splits& wanted, const std::string& why,
               bool may_scatter);
  /// The whole of v, a value of all devices, in one place.
  Edge exported(Laid v, const std::string& why);

  const Graph& from_;
  const Partitioning& partitioning_;
  const Mesh& mesh_;
  const Layout& layout_;
  std::map<std::int32_t, std::string> names_of_variables_;
  Names names_;
  SpmdProgram to_;
  std::int32_t at_ = 0;  // the node that is being lowered

 private:
  void begin();
  std::int64_t local(DimId d, int axis) const;
  bool has_same_blocks(const std::vector<int>& splits, const Axis& axis) const;
  Laid renamed(Laid v, const Axes& axes);
  Laid summed_over(Laid v, int axis, const std::string& why);
  Laid scattered(Laid v, const Axes& axes, const Splits& wanted, const std::string& why);
  bool slice(Edge& e, std::vector<int>& now, const std::vector<int>& goal, bool& is_once);
  bool exchange(Edge& e, std::vector<int>& now, const std::vector<int>& goal,
                const std::string& why);
  void gather(Edge& e, std::vector<int>& now, const std::vector<int>& goal, const std::string& why);

  std::map<std::string, int> rule_of_;
  std::string why_;  // the reason for the collective that is made next
  // values that were moved, and summed along an axis
  std::map<std::tuple<Edge, Axes, Splits, Splits>, Laid> moved_;
  std::map<std::pair<Edge, int>, Edge> summed_;
  std::map<std::tuple<Edge, int, std::size_t>, Edge> scattered_;
};

}  // namespace troupe::mesh::detail
