#include <troupe/devices/cuda/libraries/cudnn_library.hpp>

#include <dlfcn.h>

#include <type_traits>

#include <fmt/format.h>

#include <troupe/devices/cuda/programs/nvrtc.hpp>

namespace troupe::cuda {

std::string CudnnLibrary::version_text() const {
  const std::size_t number = version();
  return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
}

void CudnnLibrary::check(cudnnStatus_t status, const char* doing) const {
  if (status != CUDNN_STATUS_SUCCESS)
    throw Error(Code::internal, fmt::format("{} failed: {}", doing, error_text(status)));
}

CudnnLibrary load_cudnn() {
  std::string looked;
  void* const opened = open_cuda_library({"libcudnn.so.9"}, &looked);
  if (!opened)
    throw Error(Code::failed_precondition,
                fmt::format("libcudnn.so.9 (cuDNN) is in none of: {}; install cuDNN 9, or name its "
                            "folder in TROUPE_CUDA_LIBRARIES",
                            looked));
  CudnnLibrary library{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, name));
    if (!function)
      throw Error(Code::failed_precondition,
                  fmt::format("libcudnn has no {}; install cuDNN 9", name));
  };
  find(library.version, "cudnnGetVersion");
  find(library.error_text, "cudnnGetErrorString");
  find(library.create, "cudnnCreate");
  find(library.destroy, "cudnnDestroy");
  find(library.set_stream, "cudnnSetStream");
  find(library.make_descriptor, "cudnnBackendCreateDescriptor");
  find(library.end_descriptor, "cudnnBackendDestroyDescriptor");
  find(library.set, "cudnnBackendSetAttribute");
  find(library.get, "cudnnBackendGetAttribute");
  find(library.finalize, "cudnnBackendFinalize");
  find(library.execute, "cudnnBackendExecute");
  return library;
}

}  // namespace troupe::cuda
