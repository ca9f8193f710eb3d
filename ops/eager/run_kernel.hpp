// Runs one kernel to its end on the calling thread: the only assembly of a firing outside actors/.
#pragma once

#include <span>
#include <vector>

#include <troupe/devices/device/kernel.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe::detail {

/// The state that a node works on, with its spec; or none.
struct StateInUse {
  const StateSpec* spec = nullptr;
  Ref<State> state = {};
};

/// Sets the kernel's outputs; work on `stream` may still be in flight. Copies host tensors among
/// the inputs to the device first. Blocks until a kernel that deferred has ended. If nothing else
/// runs (`is_alone`), a kernel that waits at a queue can never end: then this throws
/// failed_precondition. Throws the error that the kernel threw or failed with.
void run_kernel_blocking(Kernel& kernel, std::span<Value> inputs, std::span<Value> outputs,
                         Device& device, Stream& stream, const RunInfo& run, const StateInUse& use,
                         std::uint64_t tag = 0, bool is_alone = true);

}  // namespace troupe::detail
