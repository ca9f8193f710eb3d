// What the convolutions share: attributes, checks, and the kernel over the device's primitive.
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

/// Of what goes in, of the filter, and of what comes out of the convolution that a kernel is or
/// belongs to.
struct ConvolutionShapes {
  Shape x, filter, y;
};
/// A kernel whose first two inputs the primitive takes. What unknown extents left open is checked
/// when it runs.
std::unique_ptr<Kernel> convolution_kernel(
    Convolve what, const KernelSetup& setup,
    std::function<ConvolutionShapes(KernelContext&, const Attrs&)> shapes);

}  // namespace troupe::detail
