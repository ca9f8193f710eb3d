// Scalar programs that a GPU can run.
#pragma once

#include <memory>

#include <cuda_runtime_api.h>

#include <troupe/devices/cuda/programs/form.hpp>
#include <troupe/devices/cuda/programs/nvrtc.hpp>

namespace troupe::cuda {

class CompiledProgram {
 public:
  virtual ~CompiledProgram() = default;
  /// Enqueues a launch on the current device, whose architecture is the cache's.
  virtual cudaError_t launch(cudaStream_t stream, unsigned blocks, unsigned threads,
                             ProgramArguments& arguments) const = 0;
};

/// The program in a form, compiled and loaded; one a process for each text and architecture, which
/// stays. Throws as ProgramCache::get does. The tests' fake runtime defines it for the CPU.
std::shared_ptr<const CompiledProgram> compile_program(ProgramCache& cache,
                                                       const ScalarProgram& program,
                                                       const ProgramForm& form);

}  // namespace troupe::cuda
