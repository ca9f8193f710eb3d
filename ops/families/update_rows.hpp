// The shape of updates that are scattered into rows: one row of updates for each index.
#pragma once

#include <troupe/devices/base/shape.hpp>

namespace troupe::detail {

/// The shape that updates must have: that of the indices, then that of a row of `whole`, which has
/// at least one axis. The ranks of both are known.
inline Shape update_rows(const Shape& indices, const Shape& whole) {
  Shape rows = indices;
  for (int i = 1; i < whole.rank(); ++i) rows.push_back(whole[i]);
  return rows;
}

}  // namespace troupe::detail
