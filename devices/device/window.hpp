// Arguments of convolutions and pooling: a window that moves over the spatial axes of [batch,
// space..., channels]. There are always three axes; missing ones have extent 1.
#pragma once

#include <array>

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

/// A window along one axis, in elements. Position o covers in[o * stride - before + t * dilation]
/// for t < size; elements outside [0, in) are padding.
struct WindowAxis {
  std::int64_t in = 1, out = 1;  // extents: of the input, of the window's positions
  std::int64_t size = 1, stride = 1, dilation = 1;
  std::int64_t before = 0;  // elements of padding before the first

  std::int64_t start(std::int64_t o) const { return o * stride - before; }
  /// Position o's taps [first_tap, last_tap) lie inside.
  std::int64_t first_tap(std::int64_t o) const {
    return start(o) < 0 ? (-start(o) + dilation - 1) / dilation : 0;
  }
  std::int64_t last_tap(std::int64_t o) const {
    const std::int64_t room = in - start(o),
                       inside = room <= 0 ? 0 : (room + dilation - 1) / dilation;
    return inside < size ? inside : size;
  }
  friend bool operator==(const WindowAxis&, const WindowAxis&) = default;
};

struct Windows {
  std::array<WindowAxis, 3> axis;
  std::int64_t inputs() const { return axis[0].in * axis[1].in * axis[2].in; }
  std::int64_t outputs() const { return axis[0].out * axis[1].out * axis[2].out; }
  std::int64_t taps() const { return axis[0].size * axis[1].size * axis[2].size; }
  friend bool operator==(const Windows&, const Windows&) = default;
};

/// The result of a convolution: y [n, out..., filters] from x [n, in..., channels] and w
/// [window..., channels / groups, filters], or the gradient with respect to x (from dy and w) or w
/// (from x and dy).
enum class Convolve : std::uint8_t { output, input, filter };

struct ConvolveArgs {
  Convolve what;
  ConstView a, b;  // output: x, w; input: dy, w; filter: x, dy
  View out;
  Windows windows;
  std::int64_t batch, channels, filters, groups;
  RepackedSlot* kept = nullptr;  // keeps preparations of the device for these shapes
};

enum class Pool : std::uint8_t {
  max,            // y: the largest x of each window, NaN if any is
  max_gradient,   // dx: each dy goes to the largest x of its window, the first of equals
  max_at,         // y: the second input's element at the largest x of each window
  mean,           // y: the mean of each window without its padding
  mean_gradient,  // dx: each dy in equal parts to its window's elements
};

struct PoolArgs {
  Pool what;
  ConstView x;      // max…: [n, in..., channels]; mean_gradient: dy
  ConstView other;  // max_gradient: dy; max_at: the second input
  View out;
  Windows windows;
  std::int64_t batch, channels;
};

}  // namespace troupe::detail
