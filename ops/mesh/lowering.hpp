// The lowering of a program for whole tensors to one SPMD program: node by node, in its order. The
// class is cut by kind of node: spmd.cpp, spmd_pieces.cpp, spmd_rows.cpp,
// spmd_exchange.cpp, spmd_halo.cpp, spmd_variables.cpp, spmd_flow.cpp, spmd_accumulators.cpp.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <troupe/ops/mesh/flow.hpp>
#include <troupe/ops/mesh/spmd_writer.hpp>
#include <troupe/ops/mesh/variables.hpp>

namespace troupe::mesh::detail {

class Lowering final : private SpmdWriter {
 public:
  /// `homes`: null if no engine keeps the program's variables.
  Lowering(const troupe::detail::Program& from, const Partitioning& p, VariableHomes* homes);

  /// For a sub-graph: `axes` and `arguments` describe its arguments, `wanted` its results.
  Lowering(const troupe::detail::Program& from, const Partitioning& p, const Names& outer,
           std::map<troupe::detail::Edge, Axes> axes, std::vector<Laid> arguments,
           std::vector<Laid> wanted);

  /// New nodes get build-time ids above `last`.
  void reserve_origins(std::uint64_t last) { graph().reserve_origins(last); }
  SpmdProgram run();
  /// The variables that the program stores in pieces.
  std::vector<std::string> stored_names() const;

 private:
  using Node = troupe::detail::Node;
  using Attrs = troupe::detail::Attrs;
  /// The splits of each term's dimensions.
  using TermSplits = std::vector<std::vector<int>>;

  /// A loop variable that starts as zero and is a summand of its next value; nothing else reads it.
  struct Accumulator {
    std::int32_t add = -1;         // the node of the body that adds to it
    std::size_t input = 0;         // the variable's place in that node
    std::vector<char> is_partial;  // the mesh axes over which its value is summed after the loop
    bool is_apart = false;         // true once its summands are found on the devices, as it is
  };
  using Accumulators = std::map<std::size_t, Accumulator>;  // by variable

  // ---- spmd.cpp

  Laid& value(Edge e) {
    return values_[static_cast<std::size_t>(offset_[static_cast<std::size_t>(e.node)] + e.output)];
  }
  Laid& input(std::size_t i) { return value(node().inputs[i]); }
  /// The current node on these inputs, with attributes of its own.
  std::int32_t emit(Attrs attrs, std::vector<Edge> inputs, bool is_once);
  void find_needed_sums();
  /// The whole value in one place.
  Edge whole(Edge e, const std::string& why);
  void set(std::size_t output, Laid v);
  void set_outputs(std::int32_t made, bool is_once);
  void tell_layout(std::int32_t id, std::size_t output);
  bool must_run_once() const;
  void lower(std::int32_t id);
  void run_once();
  void run_everywhere();
  void run_whole();
  void name_dims();
  void reshape();
  void group();
  bool normalize_over_split_axis();

  // ---- spmd_rows.cpp: rows of tables that are split

  std::pair<Edge, Edge> rows_here(Edge indices, int axis, std::int64_t local);
  Edge kept_where(Edge is_here, Edge values, int axis);
  int split_of(const Axis& axis) const;
  bool gather_from_split_axis();
  bool add_to_split_axis();

  // ---- spmd_exchange.cpp: along a split axis

  std::optional<Laid> split_along(std::size_t axis, int& mesh_axis);
  Edge rows_of(Edge e, std::size_t axis, std::int64_t begin, std::int64_t count);
  Edge from_neighbour(Edge e, int mesh_axis, std::int64_t by, bool wrap);
  bool shift_along();
  bool sum_along();
  bool largest_along();

  // ---- spmd_halo.cpp: convolutions whose space is split

  Edge with_halo(Edge x, std::size_t axis, int mesh_axis, std::int64_t before, std::int64_t after);
  bool convolve_with_halo();

  // ---- spmd_pieces.cpp: nodes on pieces

