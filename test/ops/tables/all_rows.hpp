// All rows of the table of operations.
#pragma once

#include <troupe/test/ops/tables/along_rows.hpp>
#include <troupe/test/ops/tables/channel_rows.hpp>
#include <troupe/test/ops/tables/coordinate_rows.hpp>
#include <troupe/test/ops/tables/pointwise_rows.hpp>
#include <troupe/test/ops/tables/recurrent_rows.hpp>
#include <troupe/test/ops/tables/structure_rows.hpp>
#include <troupe/test/ops/tables/window_rows.hpp>

namespace troupe::test {

inline std::vector<Row> all_rows() {
  std::vector<Row> rows = pointwise_rows();
  for (auto family :
       {structure_rows, channel_rows, window_rows, along_rows, coordinate_rows, recurrent_rows})
    for (Row& r : family()) rows.push_back(std::move(r));
  return rows;
}

}  // namespace troupe::test
