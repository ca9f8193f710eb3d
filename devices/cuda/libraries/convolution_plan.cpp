#include <troupe/devices/cuda/libraries/convolution_plan.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe::cuda {
namespace {

// Numbers of the operands in a graph and in the pack of their addresses.
enum Operand : std::int64_t { kX = 1, kW = 2, kY = 3 };

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f64: return CUDNN_DATA_DOUBLE;
    default: return CUDNN_DATA_FLOAT;
  }
}

// A tensor [first, second, axes...] whose second axis is the innermost in memory.
Descriptor tensor_of(const CudnnLibrary& library, Operand number, DType dtype, std::int64_t first,
                     std::int64_t second, const std::array<std::int64_t, 3>& extents, int axes) {
  const auto rank = static_cast<std::size_t>(axes) + 2;
  std::array<std::int64_t, 5> dimensions{first, second}, strides{};
  std::int64_t stride = second;
  for (std::size_t i = rank; i-- > 2;) {
    dimensions[i] = extents[i - 2];
    strides[i] = stride;
    stride *= dimensions[i];
  }
  strides[0] = stride;
  strides[1] = 1;
  Descriptor tensor(library, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type_of(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
             std::span<const std::int64_t>(dimensions.data(), rank));
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
             std::span<const std::int64_t>(strides.data(), rank));
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, static_cast<std::int64_t>(number));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kCudnnAlignment);
  tensor.finalize();
  return tensor;
}

Descriptor window_of(const CudnnLibrary& library, const ConvolutionForm& form) {
  Descriptor window(library, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  window.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
             static_cast<std::int64_t>(form.axes));
  window.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
             form.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  window.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
             CUDNN_CROSS_CORRELATION);
  const auto each = [&](cudnnBackendAttributeName_t name,
                        const std::array<std::int64_t, 3>& values) {
    window.set(name, CUDNN_TYPE_INT64,
               std::span<const std::int64_t>(values.data(), static_cast<std::size_t>(form.axes)));
  };
  each(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, form.before);
  each(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, form.after);
  each(CUDNN_ATTR_CONVOLUTION_DILATIONS, form.dilation);
  each(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, form.stride);
  window.finalize();
  return window;
}

// The names of one kind of convolution: its operation, its operands, its factors.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, w, y, window, alpha, beta;
};

Names names_of(Convolve what) {
  switch (what) {
    case Convolve::input:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Convolve::filter:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

// The graph is the last; the others are its parts, which cuDNN may refer to.
std::vector<Descriptor> graph_of(const CudnnLibrary& library, const PlanTarget& target,
                                 const ConvolutionForm& form) {
  const Names names = names_of(form.what);
  std::vector<Descriptor> parts;
  Descriptor operation(library, names.operation);
  const auto add = [&](cudnnBackendAttributeName_t name, Descriptor part) {
    operation.set(name, part);
    parts.push_back(std::move(part));
  };
  add(names.x, tensor_of(library, kX, form.dtype, form.batch, form.channels, form.in, form.axes));
  add(names.w, tensor_of(library, kW, form.dtype, form.filters, form.channels / form.groups,
                         form.size, form.axes));
  add(names.y, tensor_of(library, kY, form.dtype, form.batch, form.filters, form.out, form.axes));
  add(names.window, window_of(library, form));
  if (form.dtype == DType::f64) {
    operation.set(names.alpha, CUDNN_TYPE_DOUBLE, 1.0);
    operation.set(names.beta, CUDNN_TYPE_DOUBLE, 0.0);
  } else {
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f);
    operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.0f);
  }
  operation.finalize();
  Descriptor graph(library, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  graph.finalize();
  parts.push_back(std::move(operation));
  parts.push_back(std::move(graph));
  return parts;
}

// The engines that cuDNN recommends, the best first; empty if it has none.
std::vector<Descriptor> recommended(const CudnnLibrary& library, const PlanTarget& target,
                                    const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  constexpr std::int64_t kMost = 32;
  Descriptor heuristics(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target.properties) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  if (!heuristics.try_finalize()) return {};
  std::vector<Descriptor> all;
  std::vector<cudnnBackendDescriptor_t> handles;
  const std::int64_t count = std::min(
      kMost, heuristics.read<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr));
  for (std::int64_t i = 0; i < count; ++i)
    handles.push_back(all.emplace_back(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  if (count == 0) return all;
  const std::int64_t found = heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, count, handles.data());
  all.resize(static_cast<std::size_t>(std::min(count, found)));
  return all;
}

// By the notes of the configuration's engine.
bool is_allowed(const CudnnLibrary& library, const Descriptor& configuration, DType dtype,
                bool tf32) {
  const Descriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  configuration.read(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t count =
      engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                  static_cast<std::int64_t>(notes.size()), notes.data());
  const bool is_exact = dtype == DType::f32 && !tf32;
  return std::none_of(notes.begin(), notes.begin() + count, [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: return is_exact;
      default: return false;
    }
  });
}

