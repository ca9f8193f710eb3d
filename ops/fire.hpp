// One firing, to its end, on the calling thread: what eager execution and the interpreter share.
#pragma once

#include <span>
#include <vector>

#include <troupe/devices/kernel.hpp>

namespace troupe {

/// The kernel's outputs, with the work on `stream` possibly still under way. Waits, blocking, for a
/// kernel that took its Completion. Throws what the kernel threw or failed with.
std::vector<Value> fire(Kernel& kernel, std::span<Value> inputs, std::size_t outputs, Device& device, Stream& stream,
                        const RunInfo& run);

}  // namespace troupe
