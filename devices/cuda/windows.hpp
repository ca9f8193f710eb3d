// The engine's windows as kernels see them.
#pragma once

#include <algorithm>

#include <troupe/devices/cuda/kernels/nn.hpp>
#include <troupe/devices/device/window.hpp>

namespace troupe::cuda {

/// True if the windows are single elements, all of them: their columns lie there already.
inline bool has_columns(const Windows& w) {
  return std::all_of(w.axis.begin(), w.axis.end(), [](const WindowAxis& a) {
    return a.size == 1 && a.stride == 1 && a.before == 0 && a.in == a.out;
  });
}

inline WindowShape shape_of(const Windows& w, std::int64_t batch, std::int64_t channels) {
  WindowShape shape{{}, batch, channels};
  for (std::size_t d = 0; d < 3; ++d) {
    const WindowAxis& a = w.axis[d];
    shape.axis[d] = {a.in, a.out, a.size, a.stride, a.dilation, a.before};
  }
  return shape;
}

}  // namespace troupe::cuda
