// Examines a GPU's driver and libraries, for `troupe doctor`.
#pragma once

#include <vector>

#include <troupe/devices/device/plugin.hpp>

namespace troupe::cuda {

/// The driver, the kernels that nvcc compiled, NVRTC, cuBLASLt and cuDNN: the version of each, and
/// the outcome of a small computation on gpu:0.
std::vector<PluginPart> examine();

}  // namespace troupe::cuda