  void run_on_pieces(const Terms& terms);
  void split_further(const Terms& terms, const std::vector<Axis>& over, TermSplits& split);
  std::set<int> reduced_axes(const Terms& terms, const TermSplits& split, std::size_t output) const;
  std::vector<char> kept_partials(const Terms& terms, const TermSplits& split,
                                  const std::set<int>& summed_over);
  void combine_over(Laid& v, const Terms& terms, const std::set<int>& axes);
  bool may_scatter(std::size_t input) const;
  static Axes over_of(const std::vector<int>& terms, const std::vector<Axis>& over);
  bool is_split_further(const Laid& v) const;

  // ---- spmd_variables.cpp: variables that are stored in pieces

  /// A variable's dimensions and splits.
  struct Stored {
    Axes axes;
    Splits splits;
    VariableHomes::Laid laid;
  };
  void lay_out_variables(VariableHomes* homes);
  Axes axes_of_variable(std::int32_t state) const;
  bool is_used(const std::string& rule) const;
  int rule_of_slot(DimId d) const;
  void find_wishes();
  bool has_wish(Edge e) const;
  VariableHomes::Laid pieces_of(const troupe::detail::StateSpec& spec, const Stored& stored) const;
  bool is_stored() const { return node().state >= 0 && stored_.contains(node().state); }
  void run_on_stored();
  std::vector<Edge> rows_for_stored(const Stored& stored);

  // ---- spmd_flow.cpp: loops, branches, lists

  bool is_laid(const ValueSpec& spec, const Axes& axes) const;
  ValueSpec local_spec(ValueSpec spec, const Laid& v) const;
  bool take_argument();
  Edge result(Edge e, const Laid& wanted);
  Edge on_devices(Laid v, const ValueSpec& spec, const Laid& wanted, const std::string& why);
  Laid laid_as_ruled(const ValueSpec& spec, const Axes& axes);
  std::shared_ptr<const SpmdProgram> lowered(std::size_t sub, const std::vector<Axes>& variables,
                                             std::vector<Laid> arguments, std::vector<Laid> wanted,
                                             Accumulators* accumulators = nullptr);
  std::vector<Laid> captures(std::size_t first, std::vector<Edge>& inputs);
  bool flow();
  bool loop();
  bool branch();
  void put_flow(SpmdFlow flow, std::vector<Edge> inputs, const std::vector<Laid>& results);
  bool run_on_lists(const ListRoles& roles);
  static std::pair<Axes, Splits> stacked(const Axis& first, const Axes& axes, const Splits& splits);
  bool multiply_lists();
  Edge whole_list(const Laid& v, const ValueSpec& spec);

  // ---- spmd_accumulators.cpp: loop variables to which iterations add

  Accumulators accumulators_of(const LoopParts& parts) const;
  bool is_zero(Edge e) const;
  bool loop(const LoopParts& parts, Accumulators& accumulators);
  Accumulator* accumulator_here();
  void begin_sum(const Accumulator& sum);
  void end_sum(Accumulator& sum, const std::vector<char>& partial);
  std::optional<Edge> partial_result(std::size_t variable, Edge e, const Laid& wanted);

  const troupe::detail::Program& program_;
  Accumulators* accumulators_ = nullptr;  // a loop's body has them
  bool is_sub_ = false;                   // it lowers a sub-graph
  std::map<Edge, Laid> arguments_;        // a sub-graph has them
  std::vector<Laid> wanted_;              // its results
  std::vector<std::int32_t> offset_;      // the first output of each node in values_
  std::vector<Laid> values_;
  // the node of the SPMD program that stands for one
  std::vector<std::optional<std::int32_t>> made_;
  std::set<Edge> needs_sum_;    // values of which some node needs the sum itself
  std::map<Edge, Edge> whole_;  // values in one place
  std::map<Edge, int> uses_;
  // by value: the splits that updates of variables ask for, and how many uses do
  std::map<Edge, std::map<Splits, int>> wishes_;
  std::map<std::int32_t, Stored> stored_;            // by state
  mutable std::shared_ptr<const Mesh> shared_mesh_;  // all arrangements share it
};

}  // namespace troupe::mesh::detail
