#include <troupe/devices/cuda/programs/print.hpp>

#include <cstring>

#include <fmt/format.h>

#include <troupe/cuda_prelude.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/cuda/programs/hash.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::cuda {
namespace {

std::string type_in_cuda(DType type) {
  return type == DType::boolean ? "boolean" : std::string(name_of(type));
}

// By the bits that the CPU device takes, so that no digit is lost on the way through text.
std::string constant_in_cuda(DType type, double value) {
  const Tensor constant = Tensor::scalar_as(type, value);
  const auto bits = [&]<class T>(T word, std::size_t at = 0) {
    std::memcpy(&word, static_cast<const std::byte*>(constant.raw()) + at, sizeof word);
    return word;
  };
  constexpr std::uint32_t four{};
  constexpr std::uint64_t eight{};
  switch (type) {
    case DType::f16:
    case DType::bf16: return fmt::format("{}{{{:#x}}}", name_of(type), bits(std::uint16_t{}));
    case DType::f32: return fmt::format("bits_to_f32({:#x}u)", bits(four));
    case DType::f64: return fmt::format("bits_to_f64({:#x}ull)", bits(eight));
    case DType::c64:
      return fmt::format("c64{{bits_to_f32({:#x}u), bits_to_f32({:#x}u)}}", bits(four),
                         bits(four, 4));
    case DType::c128:
      return fmt::format("c128{{bits_to_f64({:#x}ull), bits_to_f64({:#x}ull)}}", bits(eight),
                         bits(eight, 8));
    default: break;
  }
  std::uint64_t word = 0;  // little-endian: the low bytes
  std::memcpy(&word, constant.raw(), size_of(type));
  return fmt::format("{}({:#x}ull)", type_in_cuda(type), word);
}

// `$` stands for the kernel's name, which is known last.
class CudaPrinter {
 public:
  CudaPrinter(const ScalarProgram& program, const ProgramForm& form)
      : program_(program), form_(form), is_read_(program.inputs.size(), false) {
    if (form.by_value.size() != program.inputs.size() || form.axes < 1 || form.axes > kMaxAxes)
      throw Error(Code::internal,
                  fmt::format("a program of {} inputs was printed for {} inputs and {} axes",
                              program.inputs.size(), form.by_value.size(), form.axes));
    for (const ScalarInstruction& i : program.code)
      if (i.op == ScalarOp::input) is_read_[static_cast<std::size_t>(i.operand[0])] = true;
  }

  std::string text() {
    print_arguments();
    print_element();
    text_ += "TROUPE_KERNEL($, $_arguments) {\n";
    text_ += form_.is_wide ? "  typedef u64 index;\n  typedef i64 offset;\n"
                           : "  typedef u32 index;\n  typedef i32 offset;\n";
    text_ +=
        "  const index n = index(a.n), step = index(gridDim.x) * blockDim.x;\n"
        "  const index first = index(blockIdx.x) * blockDim.x + threadIdx.x;\n";
    if (!form_.is_flat) print_strided();
    else if (form_.is_vectorized) print_vectorized();
    else print_flat("first");
    text_ += "}\n";
    return std::move(text_);
  }

 private:
  std::size_t inputs() const { return program_.inputs.size(); }
  std::size_t results() const { return program_.results.size(); }
  std::string input_type(std::size_t i) const { return type_in_cuda(program_.inputs[i]); }
  std::string result_type(std::size_t i) const {
    return type_in_cuda(program_.result_type(static_cast<int>(i)));
  }
  template <class... A>
  void line(fmt::format_string<A...> format, A&&... arguments) {
    text_ += fmt::format(format, std::forward<A>(arguments)...);
    text_ += '\n';
  }

  void print_arguments() {
    text_ += "struct $_arguments {\n  i64 n;\n";
    if (!form_.is_flat) line("  i64 extent[{}];", kMaxAxes);
    for (std::size_t i = 0; i < inputs(); ++i)
      line("  {}Input<{}> in{};", form_.is_flat ? "" : "Strided", input_type(i), i);
    for (std::size_t i = 0; i < results(); ++i) {
      if (form_.is_flat) line("  {}* out{};", result_type(i), i);
      else line("  StridedResult<{}> out{};", result_type(i), i);
    }
    text_ += "};\n";
  }

  // One element of each result, y0 .., from one of each input, x0 ..
  void print_element() {
    std::string comma;
    text_ += "TROUPE_FN void $_element(";
    for (std::size_t i = 0; i < inputs(); ++i, comma = ", ")
      text_ += fmt::format("{}{} x{}", comma, input_type(i), i);
    for (std::size_t i = 0; i < results(); ++i, comma = ", ")
      text_ += fmt::format("{}{}& y{}", comma, result_type(i), i);
    text_ += ") {\n";
    for (std::size_t k = 0; k < program_.code.size(); ++k)
      line("  const {} v{} = {};", type_in_cuda(program_.code[k].type), k,
           value_of(program_.code[k]));
    for (std::size_t i = 0; i < results(); ++i) line("  y{} = v{};", i, program_.results[i]);
    text_ += "}\n";
  }

