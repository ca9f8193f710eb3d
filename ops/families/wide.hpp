// What is kept of a fused op for its gradient is in a type wider than f16 and bf16.
#pragma once

#include <troupe/devices/base/dtype.hpp>

namespace troupe::detail {

/// f64 of f64, else f32.
constexpr DType wide(DType t) { return t == DType::f64 ? t : DType::f32; }

}  // namespace troupe::detail
