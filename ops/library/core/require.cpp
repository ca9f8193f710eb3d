#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

// Checks a function's requirement on values that are known only at run time. The condition is
// computed on the values' device and read on the host.
TROUPE_OP(Require) {
  op.doc("The first input, refused, saying `what`, unless the second, a bool, is true.");
  op.inputs(2);
  op.attr<std::string>("what", "the condition does not hold");
  op.infer([](Inference& c) {
    c.require_dtype(1, DType::boolean, "the condition");
    c.require_rank(1, 0, "the condition");
    c.output(c.input(0));
  });
  op.gradient([](Gradient& g) { g.set(0, g.cotangent()); });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1}, [what = s.attrs.get<std::string>("what")](KernelContext& c) {
      if (c.input(1).elements() != 1 || !c.input(1).item<bool>())
        throw Error(Code::invalid_argument, what);
      c.set(0, c.take(0));
    });
  });
}

}  // namespace troupe