  std::string value_of(const ScalarInstruction& i) const {
    if (i.op == ScalarOp::input) return fmt::format("x{}", i.operand[0]);
    if (i.op == ScalarOp::constant) return constant_in_cuda(i.type, i.constant);
    std::string value = fmt::format("v{}", i.operand[0]);
    if (i.op == ScalarOp::cast) {
      const DType from = program_.code[static_cast<std::size_t>(i.operand[0])].type;
      if (i.type == DType::boolean) return fmt::format("op_to_bool({})", value);
      if (from == DType::boolean) value = fmt::format("u8({} != 0)", value);
      return fmt::format("op_cast<{}>({})", type_in_cuda(i.type), value);
    }
    for (int o = 1; o < arity(i.op); ++o) value += fmt::format(", v{}", i.operand[o]);
    return fmt::format("op_{}({})", name_of(i.op), value);
  }

  // Every operand is read before a result is written, which may lie in an operand's place.
  template <class In>
  void print_call(std::string_view indent, In in, std::string_view result) {
    std::string comma;
    text_ += fmt::format("{}$_element(", indent);
    for (std::size_t i = 0; i < inputs(); ++i, comma = ", ")
      text_ += comma + (form_.by_value[i] ? fmt::format("a.in{}.value", i)
                        : is_read_[i]     ? in(i)
                                          : input_type(i) + "{}");
    for (std::size_t i = 0; i < results(); ++i, comma = ", ")
      text_ += comma + fmt::format(fmt::runtime(result), i);
    text_ += ");\n";
  }
  void print_results() {
    for (std::size_t i = 0; i < results(); ++i) line("    {} y{};", result_type(i), i);
  }

  void print_flat(std::string_view from) {
    line("  for (index i = {}; i < n; i += step) {{", from);
    print_results();
    print_call(
        "    ", [](std::size_t i) { return fmt::format("a.in{}.data[i]", i); }, "y{}");
    for (std::size_t i = 0; i < results(); ++i) line("    a.out{0}[i] = y{0};", i);
    text_ += "  }\n";
  }

  void print_vectorized() {
    text_ += "  for (index i = first; i < n / 4; i += step) {\n";
    for (std::size_t i = 0; i < inputs(); ++i)
      if (!form_.by_value[i] && is_read_[i])
        line("    const Four<{0}> x{1} = ((const Four<{0}>*)a.in{1}.data)[i];", input_type(i), i);
    for (std::size_t i = 0; i < results(); ++i) line("    Four<{}> y{};", result_type(i), i);
    text_ += "#pragma unroll\n    for (int k = 0; k < 4; ++k)\n";
    print_call(
        "      ", [](std::size_t i) { return fmt::format("x{}.at[k]", i); }, "y{}.at[k]");
    for (std::size_t i = 0; i < results(); ++i)
      line("    ((Four<{0}>*)a.out{1})[i] = y{1};", result_type(i), i);
    text_ += "  }\n";
    print_flat("n / 4 * 4 + first");
  }

  void print_strided() {
    text_ += "  for (index i = first; i < n; i += step) {\n    index rest = i, at;\n";
    const auto each = [this](auto f) {
      for (std::size_t i = 0; i < inputs(); ++i)
        if (!form_.by_value[i] && is_read_[i]) f(fmt::format("in{}", i));
      for (std::size_t i = 0; i < results(); ++i) f(fmt::format("out{}", i));
    };
    each([this](const std::string& operand) { line("    offset {}_at = 0;", operand); });
    for (int axis = form_.axes - 1; axis >= 0; --axis) {
      if (axis > 0)
        line("    at = rest % index(a.extent[{0}]), rest = rest / index(a.extent[{0}]);", axis);
      else text_ += "    at = rest;\n";
      each([&](const std::string& operand) {
        line("    {0}_at += offset(at) * offset(a.{0}.stride[{1}]);", operand, axis);
      });
    }
    print_results();
    print_call(
        "    ", [](std::size_t i) { return fmt::format("a.in{0}.data[in{0}_at]", i); }, "y{}");
    for (std::size_t i = 0; i < results(); ++i) line("    a.out{0}.data[out{0}_at] = y{0};", i);
    text_ += "  }\n";
  }

  const ScalarProgram& program_;
  const ProgramForm& form_;
  std::vector<bool> is_read_;
  std::string text_;
};

}  // namespace

PrintedProgram print_program(const ScalarProgram& program, const ProgramForm& form) {
  const std::string nameless = CudaPrinter(program, form).text();
  PrintedProgram printed{"troupe_" + hex_of(hash_of(nameless)), {}};
  for (const char c : nameless)
    if (c == '$') printed.text += printed.name;
    else printed.text += c;
  return printed;
}

std::string_view prelude() { return {kPreludeText, sizeof kPreludeText - 1}; }

}  // namespace troupe::cuda
