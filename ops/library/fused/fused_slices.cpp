#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/pointwise.hpp>

namespace troupe {
namespace {

// The columns of each input that the program takes (-1: the whole, broadcast if need be), and the
// output of each of its results, one behind the other.
struct Slices {
  explicit Slices(const Attrs& attrs)
      : columns(attrs.get<std::int64_t>("columns")),
        starts(attrs.get<std::vector<std::int64_t>>("starts")),
        outputs(attrs.get<std::vector<std::int64_t>>("outputs")) {}

  std::size_t count() const {
    return static_cast<std::size_t>(outputs.empty() ? 0 : outputs.back() + 1);
  }
  /// Returns the shape of input i in the program.
  Shape seen(std::size_t i, Shape shape) const {
    if (starts[i] >= 0) shape.set(shape.rank() - 1, columns);
    return shape;
  }
  /// Returns the shape of output o if the program's results have `shape`.
  Shape of_output(std::size_t o, Shape shape) const {
    std::int64_t pieces = 0;
    for (std::int64_t where : outputs) pieces += where == static_cast<std::int64_t>(o);
    shape.set(shape.rank() - 1, pieces * columns);
    return shape;
  }

  std::int64_t columns;
  std::vector<std::int64_t> starts, outputs;
};

class SlicesKernel final : public Kernel {
 public:
  explicit SlicesKernel(const Attrs& attrs)
      : slices_(attrs), program_(static_cast<const ProgramAttr&>(
                                     *attrs.get<std::shared_ptr<const AttrObject>>("program"))
                                     .program) {}

  void run(KernelContext& c) override {
    constexpr std::size_t kMost = 16;
    const auto n = static_cast<std::size_t>(c.inputs()), results = program_->results.size();
    Shape shape = slices_.seen(0, c.input(0).shape());
    for (std::size_t i = 1; i < n; ++i)
      shape = broadcast(shape, slices_.seen(i, c.input(static_cast<int>(i)).shape()));
    ConstRowsView in[kMost];
    const std::int64_t rows = shape.elements() / slices_.columns;
    for (std::size_t i = 0; i < n; ++i)
      in[i] = rows_of(c.input(static_cast<int>(i)), slices_.starts[i], rows);
    View tensors[kMost];
    for (std::size_t o = 0; o < slices_.count(); ++o) {
      Tensor out = c.allocate(dtype_of_output(o), slices_.of_output(o, shape));
      tensors[o] = View(out);
      c.set(static_cast<int>(o), std::move(out));
    }
    RowsView out[kMost];
    std::int64_t used[kMost] = {};
    for (std::size_t k = 0; k < results; ++k) {
      const auto o = static_cast<std::size_t>(slices_.outputs[k]);
      out[k] = {tensors[o], used[o], tensors[o].shape[shape.rank() - 1]};
      used[o] += slices_.columns;
    }
    c.primitives().pointwise_rows(c.stream(), *program_, rows, slices_.columns, {in, n},
                                  {out, results});
  }

 private:
  DType dtype_of_output(std::size_t output) const {
    std::size_t k = 0;
    while (slices_.outputs[k] != static_cast<std::int64_t>(output)) ++k;
    return program_->result_type(static_cast<int>(k));
  }
  // One row of its own is for all rows. The pass lets no other broadcasting through; a program of
  // another node might.
  static ConstRowsView rows_of(const Tensor& t, std::int64_t start, std::int64_t rows) {
    const Shape& s = t.shape();
    const std::int64_t row = s.rank() ? s[s.rank() - 1] : 1;
    const bool is_for_all = t.elements() == row;
    if (!is_for_all && t.elements() != rows * row)
      throw Error(Code::invalid_argument,
                  fmt::format("an input of shape {} has neither one row for all {} nor as many",
                              s.text(), rows));
    return {ConstView(t), std::max<std::int64_t>(start, 0), is_for_all ? 0 : row};
  }

  const Slices slices_;
  const std::shared_ptr<const ScalarProgram> program_;
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
    const Slices slices(c.attrs());
    const ScalarProgram& program = program_of(c.attrs());
    c.require(slices.columns > 0 && slices.starts.size() == static_cast<std::size_t>(c.inputs()) &&
                  slices.outputs.size() == program.results.size(),
              "its slices do not fit its program");
    Shape shape = slices.seen(0, c.shape(0));
    for (int i = 1; i < c.inputs(); ++i)
      shape = broadcast(shape, slices.seen(static_cast<std::size_t>(i), c.shape(i)));
    for (std::size_t o = 0; o < slices.count(); ++o)
      for (std::size_t k = 0; k < slices.outputs.size(); ++k)
        if (slices.outputs[k] == static_cast<std::int64_t>(o)) {
          c.output(program.result_type(static_cast<int>(k)), slices.of_output(o, shape));
          break;
        }
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return std::make_unique<SlicesKernel>(s.attrs);
  });
}

}  // namespace troupe
