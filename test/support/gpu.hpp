// The GPU of the tests: `gpu:0` over the fake runtime (test/support/cuda/), where the build has it.
#pragma once

#include <troupe/devices/device/registry.hpp>

namespace troupe::test {

/// True if there is a `gpu:0`. A build without the headers of CUDA has none.
inline bool has_gpu() {
  const DeviceKind* const kind = find_device_kind("gpu");
  return kind && kind->has(0);
}

}  // namespace troupe::test
