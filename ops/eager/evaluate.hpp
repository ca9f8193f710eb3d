// Evaluate: the interface by which the eager kernel of a functional op (Case, While, Call) runs its
// sub-graphs.
//
//   op.evaluate([](Evaluate& e, const Node& node, std::vector<Value> inputs) {
//     return e.call(*subgraphs_of(node)[0], std::move(inputs));
//   });
//
// `Eager` implements it by replaying the sub-graph node by node (replay.hpp). A traced function
// implements it by a compiled plan. **Threads**: one at a time. **Tags**: random draws in a
// sub-graph are keyed by the iteration or call that runs it, exactly as the executor keys them.
#pragma once

#include <cstdint>
#include <vector>

#include <troupe/ops/graph/function_def.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe::detail {

class Evaluate {
 public:
  /// Returns the sub-graph's outputs. `arguments` are the values of its inputs, in their order.
  virtual std::vector<Value> call(const SubGraph& graph, std::vector<Value> arguments) = 0;
  /// Runs the sub-graph in iteration `n` of the frame `key`, which key its random draws.
  virtual std::vector<Value> call(const SubGraph& graph, std::vector<Value> arguments,
                                  std::uint64_t key, std::int64_t n) = 0;
  /// Returns the results of the function that `node` calls; `node` keys its random draws. Throws
  /// failed_precondition if the function has no body, resource_exhausted if calls nest too deep.
  virtual std::vector<Value> call(const FunctionDef& function, std::vector<Value> arguments,
                                  const Node& node) = 0;
  /// Returns a tensor in host memory with the value's elements; blocks until they are there.
  virtual Tensor on_host(const Value& value) = 0;

 protected:
  ~Evaluate() = default;
};

}  // namespace troupe::detail
