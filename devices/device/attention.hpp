// Scaled dot-product attention that keeps no score matrix: blocks of keys pass by each block of
// queries (Dao et al., FlashAttention, 2022). Arguments of the primitives.
#pragma once

#include <array>

#include <troupe/devices/device/primitives.hpp>

namespace troupe::detail {

/// y = softmax(q k^T * scale + mask) v for each batch and head; a bool mask stands for 0 or
/// -infinity. A query without visible keys gets zeros. Queries have `heads` heads, keys and values
/// `groups`, each for heads / groups heads in a row. Causal: query i reads keys up to i + keys -
/// queries.
struct AttentionArgs {
  ConstView q;     // [batch, heads, queries, depth]
  ConstView k, v;  // [batch, groups, keys, depth], [batch, groups, keys, width]
  // bool, true: visible, or q's dtype; [batch, heads, queries, keys] or without heads or both, each
  // extent may be 1; absent: all are visible
  ConstView mask;
  View y;  // [batch, heads, queries, width]
  // [batch, heads, queries] f32, f64 for f64: the logarithm of each softmax's denominator
  View log_sum;
  std::int64_t batch, heads, groups, queries, keys, depth, width;
  double scale;
  bool causal = false;
};

/// The gradients with respect to q, k, v and the mask, from dy, the inputs, y and log_sum.
struct AttentionGradientArgs {
  AttentionArgs of;  // y and log_sum not used
  ConstView y, log_sum, dy;
  View dq, dk, dv;
  View dmask;  // only if the mask is not bool; absent: not requested
};

}  // namespace troupe::detail
