// Writes of a number to pinned memory in a stream's order, which the driver offers beside the
// runtime.
//
//   if (const WriteValue write = find_write_value()) write(stream, word, 7);
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace troupe::cuda {

class WriteValue {
 public:
  WriteValue() = default;
  /// Null if the driver has none.
  explicit WriteValue(void* entry) : entry_(entry) {}
  explicit operator bool() const { return entry_ != nullptr; }
  /// Writes `value` to `word`, pinned memory, when the stream has got there.
  cudaError_t operator()(cudaStream_t stream, std::uint32_t* word, std::uint32_t value) const;

 private:
  void* entry_ = nullptr;  // cuStreamWriteValue32
};

WriteValue find_write_value();

}  // namespace troupe::cuda
