#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/families/slices.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {
namespace {

class SlicesKernel final : public Kernel {
 public:
  explicit SlicesKernel(const Attrs& attrs) : rows_(attrs) {}

  void run(KernelContext& c) override {
    const auto n = static_cast<std::size_t>(c.inputs());
    ConstView in[SlicedRows::kMost];
    for (std::size_t i = 0; i < n; ++i) in[i] = ConstView(c.input(static_cast<int>(i)));
    const Shape shape = rows_.shape_of({in, n});
    View out[SlicedRows::kMost];
    for (std::size_t o = 0; o < rows_.output_count(); ++o) {
      Tensor made = c.allocate(rows_.dtype_of(o), rows_.of_output(o, shape));
      out[o] = View(made);
      c.set(static_cast<int>(o), std::move(made));
    }
    rows_.run(c.primitives(), c.stream(), shape, {in, n}, {out, rows_.output_count()});
  }

 private:
  const SlicedRows rows_;
};

}  // namespace

TROUPE_OP(FusedSlices) {
  op.doc(
      "Fused pointwise operations whose operands are slices of the inputs' last axis, and whose "
      "results stand beside each other in the outputs; made by a pass.");
  op.inputs(1, -1);
  op.attr<std::shared_ptr<const AttrObject>>("program");
  op.attr<std::int64_t>("columns");
  op.attr<std::vector<std::int64_t>>("starts");
  op.attr<std::vector<std::int64_t>>("outputs");
  op.not_differentiable();  // differentiation happens before fusion
  op.infer([](Inference& c) {
    const SlicedRows slices(c.attrs());
    const ScalarProgram& program = slices.program();
    c.require(slices.columns() > 0 &&
                  slices.starts().size() == static_cast<std::size_t>(c.inputs()) &&
                  slices.outputs().size() == program.results.size(),
              "its slices do not fit its program");
    Shape shape = slices.seen(0, c.shape(0));
    for (int i = 1; i < c.inputs(); ++i)
      shape = broadcast(shape, slices.seen(static_cast<std::size_t>(i), c.shape(i)));
    for (std::size_t o = 0; o < slices.output_count(); ++o)
      for (std::size_t k = 0; k < slices.outputs().size(); ++k)
        if (slices.outputs()[k] == static_cast<std::int64_t>(o)) {
          c.output(program.result_type(static_cast<int>(k)), slices.of_output(o, shape));
          break;
        }
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return std::make_unique<SlicesKernel>(s.attrs);
  });
}

}  // namespace troupe
