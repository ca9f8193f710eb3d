// Compiled scalar programs of the fake runtime: the CPU's pointwise primitive on the bytes of a
// launch's argument. programs_test runs the printed text itself.
#include <cstring>

#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cuda/programs/compiled.hpp>
#include <troupe/test/support/cuda/fake_cuda.hpp>
#include <troupe/test/support/cuda/host_work.hpp>

namespace troupe::cuda {
namespace {

class HostProgram final : public CompiledProgram {
 public:
  HostProgram(const ScalarProgram& program, ProgramForm form)
      : program_(std::make_shared<ScalarProgram>(program)), form_(std::move(form)) {}

  cudaError_t launch(cudaStream_t stream, unsigned, unsigned,
                     ProgramArguments& arguments) const override {
    return fake_cuda::enqueue(
        stream, [program = program_, form = form_, mine = arguments] { run(*program, form, mine); },
        "a scalar program");
  }

 private:
  // Calls f with the offset in elements of each element of an operand, in row-major order.
  template <class F>
  static void walk(const ProgramForm& form, const ProgramArguments& a, const std::int64_t* stride,
                   F f) {
    for (std::int64_t i = 0; i < a.elements(); ++i) {
      std::int64_t rest = i, offset = 0;
      for (int axis = form.axes - 1; axis >= 0; --axis) {
        offset += rest % a.extent(axis) * stride[axis];
        rest /= a.extent(axis);
      }
      f(i, offset);
    }
  }

  static void run(const ScalarProgram& program, const ProgramForm& form,
                  const ProgramArguments& a) {
    const cpu::CpuPrimitives cpu(nullptr);
    Now now;
    const Shape shape{a.elements()};
    std::vector<Tensor> dense;
    std::vector<ConstView> in;
    std::vector<View> out;
    for (std::size_t k = 0; k < program.inputs.size(); ++k) {
      const DType dtype = program.inputs[k];
      const StridedProgramInput input = a.input(k);
      const std::size_t bytes = size_of(dtype);
      if (form.by_value[k]) {
        Tensor scalar = Tensor::scalar_as(dtype, 0);
        std::memcpy(scalar.raw_mutable(), input.value, bytes);
        in.emplace_back(scalar);
      } else if (form.is_flat) {
        in.emplace_back(input.data, dtype, shape);
      } else {
        dense.push_back(Tensor::empty(dtype, shape));
        auto* const to = static_cast<std::byte*>(dense.back().raw_mutable());
        const auto* const from = static_cast<const std::byte*>(input.data);
        walk(form, a, input.stride, [&](std::int64_t i, std::int64_t offset) {
          std::memcpy(to + static_cast<std::size_t>(i) * bytes,
                      from + offset * static_cast<std::int64_t>(bytes), bytes);
        });
        in.emplace_back(to, dtype, shape);
      }
    }
    // Through memory of their own: a result may lie in an input's buffer.
    std::vector<Tensor> results;
    for (std::size_t k = 0; k < program.results.size(); ++k) {
      results.push_back(Tensor::empty(program.result_type(static_cast<int>(k)), shape));
      out.emplace_back(results.back().raw_mutable(), results.back().dtype(), shape);
    }
    cpu.pointwise(now, program, in, out);
    for (std::size_t k = 0; k < results.size(); ++k) {
      const std::size_t bytes = size_of(results[k].dtype());
      const StridedProgramResult result = a.result(k);
      const auto* const from = static_cast<const std::byte*>(results[k].raw());
      auto* const to = static_cast<std::byte*>(result.data);
      if (form.is_flat) {
        std::memcpy(to, from, results[k].bytes());
        continue;
      }
      walk(form, a, result.stride, [&](std::int64_t i, std::int64_t offset) {
        std::memcpy(to + offset * static_cast<std::int64_t>(bytes),
                    from + static_cast<std::size_t>(i) * bytes, bytes);
      });
    }
  }

  const std::shared_ptr<const ScalarProgram> program_;
  const ProgramForm form_;
};

}  // namespace

std::shared_ptr<const CompiledProgram> compile_program(ProgramCache&, const ScalarProgram& program,
                                                       const ProgramForm& form) {
  return std::make_shared<HostProgram>(program, form);
}

}  // namespace troupe::cuda
