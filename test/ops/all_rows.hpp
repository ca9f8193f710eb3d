// All rows of the table of operations.
#pragma once

#include <troupe/test/ops/along_rows.hpp>
#include <troupe/test/ops/channel_rows.hpp>
#include <troupe/test/ops/coordinate_rows.hpp>
#include <troupe/test/ops/pointwise_rows.hpp>
#include <troupe/test/ops/recurrent_rows.hpp>
#include <troupe/test/ops/structure_rows.hpp>
#include <troupe/test/ops/window_rows.hpp>

namespace troupe::test {

inline std::vector<Row> all_rows() {
  std::vector<Row> rows = pointwise_rows();
  for (auto family : {structure_rows, channel_rows, window_rows, along_rows, coordinate_rows, recurrent_rows})
    for (Row& r : family()) rows.push_back(std::move(r));
  return rows;
}

}  // namespace troupe::test
