// Runs one kernel to its end on the calling thread: the only assembly of a firing outside actors/.
#pragma once

#include <span>
#include <vector>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {

/// The state that a node works on, with its spec; or none.
struct StateInUse {
  const StateSpec* spec = nullptr;
  Ref<State> state = {};
};

/// Returns the kernel's outputs; work on `stream` may still be in flight. Copies host tensors among
/// the inputs to the device first. Blocks until a kernel that deferred has ended. A kernel that
/// waits at a queue can never end, because nothing else runs: then this throws
/// failed_precondition. Throws the error that the kernel threw or failed with.
std::vector<Value> run_kernel_blocking(Kernel& kernel, std::span<Value> inputs, std::size_t outputs,
                                       Device& device, Stream& stream, const RunInfo& run,
                                       const StateInUse& use, std::uint64_t tag = 0);

}  // namespace troupe
