// All-reduces of many values at once, as of all gradients of a network: small ones are joined.
//
//   std::vector<Exprs> slopes;                    // slopes[i]: one of each member
//   slopes = collective::all_reduce(replicas, slopes, Combine::mean);
//
// Values are joined in the order in which the graph yields them, which for gradients is that of the
// backward pass. So the first bucket is exchanged while the pass goes on: a bucket depends on its
// own values alone. A value has the bits of an all-reduce of its own.
//
// Source: Li et al., "PyTorch Distributed" (VLDB 2020), §3.2.
#pragma once

#include <cstdint>
#include <vector>

#include <troupe/ops/collectives/collectives.hpp>

namespace troupe::collective {

struct BucketOptions {
  /// Bytes of a bucket. A value of as many, or of an unknown shape, is exchanged alone: the copies
  /// into a bucket and out of it would take longer than a message. 0: all are.
  std::int64_t bytes = 256 * 1024;
};

/// Each member gets the combination of all, value by value. `xs[i]` has one expression a member.
/// Throws invalid_argument as all_reduce of each value does.
std::vector<Exprs> all_reduce(const Group& group, const std::vector<Exprs>& xs,
                              Combine how = Combine::sum, const BucketOptions& options = {},
                              CollectiveAt at = CollectiveAt::current());

}  // namespace troupe::collective
