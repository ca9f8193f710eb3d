// The kernel of pointwise ops and of their fused chains.
#pragma once

#include <memory>
#include <span>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::detail {

/// Runs `program` on broadcast inputs, in place of an input where the firing is its sole holder.
std::unique_ptr<Kernel> make_pointwise_kernel(std::shared_ptr<const ScalarProgram> program);

/// Returns the shape of a pointwise program's results for the inputs.
Shape shape_of_inputs(const KernelContext& c);
/// A tensor for one of its results: an input of that dtype and shape that the firing is the sole
/// holder of, each at most once, for the evaluator reads each tile before it writes it, and what is
/// read after a result was made goes through its scratch. Make the views of the inputs first.
Tensor allocate_result(KernelContext& c, DType dtype, const Shape& shape);

/// A scalar program as an attribute of a fused node.
class ProgramAttr final : public AttrObject {
 public:
  explicit ProgramAttr(std::shared_ptr<const ScalarProgram> p) : program(std::move(p)) {}
  std::string text() const override { return program->text(); }
  const std::shared_ptr<const ScalarProgram> program;
};

/// The attribute `program`.
const ScalarProgram& program_of(const Attrs& attrs);
/// Returns the program that a pointwise or fused node computes.
std::shared_ptr<const ScalarProgram> program_of(const Graph& graph, const Node& node);
/// Appends the instructions of `member`. `operands` are instructions of `program`, one an input.
/// Returns the instructions that are its results.
std::vector<std::int16_t> append(ScalarProgram& program, const ScalarProgram& member,
                                 std::span<const std::int16_t> operands);
/// An instruction that reads one more input of `program`.
std::int16_t append_input(ScalarProgram& program, DType type);

}  // namespace troupe::detail
