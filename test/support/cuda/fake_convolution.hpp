// A convolution that the stand-in for cuDNN has been described, and its interpretation: every
// element by its definition, over the described strides.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <cudnn.h>

namespace fake_cudnn {

struct Convolution {
  enum class Kind { forward, data, filter };
  /// A tensor: x and y are [batch, channels, axes...], w is [filters, channels, axes...].
  struct Side {
    std::int64_t number = 0, alignment = 0;
    cudnnDataType_t type{};
    std::vector<std::int64_t> extents, strides;
    void* data = nullptr;
  };

  Kind kind = Kind::forward;
  Side x, w, y;
  std::vector<std::int64_t> before, after, dilation, stride;

  /// True if the extents of the sides follow from each other.
  bool is_consistent() const;
  /// Returns why the operands or the workspace cannot be used: not live memory of a device, or not
  /// aligned; else empty.
  std::string why_not_there(const void* workspace, std::size_t workspace_bytes) const;
  /// `rounds`: operands have 10 bits; `is_random`: the result is NaN.
  void run(bool rounds, bool is_random) const;

  /// As text, without addresses.
  void write(std::ostream& out) const;
  bool read(std::istream& in);
};

}  // namespace fake_cudnn
