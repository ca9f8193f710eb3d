// f16 and bf16 are stored only: kernels compute on floats.
#pragma once

#include <troupe/devices/primitives.hpp>

namespace troupe::cpu {

/// The elements of an f16 or bf16 tensor as floats, in a buffer of their own.
Ref<Buffer> as_floats(const ConstView& v);
/// out = the floats, rounded.
void from_floats(const float* floats, const View& out);

}  // namespace troupe::cpu
