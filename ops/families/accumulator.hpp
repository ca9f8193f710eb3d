// The dtype, wider than f16 and bf16, of values that a fused op stores for its gradient.
#pragma once

#include <troupe/devices/base/dtype.hpp>

namespace troupe::detail {

/// Returns f64 for f64, else f32.
constexpr DType accumulator_dtype(DType t) { return t == DType::f64 ? t : DType::f32; }

}  // namespace troupe::detail
