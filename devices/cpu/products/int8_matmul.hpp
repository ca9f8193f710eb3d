// Products of 8-bit integers in i32: a matmul whose result is i32 and whose operands are not.
#pragma once

#include <troupe/devices/device/primitives.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

/// a: i8 or u8 [m, k]; b: i8 [k, n]; out: i32 [m, n]. Sums wrap.
void int8_matmul(WorkerPool* pool, const MatmulArgs& m);

}  // namespace troupe::cpu
