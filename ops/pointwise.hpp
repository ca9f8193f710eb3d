// The kernel of pointwise ops and of their fused chains.
#pragma once

#include <memory>

#include <troupe/devices/kernel.hpp>
#include <troupe/devices/scalar_program.hpp>

namespace troupe {

/// Runs `program` on broadcast inputs, in place of an input where the firing is its sole holder.
std::unique_ptr<Kernel> make_pointwise_kernel(std::shared_ptr<const ScalarProgram> program);

/// A scalar program as an attribute of a fused node.
class ProgramAttr final : public AttrObject {
 public:
  explicit ProgramAttr(std::shared_ptr<const ScalarProgram> p) : program(std::move(p)) {}
  std::string text() const override { return program->text(); }
  const std::shared_ptr<const ScalarProgram> program;
};

}  // namespace troupe
