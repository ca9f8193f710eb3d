#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x itself, which is sent to other nodes of a cluster as bf16, rounded to the nearest, in half the
/// bytes. An f32 keeps three digits if this node, or one that uses it, is on another node than the
/// producer. So results depend on where a program is cut. The gradient is sent so, too. In a loop
/// that begins with it, only the initial value is rounded. Feeds, constants, fetches, scalars
/// (which steer loops and save nothing), and all but f32 tensors are sent unchanged. For all edges
/// at once see EdgeOptions::as_bf16.
TROUPE_DSL(Expr edge_as_bf16(Operand x))
Expr edge_as_bf16(Operand x) { return bind1("EdgeAsBf16", {x}); }

TROUPE_OP(EdgeAsBf16) {
  op.doc(
      "The input, unchanged; an f32 tensor that a node has computed goes to other nodes as bf16, "
      "from here and to here.");
  op.inputs(1);
  op.infer([](Inference& c) { c.output(c.input(0)); });
  op.gradient([](Gradient& g) {
    const Cotangent& c = g.cotangent();
    if (!c.is_none())
      g.set(0, c.is_sparse() ? Cotangent::sparse(c.indices, edge_as_bf16(c.values), c.like)
                             : edge_as_bf16(c.dense));
  });
  op.run([](KernelContext& c) { c.set(0, std::move(c.all_inputs()[0])); });
}

}  // namespace troupe
