// Rows of a sharded variable under another number of shards than they were saved with.
//
//   reshard(values, {"embedding", Partitioner::Kind::modulo, 1'000'000}, 8);
//
// Values are those of a checkpoint: `embedding/shard-0` and its kin, and what optimizers keep
// beside each, `embedding/shard-0/Adagrad/...`. A value with a row for each row of its shard is cut
// anew; any other one, such as a number of steps, is shard 0's.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <troupe/ops/collectives/sharded_variable.hpp>

namespace troupe::detail {

struct ShardedRows {
  std::string name;
  Partitioner::Kind kind = Partitioner::Kind::range;
  std::int64_t rows = 0;
};

/// Replaces the values of the shards that `values` has by those of `shards` shards. Does nothing if
/// there are none, or as many. Throws data_loss if rows are missing.
void reshard(std::map<std::string, Tensor>& values, const ShardedRows& of, std::int64_t shards);

}  // namespace troupe::detail
