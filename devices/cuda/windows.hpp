// The engine's windows as kernels see them.
#pragma once

#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/device/window.hpp>

namespace troupe::cuda {

inline WindowShape shape_of(const Windows& w, std::int64_t batch, std::int64_t channels) {
  WindowShape shape{{}, batch, channels};
  for (std::size_t d = 0; d < 3; ++d) {
    const WindowAxis& a = w.axis[d];
    shape.axis[d] = {a.in, a.out, a.size, a.stride, a.dilation, a.before};
  }
  return shape;
}

}  // namespace troupe::cuda
