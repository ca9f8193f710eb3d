// A convolution as cuDNN's operation graph, and the plan that is chosen for it.
//
//   const auto form = ConvolutionForm::of(args);          // none: cuDNN cannot do it
//   const ConvolutionPlan plan = plan_convolution(library, {handle}, *form, {});
//   plan.execute(handle, pointers, workspace);
//
// A form is all that a plan depends on, beside the device and cuDNN's version. Elements lie
// channels last; weights as [filters, window..., channels], which is the layout that cuDNN's fast
// engines take.
//
// Plans are chosen by cuDNN's heuristics, the first that is allowed, never by timing: equal runs
// take equal plans. Engines that are not deterministic are not allowed; nor are, for f32 without
// tf32, those that round their operands.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <troupe/devices/cuda/libraries/cudnn_library.hpp>
#include <troupe/devices/device/window.hpp>

namespace troupe::cuda {

struct ConvolutionForm {
  Convolve what;
  DType dtype;
  std::int64_t batch, channels, filters, groups;
  int axes;  // the window's: 2 or 3
  std::array<std::int64_t, 3> in{}, out{}, size{}, stride{}, dilation{}, before{}, after{};

  /// None if cuDNN has no such convolution: integers, complex numbers, negative padding.
  static std::optional<ConvolutionForm> of(const ConvolveArgs& args);
  /// Equal for equal forms alone; a line.
  std::string text() const;
  std::int64_t taps() const { return size[0] * size[1] * (axes == 3 ? size[2] : 1); }
};

/// bytes; addresses of operands are multiples of it
inline constexpr std::int64_t kCudnnAlignment = 16;

/// A device that plans are made for: cuDNN's handle on it, or its description.
struct PlanTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;  // CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, finalized
};

struct PlanLimits {
  bool tf32 = false;
  std::int64_t workspace = std::int64_t{512} << 20;  // bytes
};

class ConvolutionPlan {
 public:
  /// The operands, as the primitive has them: a, b and the result.
  struct Operands {
    const void *a, *b;
    void* out;
  };
  std::int64_t workspace_bytes() const { return workspace_; }
  /// Enqueues the work in the stream of the handle.
  cudnnStatus_t execute(cudnnHandle_t handle, const Operands& operands, void* workspace) const;
  /// The plan as text, for restore_convolution.
  std::string serialized() const;

 private:
  friend std::optional<ConvolutionPlan> plan_convolution(const CudnnLibrary&, const PlanTarget&,
                                                         const ConvolutionForm&, const PlanLimits&);
  friend std::optional<ConvolutionPlan> restore_convolution(const CudnnLibrary&, const PlanTarget&,
                                                            Convolve, const std::string&);
  const CudnnLibrary* library_ = nullptr;
  Convolve what_ = Convolve::output;
  std::vector<Descriptor> parts_;  // the plan's origins, to which cuDNN may refer
  Descriptor plan_;
  std::int64_t workspace_ = 0;
};

/// Returns the first allowed plan; none if no engine of this cuDNN is.
std::optional<ConvolutionPlan> plan_convolution(const CudnnLibrary& library,
                                                const PlanTarget& target,
                                                const ConvolutionForm& form,
                                                const PlanLimits& limits);

/// Returns the plan of `serialized()`; none if this cuDNN or device refuses it.
std::optional<ConvolutionPlan> restore_convolution(const CudnnLibrary& library,
                                                   const PlanTarget& target, Convolve what,
                                                   const std::string& serialized);

}  // namespace troupe::cuda
