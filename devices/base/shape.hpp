// Shapes: the extents of a tensor, row-major. While a graph is built a dimension, or the rank
// itself, may be unknown; a tensor's shape is always known in full.
//
//   Shape s{64, kAny};        // 64 × ?
//   s.merge(Shape{kAny, 10})  // 64 × 10
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <troupe/devices/base/error.hpp>

namespace troupe {

/// A dimension whose extent is not known while the graph is built.
inline constexpr std::int64_t kAny = -1;

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  constexpr Shape() = default;  // rank 0: a scalar
  /// Each of these throws invalid_argument, naming the caller's line, above rank 8 or for an extent
  /// below -1.
  Shape(std::initializer_list<std::int64_t> dims,
        const std::source_location& at = std::source_location::current())
      : Shape(std::span<const std::int64_t>(dims.begin(), dims.size()), at) {}
  explicit Shape(std::span<const std::int64_t> dims,
                 const std::source_location& at = std::source_location::current());
  explicit Shape(const std::vector<std::int64_t>& dims,
                 const std::source_location& at = std::source_location::current())
      : Shape(std::span<const std::int64_t>(dims), at) {}
  /// A shape of which not even the rank is known.
  static Shape unknown() {
    Shape s;
    s.rank_ = -1;
    return s;
  }

  bool has_rank() const { return rank_ >= 0; }
  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[axis]; }
  void set(int axis, std::int64_t extent) { dims_[axis] = extent; }
  std::span<const std::int64_t> dims() const {
    return {dims_, rank_ < 0 ? std::size_t(0) : std::size_t(rank_)};
  }
  const std::int64_t* begin() const { return dims_; }
  const std::int64_t* end() const { return dims_ + (rank_ < 0 ? 0 : rank_); }

  /// Every extent is known.
  bool is_known() const;
  /// The number of elements, or -1 if any extent is unknown.
  std::int64_t elements() const {
    return rank_ == 0 ? 1 : rank_ == 1 ? (dims_[0] < 0 ? -1 : dims_[0]) : count();
  }
  bool is_scalar() const { return rank_ == 0; }

  void push_back(std::int64_t extent);
  /// Returns this shape without axis `axis`.
  Shape without(int axis) const;
  Shape with_inserted(int axis, std::int64_t extent) const;

  /// Returns true if both could describe one tensor. Unknown matches anything.
  bool is_compatible(const Shape& other) const;
  /// Returns the extents known to either shape; throws invalid_argument if they contradict.
  Shape merge(const Shape& other) const;

  /// Returns the extents common to both; extents that differ are unknown.
  Shape common(const Shape& other) const;
  /// Returns true if this describes every tensor that `other` describes.
  bool covers(const Shape& other) const;

  friend bool operator==(const Shape& a, const Shape& b);
  /// `[64, ?]`, `[]` for a scalar, `[...]` for unknown rank.
  std::string text() const;

 private:
  std::int64_t count() const;

  std::int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

/// Writes `text()`.
std::ostream& operator<<(std::ostream& out, const Shape& shape);

namespace detail {

/// NumPy's rule: aligned at the last axis, extents are equal or 1. Unknown extents stay unknown
/// unless the other side decides. Throws invalid_argument if the two cannot be broadcast.
Shape broadcast(const Shape& a, const Shape& b);
/// `axis` in [-rank, rank) made non-negative; throws out_of_range otherwise.
int normalize_axis(std::int64_t axis, int rank);

}  // namespace detail

}  // namespace troupe
