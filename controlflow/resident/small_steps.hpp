// Nodes on small tensors of fixed shapes as steps of scalar code: each element is a register.
//
//   SmallSteps steps(code);
//   if (SmallSteps::takes(graph, node)) results = steps.emit(graph, node, operands);
//
// A movement of elements (a transpose, a slice) is a choice of registers and no step at all.
//
// Threads: one. Invariants: 1. bits are those of the node's kernel on the CPU; a node whose order
// of summation is not known here is not taken; 2. a register that `release` freed is used for later
// results of its dtype; the value that it had is gone.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/scalar/scalar_code.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe {

class SmallSteps {
 public:
  using Register = ScalarCode::Register;
  /// Elements in row-major order.
  using Registers = std::vector<Register>;

  static constexpr std::int64_t kMostElements = 64;

  explicit SmallSteps(ScalarCode& code) : code_(code) {}

  /// True if the node can be steps. All of its shapes are known.
  static bool takes(const Graph& graph, const Node& node);
  /// Steps that a node which is taken comes to; a function counts for several.
  static double steps_of(const Graph& graph, const Node& node);

  /// Appends a node's steps. An operand of which the node uses the shape alone may be empty.
  /// `is_kept`: results get registers of their own, which a loop may replace by its variables.
  std::vector<Registers> emit(const Graph& graph, const Node& node,
                              std::span<const Registers> operands, bool is_kept);
  Registers constant(const Tensor& value);

  /// Registers of a value that was emitted here have one more holder, or one less.
  void hold(std::span<const Register> registers);
  void release(std::span<const Register> registers);

 private:
  struct Sum;
  using Map = std::vector<std::int32_t>;  // by element: the operand's element

  std::vector<Registers> emit_program(const ScalarProgram& program,
                                      std::span<const Registers> operands,
                                      std::span<const Map> maps, std::size_t elements);
  std::vector<Registers> emit_pointwise(const Graph& graph, const Node& node,
                                        const ScalarProgram& program, const Shape& shape,
                                        std::span<const Registers> operands);
  std::vector<Registers> emit_fused_reduce(const Graph& graph, const Node& node,
                                           std::span<const Registers> operands);
  Registers emit_sum(const Sum& sum, const Registers& of);
  Register emit_row(Registers row);
  Register emit_column(const Registers& column);
  Register finish(const Sum& sum, Register total);
  Registers emit_product(const Graph& graph, const Node& node, std::span<const Registers> operands);
  std::vector<Registers> emit_moved(const Graph& graph, const Node& node,
                                    std::span<const Registers> operands);

  Register constant(DType type, double value);
  Register take(DType type);  // a result's, held once
  Register take_temporary(DType type);
  void give_back(Register temporary);
  Register apply(ScalarOp op, DType type, Register a, Register b = 0);  // a temporary
  // A cast into a temporary.
  Register cast(DType to, DType from, Register a);

  ScalarCode& code_;
  bool is_kept_ = false;
  struct Held {
    DType type;
    int holders;
  };
  std::map<Register, Held> held_;                 // registers that were taken here
  std::map<DType, std::vector<Register>> spare_;  // nothing reads their values any more
  std::map<std::pair<DType, std::uint64_t>, Register> constants_;  // by the bits of a double
};

}  // namespace troupe
