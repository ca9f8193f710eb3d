// One op's step of reverse mode: what gradients of graphs and the tape both call.
//
//   std::vector<Cotangent> dxs = differentiate(*node.op, node.attrs, {inputs, outputs, dys, needed});
//
// The op's `gradient` runs on the reader that the expressions belong to: a graph appends nodes, an
// eager scope computes at once. What it says is checked here, once for all ops: a dense dx has x's
// dtype, and for a pointwise op is summed back over the axes along which x was broadcast, so that
// op files need not think of broadcasting.
#pragma once

#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// What an operation took and gave, as its gradient sees it.
struct Differentiated {
  std::vector<Expr> inputs;
  std::vector<Expr> outputs;
  std::vector<Cotangent> cotangents;  // one an output; none: nothing depends on it
  std::vector<bool> needed;           // one an input: does anybody want its cotangent?
};

/// One cotangent an input; none where the op says so or nobody asked.
/// Throws unimplemented if the op has no gradient, and what its gradient function throws.
std::vector<Cotangent> differentiate(const OpDef& op, const Attrs& attrs, Differentiated firing);

/// The sum of what several consumers say of one value.
Cotangent sum_of(const std::vector<Cotangent>& terms);

}  // namespace troupe
