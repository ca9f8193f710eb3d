#include <troupe/devices/cuda/runtime/call.hpp>

#include <fmt/format.h>

namespace troupe::cuda {

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed: return true;
    default: return false;
  }
}

Status status_of(cudaError_t error, std::string_view doing) {
  if (error == cudaSuccess) return {};
  const std::string text =
      fmt::format("{} failed: {} ({})", doing, cudaGetErrorString(error), cudaGetErrorName(error));
  if (error == cudaErrorMemoryAllocation) return {Code::resource_exhausted, text};
  if (is_sticky(error))
    return {Code::unavailable,
            text + "; the GPU serves this process no more: restart it to use the GPU again"};
  return {Code::internal, text};
}

void OnDevice::set(int index) {
  check(cudaSetDevice(index), "choosing a GPU");
  current_ = index;
}

}  // namespace troupe::cuda
