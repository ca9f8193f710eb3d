// Attributes, checks and the kernel of the convolutions, over the device's primitive.
#pragma once

#include <functional>

#include <fmt/format.h>

#include <troupe/devices/device/window.hpp>
#include <troupe/ops/families/window.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

/// Makes the node of `op`.
Expr bind_convolution(const char* op, Operand x, Operand filter, const WindowOptions& window,
                      std::int64_t groups);
/// A window's, and `groups`.
void convolution_attrs(OpBuilder& op);
/// Dtypes, ranks and groups of a tensor and a filter.
void require_convolution(const Inference& c, int tensor, int filter);
/// A filter's window: [window..., channels / groups, filters].
Shape window_of(const Shape& filter);
/// As many unknown extents as `like`, a tensor or a filter, has spatial axes.
Shape any_space(const Shape& like);

/// The shapes of input, filter and output of the convolution that a kernel computes, or whose
/// gradient it computes.
struct ConvolutionShapes {
  Shape x, filter, y;
};
/// Makes a kernel whose first two inputs the primitive takes. The kernel checks extents that
/// inference could not.
std::unique_ptr<Kernel> convolution_kernel(
    Convolve what, const KernelSetup& setup,
    std::function<ConvolutionShapes(KernelContext&, const Attrs&)> shapes);

}  // namespace troupe::detail
