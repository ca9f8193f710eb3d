// Arguments of the primitives that run along one axis: running sums, sorting, choosing, searching.
// Tensors are seen as [outer, extent, inner], with the axis in the middle.
#pragma once

#include <array>

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

enum class Scan : std::uint8_t {
  sum,
  product,
  linear,  // s[i] = b[i] + a[i] s[i-1]; reversed s[i] = b[i] + a[i+1] s[i+1]
};

struct ScanArgs {
  Scan what;
  ConstView x;  // linear: b
  ConstView a;  // linear only, of x's shape
  View out;
  std::int64_t outer, extent, inner;
  bool exclusive = false;  // sum, product: without the element itself
  bool reverse = false;
};

/// The first `count` elements of each row of x in order, and their positions. Equals keep their
/// order; NaN is the largest. x: [rows, extent], values and indices (i64): [rows, count].
struct SortArgs {
  ConstView x;
  View values, indices;
  std::int64_t rows, extent, count;
  bool descending = false;
};

/// With indices [outer, n, inner], i32 or i64, in [0, extent):
enum class Along : std::uint8_t {
  take,  // out[o, j, i] = x[o, indices[o, j, i], i], out [outer, n, inner]
  add,   // out[o, indices[o, j, i], i] += x[o, j, i] over zeros, out [outer, extent, inner]
  // With coordinates [outer, n, depth], each below its extent of a tensor [outer, extents...,
  // inner]:
  take_at,  // out[o, j] = x[o, coordinates[o, j]...], out [outer, n, inner]
  put_at,   // out[o, coordinates[o, j]...] and x[o, j] become one, in the order of j
};
/// The rule that combines a new element with the old one.
enum class Put : std::uint8_t { update, add, sub, min, max, mul };

struct AlongArgs {
  Along what;
  ConstView x, indices;
  View out;
  std::int64_t outer, extent, n, inner;  // coordinates: extent is the product of their extents
  Put how = Put::update;
  int depth = 1;
  std::array<std::int64_t, Shape::kMaxRank> extents{};
};

/// Counts the elements of a row of `sorted` [rows, extent], in rising order, below each of values
/// [rows, n]; right: below or equal to it. NaN is the largest. out: i64 [rows, n].
struct SearchArgs {
  ConstView sorted, values;
  View out;
  std::int64_t rows, extent, n;
  bool right = false;
};

}  // namespace troupe::detail
