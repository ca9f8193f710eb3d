// Calls of the CUDA runtime, checked.
//
//   OnDevice on(index);                         // this thread's current device, from here on
//   check(cudaStreamCreateWithFlags(&s, flags), "making a stream");
//
// An error of a call becomes Error: resource_exhausted for memory, unavailable if the device is
// broken (a sticky error: every later call on it fails), internal for the rest.
#pragma once

#include <string_view>

#include <cuda_runtime_api.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::cuda {

/// `an illegal memory access was encountered (cudaErrorIllegalAddress)`, while `doing` something.
Status status_of(cudaError_t error, std::string_view doing);

/// Throws status_of(error, doing) unless it is a success.
inline void check(cudaError_t error, std::string_view doing) {
  if (error != cudaSuccess) [[unlikely]]
    status_of(error, doing).throw_if_error();
}

/// True for an error after which the device serves this process no more.
bool is_sticky(cudaError_t error);

/// Makes a device the calling thread's current one. The device stays current, so each caller of
/// CUDA selects its device first.
class OnDevice {
 public:
  explicit OnDevice(int index) {
    if (index != current_) set(index);
  }

 private:
  static void set(int index);
  static inline constinit thread_local int current_ = -1;
};

}  // namespace troupe::cuda
