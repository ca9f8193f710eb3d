// f32 convolutions at few positions and all of f64 in one group, as matrix products: each
// position's window becomes a row, zeros for padding, and the filter is a matrix in place. oneDNN's
// own kernels require the filter in an order of their own. With few positions that costs more than
// the arithmetic: a filter of 512 x 3 x 3 x 512 at 32 positions took 12 ms a step to reorder and 16
// to differentiate, against 3.
#pragma once

#include <troupe/devices/device/window.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe::detail {
class WorkerPool;
}

namespace troupe::cpu {

class CpuPrimitives;

/// Decides by the shape alone. For f32 and f64.
bool is_better_as_product(const ConvolveArgs& c);
/// Nothing in `c` is empty, and there is one group.
void convolve_as_product(const CpuPrimitives& cpu, Stream& stream, WorkerPool* pool,
                         const ConvolveArgs& c);

}  // namespace troupe::cpu
