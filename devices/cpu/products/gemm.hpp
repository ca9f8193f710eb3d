// One product of two matrices, on the calling thread.
#pragma once

#include <troupe/devices/cpu/level.hpp>

namespace troupe::cpu {

/// c = a b; each of a and b has rows or columns that lie together. Not for f16 and bf16.
void gemm(DType type, const GemmCall& g);

}  // namespace troupe::cpu
