// One op's step of reverse mode, for gradients of graphs and for the tape.
//
//   std::vector<Cotangent> dxs =
//       differentiate(*node.op, node.attrs, {inputs, outputs, dys, needed});
//
// The op's `gradient` runs on the reader that the expressions belong to: a graph appends nodes, an
// eager scope computes at once. Its result is checked here, once for all ops: a dense dx has x's
// dtype. For a pointwise op dx is summed back over the axes along which x was broadcast, so that op
// files need not consider broadcasting.
#pragma once

#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The inputs, outputs and cotangents of an operation, for its gradient.
struct Differentiated {
  std::vector<Expr> inputs;
  std::vector<Expr> outputs;
  std::vector<Cotangent> cotangents;  // one an output; none: nothing depends on it
  std::vector<bool> needed;           // one an input; true: its cotangent is wanted
};

/// Returns one cotangent an input; none if the op yields none or the cotangent is not wanted.
/// Throws unimplemented if the op has no gradient, and the errors of its gradient function.
std::vector<Cotangent> differentiate(const OpDef& op, const Attrs& attrs, Differentiated firing);

/// Returns the sum of the cotangents that several consumers yield for one value.
Cotangent sum_of(const std::vector<Cotangent>& terms);

}  // namespace troupe
