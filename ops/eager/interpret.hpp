// A small interpreter of graphs: one node after the other, in the order of their ids, on one
// device. What the executor is compared with, and what checks gradients.
//
//   Interpreter interpreter;
//   std::vector<Tensor> out = interpreter.run(graph, {{x, tx}}, {y});
//
// It runs the program as it was written: pruned to the fetches, no other pass. Random draws are
// keyed as the engine keys them, so that the two agree bit for bit. Threads: one at a time. A
// dequeue from an empty queue, or an enqueue to a full one, throws failed_precondition: nothing
// else runs that it could wait for. Invariant: every value has the dtype and, as far as it is
// known, the shape that inference said.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/state.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

/// What a caller feeds: an expression of the graph and its value.
using Feeds = std::vector<std::pair<Expr, Tensor>>;

class Interpreter final : private Evaluation {
 public:
  /// Computes on the host.
  Interpreter();
  /// Computes on `device`, which must outlive the interpreter; waits for its compute stream after
  /// each node.
  explicit Interpreter(Device& device);
  ~Interpreter();

  /// The fetched values, on the host. Throws what a kernel threw, naming node and line.
  std::vector<Tensor> run(const Graph& graph, const Feeds& feeds, const std::vector<Expr>& fetches);
  /// The same for a program that passes made; one tensor a feed, in the program's order.
  std::vector<Tensor> run(const Program& program, const std::vector<Tensor>& feeds);

  /// Variables and queues, which outlive runs.
  StateStore& states() { return states_; }
  /// A variable's value, on the host; what it starts as if no run has touched it.
  Tensor get(const Graph& graph, const std::string& variable);
  void set_seed(std::uint64_t seed) { run_.seed = seed; }
  /// Of the next run; each run adds one.
  void set_step(std::uint64_t step) { run_.step = step; }

 private:
  std::vector<Value> run_graph(const Graph& graph, std::span<const Edge> inputs,
                               std::vector<Value> arguments, std::span<const Edge> outputs);
  std::vector<Value> fire_node(const Graph& graph, std::int32_t id, std::vector<Value>& inputs);
  std::vector<Value> fire_kernel(const Graph& graph, std::int32_t id, std::vector<Value>& inputs);
  std::vector<Value> call(const SubGraph& graph, std::vector<Value> arguments) override;
  std::vector<Value> call(const SubGraph& graph, std::vector<Value> arguments, std::uint64_t key,
                          std::int64_t n) override;
  std::vector<Value> call(const FunctionDef& function, std::vector<Value> arguments,
                          const Node& node) override;
  Tensor on_host(const Value& value) override;

  // Calls nest on the C++ stack, a few kilobytes each.
  static constexpr int kMaxDepth = 500;

  std::unique_ptr<Device> own_;
  Device* device_;
  std::unique_ptr<Stream> stream_;
  RunInfo run_;
  StateStore states_;
  const std::vector<StateSpec>* specs_ = nullptr;  // of the outermost graph under way
  std::uint64_t tag_ = 0;                          // of the iteration under way
  int depth_ = 0;                                  // of the call under way
};

}  // namespace troupe
