// Everything that an op defined outside the source tree needs: its definition, its gradient, its
// kernel, and what families of ops share.
//
//   TROUPE_OP(Twice) {
//     op.doc("Each element twice.");
//     op.pointwise([](auto x) { return x + x; });
//     op.gradient([](Gradient& g) { g.set(0, g.dy() * 2.0); });
//   }
//   Expr twice(Operand x) { return bind1("Twice", {x}); }
#pragma once

#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/kernel.hpp>
#include <troupe/devices/device/primitives.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/eager/evaluate.hpp>
#include <troupe/ops/families/algebra.hpp>
#include <troupe/ops/families/convolution.hpp>
#include <troupe/ops/families/coordinates.hpp>
#include <troupe/ops/families/held.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/families/pooling.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/families/row_norm.hpp>
#include <troupe/ops/families/scan.hpp>
#include <troupe/ops/families/update_rows.hpp>
#include <troupe/ops/families/wide.hpp>
#include <troupe/ops/families/window.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>
#include <troupe/ops/graph/specs_attr.hpp>
#include <troupe/ops/graph/state.hpp>
