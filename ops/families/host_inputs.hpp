// Kernels that read integers on the host: an index, extents. On a stream device these may have been
// computed in its memory; then the firing continues when they have been copied.
//
//   op.kernel([](const KernelSetup&) {
//     return with_host_inputs({1}, [](KernelContext& c) { ... integer_of(c.input(1)) ... });
//   });
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <troupe/devices/device/kernel.hpp>

namespace troupe::detail {

/// `body` gets the inputs named in `which` (if they exist) on the host. On a stream device it may
/// run on a thread of the device, with a stream of its own: it enqueues and does not block.
std::unique_ptr<Kernel> with_host_inputs(std::vector<int> which,
                                         std::function<void(KernelContext&)> body);

/// The elements of an i32 or i64 tensor on the host.
std::vector<std::int64_t> integers_of(const Tensor& t);
/// The only one; throws invalid_argument if there are more.
std::int64_t integer_of(const Tensor& t);

}  // namespace troupe::detail
