// Mixture of experts: each position of a tensor goes to one or two of many layers, chosen by a gate
// (Shazeer et al., ICLR 2017; GShard, ICLR 2021; Switch, JMLR 2022).
//
//   const Dim experts{"experts", 8}, inner{"inner", 512};
//   const mesh::Mixture m = mesh::mixture_of_experts(
//       x, gate, in, out, {.experts = experts});       // x[batch, length, width]
//   loss = loss + 0.01 * m.loss;                       // keeps the experts equally busy
//
// Positions of one index of the first dimension compete for places. An expert has `capacity` of
// them for each such index; a position that finds none gets zeros from this expert, so that callers
// add x. Shapes do not depend on values.
//
// Rules of a layout that matter, for experts "experts" and x[batch, length, width]:
//   experts        the expert's dimension of weights and of what experts compute
//   batch          positions are dispatched and combined where they are
//   experts/group  groups of positions where experts compute
// Under "batch:all;experts:all" a dispatched tensor changes from one split to the other, and back:
// two all-to-alls, and two more for the gradients. Under "experts:all" alone each device dispatches
// to its own experts, and results are gathered. By data alone, "batch:all;experts/group:all", all
// devices have all experts, and nothing is sent.
//
// Errors: invalid_argument, naming the function, the caller's line and the dimension.
#pragma once

#include <cstdint>
#include <functional>

#include <troupe/ops/mesh/functions.hpp>

namespace troupe::mesh {

struct RoutingOptions {
  Dim experts;                    // as the gate's columns
  int chosen = 2;                 // experts of a position: 1 or 2
  double capacity_factor = 1.25;  // places, as a multiple of those that an equal share needs
};

/// The places of the positions of x[group, position, width].
struct Routing {
  Dim experts, group, position, width, capacity;
  /// [group, position, experts/from, capacity]: 1 at the place that a position has.
  Expr dispatch;
  /// `dispatch` with the weight of the gate in the place of 1: by it results have gradients for the
  /// gate.
  Expr combine;
  /// Scalar: the number of experts times the sum over experts of the part of positions whose first
  /// choice it is, times the mean of its gate; the mean over groups. 1 if all are equally busy.
  Expr loss;
  /// [experts/from]: positions that each expert takes, over all groups.
  Expr load;
};

/// `gate`: [width, experts]. With two choices their weights are divided by their sum; one choice
/// has the gate's softmax. First choices are placed before second ones, both in order of position.
/// The first of experts with equal gates is chosen. The gate computes in f32 at least.
Routing route(const Expr& x, const Expr& gate, const RoutingOptions& options,
              MeshAt at = MeshAt::current());
/// [experts, experts/group, capacity, width]: what each expert takes of x; zeros at free places.
Expr to_experts(const Routing& routing, const Expr& x, MeshAt at = MeshAt::current());
/// [group, position, columns]: for each position the weighted sum of what its experts made. `made`:
/// [experts, experts/group, capacity, columns].
Expr from_experts(const Routing& routing, const Expr& made, MeshAt at = MeshAt::current());

struct MixtureOptions {
  Dim experts;
  int chosen = 2;
  double capacity_factor = 1.25;
  std::function<Expr(const Expr&)> activation = {};  // empty: relu
};

struct Mixture {
  Expr output;  // its shape is that of x
  Expr loss;    // Routing::loss
  Expr load;    // Routing::load
};

/// Two products an expert, `in` [experts, width, inner] and `out` [experts, inner, width], with an
/// activation between them.
Mixture mixture_of_experts(const Expr& x, const Expr& gate, const Expr& in, const Expr& out,
                           const MixtureOptions& options, MeshAt at = MeshAt::current());

}  // namespace troupe::mesh
