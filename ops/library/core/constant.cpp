#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

TROUPE_OP(Constant) {
  op.doc("A tensor fixed when the graph is built.");
  op.inputs(0);
  op.attr<Tensor>("value");
  op.infer([](Inference& c) {
    const Tensor& t = c.attrs().get<Tensor>("value");
    c.require(t.has_value(), "the tensor is an empty handle");
    c.output(t.dtype(), t.shape());
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    // A stream device gets its copy once, when the kernel is made.
    Tensor value = s.attrs.get<Tensor>("value");
    if (!s.device.is_synchronous() && !value.is_inline() && value.dtype() != DType::string) {
      Tensor there = s.device.empty(value.dtype(), value.shape());
      auto stream = s.device.compute_stream();
      s.device.copy_from_host(*stream, value, View(there));
      stream->synchronize();
      value = there;
    }
    return make_kernel([value](KernelContext& c) { c.set(0, value); });
  });
}

}  // namespace troupe
