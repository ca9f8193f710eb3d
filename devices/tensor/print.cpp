// Tensors on streams.
#include <troupe/devices/tensor/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe {
namespace {

constexpr std::int64_t kMostElements = 1000, kEdge = 3;

template <class T>
std::string real_text(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(value) ? "nan" : fmt::format("{}", value);
  else return fmt::format("{}", value);
}

std::string element_text(const Tensor& t, std::int64_t i) {
  if (t.dtype() == DType::string) return fmt::format("\"{}\"", t.data<StringRef>()[i].view());
  return visit_dtype(t.dtype(), [&]<class T>(type_tag<T>) -> std::string {
    const T v = t.data<T>()[i];
    if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
    else if constexpr (std::is_same_v<T, std::complex<float>> ||
                       std::is_same_v<T, std::complex<double>>)
      return fmt::format("{}{}{}i", real_text(v.real()),
                         std::signbit(v.imag()) || std::isnan(v.imag()) ? "" : "+",
                         real_text(v.imag()));
    else if constexpr (std::is_integral_v<T>) return fmt::format("{}", +v);
    else if constexpr (std::is_same_v<T, double>) return real_text(v);
    else return real_text(static_cast<float>(t.at(i)));
  });
}

// The elements of one tensor, and which of them are left out.
class Rows {
 public:
  explicit Rows(const Tensor& t)
      : t_(t), is_cut_(std::max(t.elements(), longest(t.shape())) > kMostElements) {
    if (t.rank() > 1)
      visit(0, 0, [&](std::int64_t i) { width_ = std::max(width_, element_text(t_, i).size()); });
  }
  std::string text() { return of_axis(0, 0); }

 private:
  static std::int64_t longest(const Shape& shape) {
    return shape.rank() == 0 ? 1 : *std::max_element(shape.begin(), shape.end());
  }
  // The positions along an axis; -1 stands for omitted ones.
  std::vector<std::int64_t> places(int axis) const {
    const std::int64_t n = t_.shape()[axis];
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < n; ++i) {
      if (is_cut_ && n > 2 * kEdge && i == kEdge) {
        out.push_back(-1);
        i = n - kEdge;
      }
      out.push_back(i);
    }
    return out;
  }
  template <class F>
  void visit(int axis, std::int64_t at, F f) const {
    if (axis == t_.rank()) return f(at);
    for (const std::int64_t i : places(axis))
      if (i >= 0) visit(axis + 1, at * t_.shape()[axis] + i, f);
  }
  std::string of_axis(int axis, std::int64_t at) const {
    if (axis == t_.rank()) return fmt::format("{:>{}}", element_text(t_, at), width_);
    const bool is_row = axis == t_.rank() - 1;
    // Matrices of a larger tensor stand apart by an empty line, as in NumPy.
    const std::string between =
        is_row ? ", "
               : "," + std::string(static_cast<std::size_t>(t_.rank() - axis - 1), '\n') +
                     std::string(static_cast<std::size_t>(axis) + 1, ' ');
    std::string out = "[";
    bool is_first = true;
    for (const std::int64_t i : places(axis)) {
      if (!is_first) out += between;
      is_first = false;
      out += i < 0 ? "..." : of_axis(axis + 1, at * t_.shape()[axis] + i);
    }
    return out + "]";
  }

  const Tensor& t_;
  const bool is_cut_;
  std::size_t width_ = 0;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& t) {
  if (!t.has_value()) return out << "nothing";
  out << name_of(t.dtype()) << t.shape().text();
  if (!t.is_on_host()) return out << " on a device";
  return out << (t.rank() > 1 ? "\n" : " ") << Rows(t).text();
}

}  // namespace troupe
