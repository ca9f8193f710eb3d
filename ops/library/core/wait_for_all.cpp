#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

TROUPE_OP(WaitForAll) {
  op.doc("The inputs, unchanged, once all of them have arrived.");
  op.inputs(1, -1);
  op.takes_strings();
  op.infer([](Inference& c) {
    for (int i = 0; i < c.inputs(); ++i) c.output(c.input(i));
  });
  op.gradient([](Gradient& g) {
    for (int i = 0; i < g.inputs(); ++i) g.set(i, g.cotangent(i));
  });
  op.run([](KernelContext& c) {
    for (int i = 0; i < c.inputs(); ++i)
      c.set(i, std::move(c.all_inputs()[static_cast<std::size_t>(i)]));
  });
}

}  // namespace troupe
