// cuDNN's functions by their names, and its descriptors as owned objects.
//
//   const CudnnLibrary& library = cudnn_library();       // opened at the first call
//   Descriptor tensor(library, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
//   tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::int64_t{1});
//   tensor.finalize();
//
// Only the C API is used: cuDNN's C++ headers take 86 s to compile. Threads: any; a descriptor is
// one thread's until it is finalized.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cudnn.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::cuda {

struct CudnnLibrary {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_text;
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) make_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) end_descriptor;
  decltype(&cudnnBackendSetAttribute) set;
  decltype(&cudnnBackendGetAttribute) get;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;

  /// `9.19.0`.
  std::string version_text() const;
  /// Throws internal, with cuDNN's words, unless the status is a success.
  void check(cudnnStatus_t status, const char* doing) const;
};

/// Opens libcudnn.so.9 by name over the folders of open_cuda_library. Throws failed_precondition
/// with these if it is not there, or has no function that is used.
CudnnLibrary load_cudnn();

/// The library that the device uses: load_cudnn's, opened once; a failure is tried again. The
/// tests' fake runtime defines it.
const CudnnLibrary& cudnn_library();

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type) : library_(&library) {
    library.check(library.make_descriptor(type, &handle_), "making a descriptor of cuDNN");
  }
  ~Descriptor() {
    if (handle_) library_->end_descriptor(handle_);
  }
  Descriptor(Descriptor&& other) noexcept
      : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(handle_, other.handle_);
    return *this;
  }

  cudnnBackendDescriptor_t get() const { return handle_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::span<const T> values) {
    library_->check(
        library_->set(handle_, name, type, static_cast<std::int64_t>(values.size()), values.data()),
        "describing work to cuDNN");
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, std::span<const T>(&value, 1));
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& part) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, part.handle_);
  }
  void finalize() { library_->check(library_->finalize(handle_), "describing work to cuDNN"); }
  /// False if cuDNN does not support what is described.
  bool try_finalize() { return library_->finalize(handle_) == CUDNN_STATUS_SUCCESS; }

  /// Returns how many values an attribute has, at most `most` of them in `values`.
  template <class T>
  std::int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    std::int64_t most, T* values) const {
    std::int64_t count = 0;
    library_->check(library_->get(handle_, name, type, most, &count, values),
                    "asking cuDNN about its work");
    return count;
  }

 private:
  const CudnnLibrary* library_ = nullptr;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace troupe::cuda
