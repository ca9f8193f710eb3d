// Convolutions by cuDNN, with its plans kept in memory and in files.
//
//   Dnn dnn({.tf32 = false, .folder = ""}, device);
//   if (const auto* plan = dnn.find(form))                 // null: by kernels of the device's own
//     dnn.run(stream, *plan, operands, workspace);
//
// A plan takes cuDNN up to a second to make, and some milliseconds to read back. A file is named
// by the form, cuDNN's version, the options and the GPU; it lies in the folder of compiled programs
// and counts towards its limit (programs/image_folder.hpp).
//
// cuDNN is opened by the first convolution. Without it, or without an engine for a form, `find`
// returns null, and `problem` gives the reason: convolutions are then products with columns.
//
// Threads: any. Executions of one device are one at a time, because the handle has one stream.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <cuda_runtime_api.h>

#include <troupe/devices/cuda/libraries/convolution_plan.hpp>
#include <troupe/devices/cuda/programs/image_folder.hpp>

namespace troupe::cuda {

struct DnnOptions {
  bool tf32 = false;
  std::string folder = {};                         // as ImageFolder has it
  std::uint64_t limit = std::uint64_t{256} << 20;  // bytes of all files
  std::string device = {};                         // the GPU's name and compute capability
};

struct DnnCounters {
  std::uint64_t planned = 0, from_files = 0, without_engine = 0;  // forms
};

class Dnn {
 public:
  explicit Dnn(DnnOptions options);
  ~Dnn();
  Dnn(const Dnn&) = delete;
  Dnn& operator=(const Dnn&) = delete;

  /// Returns the plan of a form, made for the current device; null: there is none. It stays.
  const ConvolutionPlan* find(const ConvolutionForm& form);
  cudaError_t run(cudaStream_t stream, const ConvolutionPlan& plan,
                  const ConvolutionPlan::Operands& operands, void* workspace);
  /// Opens cuDNN if that was not done. Returns its version; empty with `problem` set: there is
  /// none.
  std::string version();
  /// Why cuDNN is not used; empty: it is, or was not needed yet.
  std::string problem() const;
  DnnCounters counters() const;

 private:
  bool is_open();
  std::optional<ConvolutionPlan> make(const ConvolutionForm& form);
  void keep(const TextHash& key, const ConvolutionPlan& plan) const;

  const DnnOptions options_;
  const ImageFolder folder_;
  mutable std::mutex mutex_;  // guards the members below, and the handle's stream
  const CudnnLibrary* library_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  std::string problem_;
  bool is_tried_ = false;
  std::map<std::string, std::optional<ConvolutionPlan>> plans_;  // by the form's text
  DnnCounters counters_;
};

}  // namespace troupe::cuda
