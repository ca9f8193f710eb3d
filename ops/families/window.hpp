// Windows over the spatial axes of [batch, space..., channels]: options and shapes of convolutions
// and pooling.
//
//   conv(x, filter, {.strides = {2, 2}, .padding = Padding::same()});
//
// Note [channels last]: tensors are [batch, space..., channels] and filters [window..., channels,
// filters], the only layout there is. The channels of one position lie together, so that a bias, a
// normalisation over channels and a product with a matrix broadcast along the last axis as
// everywhere in the library; a 1x1 convolution is a product without a transpose; and oneDNN's
// kernels for it lose nothing to those for other orders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/ops/graph/expr.hpp>

namespace troupe {

namespace detail {

class OpBuilder;
class Inference;
struct Windows;

}  // namespace detail

/// The surroundings of the spatial axes: zeros for a convolution; pooling ignores them.
struct Padding {
  std::string kind = "valid";
  std::vector<std::int64_t> before, after;

  /// None: windows lie inside.
  static Padding valid() { return {}; }
  /// As much as makes an output extent ceil(input / stride); an odd element goes behind.
  static Padding same() { return {"same", {}, {}}; }
  /// So many elements on both sides of each axis.
  static Padding of(std::vector<std::int64_t> both) { return {"given", both, both}; }
  static Padding of(std::vector<std::int64_t> before, std::vector<std::int64_t> after) {
    return {"given", std::move(before), std::move(after)};
  }
  /// So many elements on both sides of each axis, and behind it as many more as make a last window
  /// whole that begins before the elements end: where the others round the number of positions
  /// down, this rounds it up.
  static Padding ceil(std::vector<std::int64_t> both = {}) { return {"ceil", both, both}; }
};

/// How a window moves: one number for each spatial axis; none given: 1.
struct WindowOptions {
  std::vector<std::int64_t> strides = {};
  Padding padding = {};
  std::vector<std::int64_t> dilation = {};  // steps between the window's elements
};

namespace detail {

/// The attributes of an op that has a window, from a caller's.
Attrs attrs_of(const WindowOptions& window);
/// Declares them.
void window_attrs(OpBuilder& op);

/// The extents of a window's positions over `space`, which may be unknown. Throws invalid_argument
/// if the numbers do not fit the axes, out_of_range if a window does not fit into a known extent.
Shape positions(const Shape& space, const Shape& size, const Attrs& attrs);
/// Returns the extents whose windows have the positions `space`: the result of a transposed
/// convolution.
Shape covered(const Shape& space, const Shape& size, const Attrs& attrs);
/// The window, for kernels: all extents known.
Windows windows_of(const Shape& space, const Shape& size, const Attrs& attrs);

/// The axes between the first and the last.
Shape space_of(const Shape& shape);
/// [batch, space..., channels].
Shape with_space(std::int64_t batch, const Shape& space, std::int64_t channels);
/// Three, four or five axes, if the rank is known.
void require_space(const Inference& c, int input, const char* what);

}  // namespace detail

}  // namespace troupe
