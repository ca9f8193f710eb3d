#include <fmt/format.h>

#include <cmath>
#include <complex>
#include <type_traits>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/state.hpp>

namespace troupe {
namespace {

constexpr std::int64_t kEdge = 3;  // elements shown at either end of a longer axis

// The pieces of text around the placeholders.
std::vector<std::string> pieces_of(const std::string& format) {
  std::vector<std::string> pieces(1);
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const char next = i + 1 < format.size() ? format[i + 1] : '\0';
    if ((c == '{' && next == '{') || (c == '}' && next == '}')) {
      pieces.back() += c;
      ++i;
    } else if (c == '{' && next == '}') {
      pieces.emplace_back();
      ++i;
    } else if (c == '{' || c == '}') {
      throw Error(
          Code::invalid_argument,
          fmt::format("'{}' has a lone '{}'; a value's place is {{}}, a brace is written twice",
                      format, c));
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

// x86 makes NaNs with a sign, which has no meaning.
std::string floating_text(double v, int digits) {
  return std::isnan(v) ? "nan" : fmt::format("{:.{}g}", v, digits);
}

std::string element_text(const Tensor& t, std::int64_t i) {
  if (t.dtype() == DType::string) return std::string(t.data<StringRef>()[i].view());
  return visit_dtype(t.dtype(), [&]<class T>(type_tag<T>) -> std::string {
    const T v = t.data<T>()[i];
    if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
    else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>)
      return floating_text(static_cast<float>(v), 4);
    else if constexpr (std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>)
      return fmt::format("{:g}{:+g}i", v.real(), v.imag());
    else if constexpr (std::is_floating_point_v<T>)
      return floating_text(v, std::is_same_v<T, float> ? 7 : 15);
    else
      return fmt::format(
          "{}",
          static_cast<std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>>(v));
  });
}

// The elements from `first` on that `axis` and the axes behind it span.
void append(std::string& out, const Tensor& t, int axis, std::int64_t first) {
  if (axis == t.shape().rank()) {
    out += element_text(t, first);
    return;
  }
  std::int64_t stride = 1;
  for (int a = axis + 1; a < t.shape().rank(); ++a) stride *= t.shape()[a];
  const std::int64_t extent = t.shape()[axis];
  out += '[';
  for (std::int64_t i = 0; i < extent; ++i) {
    if (i > 0) out += ", ";
    if (extent > 2 * kEdge && i == kEdge) {
      out += "..., ";
      i = extent - kEdge;
    }
    append(out, t, axis + 1, first + i * stride);
  }
  out += ']';
}

}  // namespace

TROUPE_OP(Print) {
  op.doc("Prints a line: the format with a value for each {}; yields true.");
  op.inputs(0, -1);
  op.attr<std::string>("format");
  op.effect(Effect::write);
  op.takes_strings();
  op.not_differentiable();
  op.infer([](Inference& c) {
    const auto places =
        static_cast<int>(pieces_of(c.attrs().get<std::string>("format")).size()) - 1;
    if (places != c.inputs())
      throw Error(Code::invalid_argument,
                  fmt::format("'{}' has places for {} values, not {}",
                              c.attrs().get<std::string>("format"), places, c.inputs()));
    c.output(DType::boolean, Shape{});
  });
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([state = s.state,
                        pieces = pieces_of(s.attrs.get<std::string>("format"))](KernelContext& c) {
      std::string line = pieces[0];
      for (int i = 0; i < c.inputs(); ++i) {
        append(line, c.input(i), 0, 0);
        line += pieces[static_cast<std::size_t>(i) + 1];
      }
      static_cast<ConsoleState&>(*state).print(line);
      c.set(0, Tensor::scalar(true));
    });
  });
}

}  // namespace troupe
