#include <troupe/devices/cuda/runtime/write_value.hpp>

#include <cuda.h>

namespace troupe::cuda {

WriteValue find_write_value() {
  constexpr unsigned kVersion = 12000;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &entry,
                                                             kVersion, cudaEnableDefault, &result);
  if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) return WriteValue(entry);
  cudaGetLastError();
  return {};
}

cudaError_t WriteValue::operator()(cudaStream_t stream, std::uint32_t* word,
                                   std::uint32_t value) const {
  using Entry = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  const CUresult result =
      reinterpret_cast<Entry>(entry_)(stream, reinterpret_cast<CUdeviceptr>(word), value, 0);
  return static_cast<cudaError_t>(result);  // the two enumerations agree
}

}  // namespace troupe::cuda
