#include <troupe/devices/base/representable.hpp>

#include <cmath>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::detail {

bool is_representable(DType t, double value) {
  if (t == DType::boolean) return value == 0 || value == 1;
  if (!is_integer(t)) return true;
  return visit_dtype(t, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_integral_v<T>) {
      // The highest of 64 bits is no double; the next power of two is.
      constexpr double below = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2;
      return std::trunc(value) == value &&
             value >= static_cast<double>(std::numeric_limits<T>::lowest()) && value < below;
    } else {
      return true;
    }
  });
}

void require_representable(DType t, double value, std::string_view what) {
  if (!is_representable(t, value))
    throw Error(Code::invalid_argument,
                fmt::format("{} is {:g}, which no {} is", what, value, name_of(t)));
}

}  // namespace troupe::detail
