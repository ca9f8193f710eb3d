#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// x itself, under a name of its own.
TROUPE_DSL(Expr identity(Operand x))
Expr identity(Operand x) { return bind1("Identity", {x}); }

TROUPE_OP(Identity) {
  op.doc("The input, unchanged.");
  op.inputs(1);
  op.takes_lists();
  op.takes_strings();
  op.infer([](Inference& c) { c.output(c.input(0)); });
  op.gradient([](Gradient& g) { g.set(0, g.cotangent()); });
  op.run([](KernelContext& c) { c.set(0, std::move(c.all_inputs()[0])); });
}

}  // namespace troupe
