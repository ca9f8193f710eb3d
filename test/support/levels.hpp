// The levels of kernels that this processor has.
#pragma once

#include <vector>

#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/device/device.hpp>

namespace troupe::test {

inline std::vector<const cpu::LevelKernels*> levels() {
  std::vector<const cpu::LevelKernels*> found;
  for (CpuLevel level : {CpuLevel::portable, CpuLevel::v2, CpuLevel::v3, CpuLevel::v4})
    if (is_built(level) && level <= cpu_level()) found.push_back(&cpu::level_kernels(level));
  return found;
}

}  // namespace troupe::test