void set_target(Descriptor& plan, const PlanTarget& target) {
  if (target.handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  else plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
}

std::int64_t workspace_of(const Descriptor& plan) {
  std::int64_t bytes = 0;
  plan.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
  return bytes;
}

}  // namespace

std::optional<ConvolutionForm> ConvolutionForm::of(const ConvolveArgs& c) {
  const DType dtype = c.out.dtype;
  if (!is_floating(dtype)) return std::nullopt;
  const auto is_trivial = [](const WindowAxis& a) { return a == WindowAxis{}; };
  const auto& axis = c.windows.axis;
  ConvolutionForm form{c.what, dtype, c.batch, c.channels, c.filters, c.groups, 3};
  // One axis without extent is left out: the last, if there is a choice, is kept.
  std::vector<WindowAxis> used;
  if (is_trivial(axis[0])) used = {axis[1], axis[2]};
  else if (is_trivial(axis[2])) used = {axis[0], axis[1]};
  else used = {axis[0], axis[1], axis[2]};
  form.axes = static_cast<int>(used.size());
  for (std::size_t i = 0; i < used.size(); ++i) {
    const WindowAxis& a = used[i];
    const std::int64_t reach = (a.out - 1) * a.stride + (a.size - 1) * a.dilation + 1,
                       after = reach - a.before - a.in;
    // Padding that is cut away, or an output that ends before the input does by a whole stride.
    if (a.before < 0 || after <= -a.stride) return std::nullopt;
    form.in[i] = a.in, form.out[i] = a.out, form.size[i] = a.size, form.stride[i] = a.stride;
    form.dilation[i] = a.dilation, form.before[i] = a.before;
    form.after[i] = std::max<std::int64_t>(0, after);
  }
  return form;
}

std::string ConvolutionForm::text() const {
  return fmt::format("convolution {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
                     static_cast<int>(what), static_cast<int>(dtype), batch, channels, filters,
                     groups, axes, fmt::join(in, ","), fmt::join(out, ","), fmt::join(size, ","),
                     fmt::join(stride, ","), fmt::join(dilation, ","), fmt::join(before, ","),
                     fmt::join(after, ","));
}

std::optional<ConvolutionPlan> plan_convolution(const CudnnLibrary& library,
                                                const PlanTarget& target,
                                                const ConvolutionForm& form,
                                                const PlanLimits& limits) {
  std::vector<Descriptor> parts = graph_of(library, target, form);
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (Descriptor& configuration : recommended(library, target, parts.back(), mode)) {
      if (!is_allowed(library, configuration, form.dtype, limits.tf32)) continue;
      ConvolutionPlan plan;
      plan.library_ = &library;
      plan.what_ = form.what;
      plan.plan_ = Descriptor(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      set_target(plan.plan_, target);
      if (!plan.plan_.try_finalize()) continue;
      plan.workspace_ = workspace_of(plan.plan_);
      if (plan.workspace_ > limits.workspace) continue;
      plan.parts_ = std::move(parts);
      plan.parts_.push_back(std::move(configuration));
      return plan;
    }
  return std::nullopt;
}

std::optional<ConvolutionPlan> restore_convolution(const CudnnLibrary& library,
                                                   const PlanTarget& target, Convolve what,
                                                   const std::string& serialized) {
  try {
    ConvolutionPlan plan;
    plan.library_ = &library;
    plan.what_ = what;
    plan.plan_ = Descriptor(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_target(plan.plan_, target);
    plan.plan_.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                   std::span<const char>(serialized.data(), serialized.size()));
    if (!plan.plan_.try_finalize()) return std::nullopt;
    plan.workspace_ = workspace_of(plan.plan_);
    return plan;
  } catch (const Error&) { return std::nullopt; }
}

std::string ConvolutionPlan::serialized() const {
  constexpr auto kName = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
  std::string text(static_cast<std::size_t>(plan_.read<char>(kName, CUDNN_TYPE_CHAR, 0, nullptr)),
                   '\0');
  const auto size = static_cast<std::int64_t>(text.size());
  text.resize(static_cast<std::size_t>(plan_.read(kName, CUDNN_TYPE_CHAR, size, text.data())));
  return text;
}

cudnnStatus_t ConvolutionPlan::execute(cudnnHandle_t handle, const Operands& operands,
                                       void* workspace) const {
  const std::array<std::int64_t, 3> numbers{kX, kW, kY};
  // See Convolve: which of x, w and y are the operands.
  void *const a = const_cast<void*>(operands.a), *const b = const_cast<void*>(operands.b);
  const std::array<void*, 3> pointers = what_ == Convolve::output  ? std::array{a, b, operands.out}
                                        : what_ == Convolve::input ? std::array{operands.out, b, a}
                                                                   : std::array{a, operands.out, b};
  Descriptor pack(*library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
           std::span<const std::int64_t>(numbers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           std::span<void* const>(pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  return library_->execute(handle, plan_.get(), pack.get());
}

}  // namespace troupe::cuda
