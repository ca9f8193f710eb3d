#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {
namespace {

// The result of the program that is reduced, the reduction, and whether the result is stored too.
struct Reduced {
  explicit Reduced(const Attrs& attrs)
      : which(static_cast<std::size_t>(attrs.get<std::int64_t>("reduced"))),
        kind(static_cast<Reduction>(attrs.get<std::int64_t>("reduction"))),
        is_stored(attrs.get<bool>("stored")), axes(attrs.get<std::vector<std::int64_t>>("axes")),
        keep_dims(attrs.get<bool>("keep_dims")) {}

  std::size_t which;
  Reduction kind;
  bool is_stored;
  std::vector<std::int64_t> axes;
  bool keep_dims;
};

class FusedReduceKernel final : public Kernel {
 public:
  FusedReduceKernel(const Attrs& attrs, DType out)
      : reduced_(attrs), out_(out),
        program_(static_cast<const ProgramAttr&>(
                     *attrs.get<std::shared_ptr<const AttrObject>>("program"))
                     .program) {}

  void run(KernelContext& c) override {
    const Shape shape = shape_of_inputs(c);
    std::vector<ConstView> in;
    in.reserve(static_cast<std::size_t>(c.inputs()));
    for (int i = 0; i < c.inputs(); ++i) in.emplace_back(c.input(i));
    std::vector<View> results;
    results.reserve(program_->results.size());
    int outputs = 0;
    for (std::size_t k = 0; k < program_->results.size(); ++k) {
      const DType dtype = program_->result_type(static_cast<int>(k));
      if (k == reduced_.which && !reduced_.is_stored) {
        results.emplace_back(nullptr, dtype, shape);
        continue;
      }
      Tensor made = allocate_result(c, dtype, shape);
      results.emplace_back(made);
      c.set(++outputs, std::move(made));
    }
    const std::uint32_t axes = reduced_axes(reduced_.axes, shape.rank());
    Tensor out = c.allocate(out_, reduced_shape(shape, axes, reduced_.keep_dims));
    c.primitives().pointwise_reduce(
        c.stream(), {program_.get(), in, results, reduced_.which, reduced_.kind, View(out), axes});
    c.set(0, std::move(out));
  }

 private:
  const Reduced reduced_;
  const DType out_;
  const std::shared_ptr<const ScalarProgram> program_;
};

}  // namespace

TROUPE_OP(FusedReduce) {
  op.doc(
      "Fused pointwise operations and a reduction of one result: the reduction first, then the "
      "results with other readers; made by a pass.");
  op.inputs(1, -1);
  op.attr<std::shared_ptr<const AttrObject>>("program");
  op.attr<std::int64_t>("reduced");
  op.attr<std::int64_t>("reduction");
  op.attr<bool>("stored");
  op.attr<std::vector<std::int64_t>>("axes");
  op.attr<bool>("keep_dims");
  op.not_differentiable();  // differentiation happens before fusion
  op.infer([](Inference& c) {
    const ScalarProgram& program = program_of(c.attrs());
    const std::int64_t which = c.attrs().get<std::int64_t>("reduced"),
                       kind = c.attrs().get<std::int64_t>("reduction");
    c.require(which >= 0 && which < static_cast<std::int64_t>(program.results.size()),
              "its program has no such result");
    c.require(kind >= 0 && kind <= static_cast<std::int64_t>(Reduction::logsumexp),
              "there is no such reduction");
    Shape shape = c.shape(0);
    for (int i = 1; i < c.inputs(); ++i) shape = broadcast(shape, c.shape(i));
    c.output(reduced_spec(c, static_cast<Reduction>(kind),
                          {program.result_type(static_cast<int>(which)), shape}));
    for (std::int64_t k = 0; k < static_cast<std::int64_t>(program.results.size()); ++k)
      if (k != which || c.attrs().get<bool>("stored"))
        c.output(program.result_type(static_cast<int>(k)), shape);
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return std::make_unique<FusedReduceKernel>(s.attrs, s.output_types[0]);
  });
}

}  // namespace troupe
