#include <troupe/ops/graph/pointwise.hpp>

#include <algorithm>

#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe::detail {

Shape shape_of_inputs(const KernelContext& c) {
  Shape shape = c.input(0).shape();
  for (int i = 1; i < c.inputs(); ++i)
    if (c.input(i).shape() != shape) shape = broadcast(shape, c.input(i).shape());
  return shape;
}

Tensor allocate_result(KernelContext& c, DType dtype, const Shape& shape) {
  for (int i = 0; i < c.inputs(); ++i) {
    const Tensor& in = c.input(i);
    if (in.kind() == Value::Kind::tensor && in.dtype() == dtype && in.shape() == shape &&
        in.is_sole_holder())
      return c.allocate_over(i, dtype, shape);
  }
  return c.allocate(dtype, shape);
}

namespace {

class PointwiseKernel final : public Kernel {
 public:
  explicit PointwiseKernel(std::shared_ptr<const ScalarProgram> program)
      : program_(std::move(program)) {}

  void run(KernelContext& c) override {
    std::span<Value> in = c.all_inputs();
    const bool has_one_result = program_->results.size() == 1;
    if (has_one_result &&
        std::all_of(in.begin(), in.end(), [](const Value& v) { return v.is_inline(); }))
      evaluate_scalars(*program_, in, c.all_outputs()[0]);
    else if (!has_one_result || !c.device().is_synchronous() ||
             !evaluate_elements(*program_, in, c.all_outputs()[0]))
      run_on_device(c);
  }

  const ScalarProgram* scalar_program() const override {
    return program_->results.size() == 1 ? program_.get() : nullptr;
  }

 private:
  static constexpr int kInline = 16;

  void run_on_device(KernelContext& c) {
    int n = c.inputs();
    const Shape shape = shape_of_inputs(c);
    ConstView few[kInline];
    std::vector<ConstView> many;
    if (n > kInline) many.resize(n);
    ConstView* views = n > kInline ? many.data() : few;
    for (int i = 0; i < n; ++i) views[i] = ConstView(c.input(i));
    View outs[kInline];
    int results = static_cast<int>(program_->results.size());
    for (int k = 0; k < results; ++k) {
      Tensor out = allocate_result(c, program_->result_type(k), shape);
      outs[k] = View(out);
      c.set(k, std::move(out));
    }
    c.primitives().pointwise(c.stream(), *program_, {views, std::size_t(n)},
                             {outs, std::size_t(results)});
  }

  std::shared_ptr<const ScalarProgram> program_;
};

}  // namespace

std::unique_ptr<Kernel> make_pointwise_kernel(std::shared_ptr<const ScalarProgram> program) {
  return std::make_unique<PointwiseKernel>(std::move(program));
}

const ScalarProgram& program_of(const Attrs& attrs) {
  return *static_cast<const ProgramAttr&>(*attrs.get<std::shared_ptr<const AttrObject>>("program"))
              .program;
}

std::shared_ptr<const ScalarProgram> program_of(const Graph& graph, const Node& node) {
  if (node.op->name == "Fused")
    return static_cast<const ProgramAttr&>(
               *node.attrs.get<std::shared_ptr<const AttrObject>>("program"))
        .program;
  DType types[3];
  for (std::size_t i = 0; i < node.inputs.size(); ++i) types[i] = graph.spec(node.inputs[i]).dtype;
  return node.op->pointwise->program({types, node.inputs.size()}, node.attrs);
}

std::vector<std::int16_t> append(ScalarProgram& program, const ScalarProgram& member,
                                 std::span<const std::int16_t> operands) {
  std::vector<std::int16_t> moved, results;
  for (ScalarInstruction i : member.code) {
    if (i.op == ScalarOp::input) {
      moved.push_back(operands[static_cast<std::size_t>(i.operand[0])]);
      continue;
    }
    for (int n = 0; n < arity(i.op); ++n)
      i.operand[static_cast<std::size_t>(n)] =
          moved[static_cast<std::size_t>(i.operand[static_cast<std::size_t>(n)])];
    moved.push_back(static_cast<std::int16_t>(program.code.size()));
    program.code.push_back(i);
  }
  for (std::int16_t r : member.results) results.push_back(moved[static_cast<std::size_t>(r)]);
  return results;
}

std::int16_t append_input(ScalarProgram& program, DType type) {
  ScalarInstruction read{};
  read.op = ScalarOp::input;
  read.type = type;
  read.operand[0] = static_cast<std::int16_t>(program.inputs.size());
  program.inputs.push_back(type);
  program.code.push_back(read);
  return static_cast<std::int16_t>(program.code.size() - 1);
}

}  // namespace troupe::detail
