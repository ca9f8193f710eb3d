// Batch normalisation over the batches of all members of a group.
//
//   collective::BatchNorm n = collective::batch_norm(replicas, xs, scales, biases);
//   n.y[r], n.mean[r], n.variance[r]                 // on member r
//
// Each member computes the moments of its own rows; two all-reduces of as many numbers as there are
// channels yield those of all rows, first the mean, then the variance about it, so that no digits
// cancel. Gradients pass through both.
#pragma once

#include <troupe/ops/collectives/collectives.hpp>

namespace troupe::collective {

struct BatchNorm {
  Exprs y;               // xs, normalised
  Exprs mean, variance;  // [channels], of all members' rows, for running averages
};

/// xs[m]: [..., channels], whose rows may differ in number; scales and biases: one a channel or one
/// for all, of each member. Throws invalid_argument for other than floating values, ranks below 2,
/// and a negative epsilon.
BatchNorm batch_norm(const Group& group, const Exprs& xs, const Exprs& scales, const Exprs& biases,
                     double epsilon = 1e-5, CollectiveAt at = CollectiveAt::current());

}  // namespace troupe::collective
