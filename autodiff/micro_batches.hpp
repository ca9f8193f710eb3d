// A training step on parts of its batch, one after the other: activations take the memory of one
// part (Mesh-TensorFlow's serialize_training_step; Shazeer et al. 2018).
//
//   const Dim batch{"batch", 512};
//   Expr w = named(weights.read(), {in, out});
//   auto [loss, d] = micro_batches({x, labels}, batch, 8, {w}, [&](const Exprs& part, Dim rows) {
//     return mesh::mean(cross_entropy(mesh::einsum({part[0], w}, {rows, out}), part[1]), {rows});
//   });
//
// Part i has the rows i, i + count, ... Its dimension is called "batch/8", and the layout rules of
// `batch` apply to it. So each device of a mesh takes its rows of every part from the rows that it
// has. Sums of losses and gradients stay local in the loop, and are reduced over devices once,
// after it; for that, variables have to be read outside of `loss`.
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe {

struct LossAndGradients {
  Expr loss;                    // the mean of the parts' losses
  std::vector<Expr> gradients;  // the loss's, one an x
};

/// A loss, a scalar, of parts of the inputs. `rows`: the dimension in the place of the batch.
using PartLoss = std::function<Expr(const std::vector<Expr>& part, const mesh::Dim& rows)>;

/// Returns the mean loss of `count` parts of the inputs, each of which has the dimension `batch`,
/// and its gradients: those of the whole batch if the loss is a mean over rows. xs are expressions
/// from outside of `loss`, or variables that it reads. On a mesh, read variables outside. Throws
/// invalid_argument, naming the caller's line and the dimension, if an input lacks it, or `count`
/// does not divide its size, or a loss is no floating scalar.
LossAndGradients micro_batches(const std::vector<Expr>& inputs, const mesh::Dim& batch,
                               std::int64_t count, const detail::Independents& xs,
                               const PartLoss& loss,
                               std::source_location at = std::source_location::current());

}  // namespace troupe
