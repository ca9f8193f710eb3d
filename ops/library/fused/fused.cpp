#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {

TROUPE_OP(Fused) {
  op.doc("Pointwise operations of one shape in one node; made by fusion, never by a user.");
  op.inputs(1, -1);
  op.attr<std::shared_ptr<const AttrObject>>("program");
  op.not_differentiable();  // differentiation happens before fusion
  op.infer([](Inference& c) {
    Shape shape = c.shape(0);
    for (int i = 1; i < c.inputs(); ++i) shape = broadcast(shape, c.shape(i));
    const ScalarProgram& program = program_of(c.attrs());
    for (std::size_t k = 0; k < program.results.size(); ++k)
      c.output(program.result_type(static_cast<int>(k)), shape);
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    auto object = s.attrs.get<std::shared_ptr<const AttrObject>>("program");
    return make_pointwise_kernel(static_cast<const ProgramAttr&>(*object).program);
  });
}

}  // namespace troupe
