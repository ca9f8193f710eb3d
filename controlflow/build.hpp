// Making functional nodes from sub-graphs, for the users' functions and for gradients.
#pragma once

#include <functional>
#include <memory>

#include <troupe/controlflow/structure.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

/// The reader that binds now for the innermost one of the operands; null: all are literals.
Reader* reader_of(const Operands& operands);

/// Sub-graphs of one node under construction: they share arguments and captures.
///
///   SubGraphBuilder b(outer, site);
///   b.add("the body of ...", specs, [&](const Exprs& arguments) -> Operands { ... });
///   Exprs captures = b.finish();
class SubGraphBuilder {
 public:
  SubGraphBuilder(Graph& outer, const Site& site) : outer_(outer), site_(site) {}

  /// Builds a sub-graph: `outer` binds into it while `build` runs. Returns the result of `build`,
  /// in which numbers are not yet values.
  Operands add(std::string what, const std::vector<ValueSpec>& arguments,
               const std::function<Operands(const Exprs&)>& build);
  int size() const { return static_cast<int>(graphs_.size()); }
  /// One more argument of sub-graph i, after those it has.
  Expr argument(int i, const ValueSpec& spec);
  Graph& graph(int i) { return graphs_[static_cast<std::size_t>(i)]->graph; }
  /// Sets the outputs of sub-graph i; a number takes the dtype given for it.
  void set_outputs(int i, const Operands& results, const std::vector<DType>& dtypes);
  ValueSpec output_spec(int i, std::size_t output) const;
  /// Seals them and yields the outer values they use, each an argument of every one of them.
  Exprs finish();
  std::vector<std::shared_ptr<const SubGraph>> take() { return {graphs_.begin(), graphs_.end()}; }
  /// Nodes of the outer graph that the node has to start after.
  const std::vector<std::int32_t>& controls() const { return controls_; }

 private:
  Graph& outer_;
  Site site_;
  std::vector<std::shared_ptr<SubGraph>> graphs_;
  std::vector<std::int32_t> controls_;
};

/// A While node: `graphs` are condition and body; their arguments are the variables, the implicit
/// variables (which start as zero or as an empty list), the captures.
struct WhileParts {
  std::vector<std::shared_ptr<const SubGraph>> graphs;
  Exprs initial;
  std::vector<ValueSpec> implicit;
  Exprs captures;
  int parallel_iterations = 32;
  bool back_prop = true;
  std::string name;
  std::vector<std::int32_t> controls;
};
Exprs bind_while(Graph& graph, const WhileParts& parts, const Site& site);

/// A Case node: one sub-graph a branch; their arguments are the captures.
/// `recomputes`: its gradient computes the branch again; draws and results of effects are saved.
Exprs bind_case(Graph& graph, const Expr& index,
                std::vector<std::shared_ptr<const SubGraph>> branches, const Exprs& captures,
                const std::string& name, const std::vector<std::int32_t>& controls,
                const Site& site, bool recomputes = false);

/// A Call node; `inputs` are the function's parameters, its environment included.
Exprs bind_call(Graph& graph, const FunctionDef& function, const Exprs& inputs, const Site& site);
/// The spec of a list of elements of any kind.
ValueSpec any_list();

/// Returns the initial value of an implicit loop variable.
Value implicit_value(const ValueSpec& spec);
/// Returns the spec that covers both; throws invalid_argument if they are of different kinds.
ValueSpec common_spec(const ValueSpec& a, const ValueSpec& b);

/// A While node's parts by name.
struct WhileView {
  explicit WhileView(const Node& node);
  const SubGraph& condition;
  const SubGraph& body;
  int variables;  // with the implicit ones
  int explicit_variables;
  int captures;
  const std::vector<ValueSpec>& implicit;
  int parallel_iterations;
  bool back_prop;
  std::vector<std::int64_t> numbers;  // errors name the variables by them; empty: 0, 1, ...
};

/// A loop that a pass may change: the node, with inputs of the new graph, and what it was.
struct ChangedLoop {
  Node& node;
  Rewriter& to;
  const Graph& from;
  std::int32_t id;  // in `from`
};
/// True if the program has a While node of its own: those of its sub-graphs do not count.
bool has_loops(const Program& program);
/// Returns the program with each While node as `change` leaves it.
Program change_loops(Program program, const std::function<void(const ChangedLoop&)>& change);

/// Declares the attributes of a loop node.
void declare_loop_attributes(OpBuilder& op);

/// Returns a predicate's value, or the number of a branch, when a node is evaluated. Throws
/// invalid_argument, naming the node and the user's line, unless it is one element, as an engine
/// does: a predicate of unknown rank was not checked before.
double predicate_of(const Node& node, const Tensor& value);

}  // namespace troupe
