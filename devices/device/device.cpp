#include <troupe/devices/device/device.hpp>

#include <fmt/format.h>

#include <troupe/devices/device/swap.hpp>

namespace troupe::detail {

Tensor Device::empty(DType dtype, const Shape& shape) {
  if (is_synchronous()) return Tensor::empty(dtype, shape);
  Swapper* const swaps = swapper();
  const std::size_t bytes =
      shape.is_known() ? static_cast<std::size_t>(shape.elements()) * size_of(dtype) : 0;
  for (;;) {
    if (swaps && !allocator().has_room(bytes)) swaps->make_room(bytes);
    try {
      return Tensor::empty_on(this, allocator(), dtype, shape);
    } catch (const Error& e) {
      if (e.code() != Code::resource_exhausted) throw;
      if (swaps && swaps->make_room(bytes)) continue;  // another thread was faster
      throw Error(e.code(),
                  fmt::format("{} on {}; {}", e.what(), name(),
                              swaps ? swaps->advice() : "swapping of saved values is off"));
    }
  }
}

DeviceCounters Device::counters() {
  Allocator& memory = allocator();
  const AllocatorCounters now = memory.counters();
  Swapper* const swaps = swapper();
  return {.in_use = now.in_use,
          .peak = now.peak,
          .reserved = now.in_use + now.cached,
          .free = memory.available(),
          .limit = now.limit,
          .swapped = swaps ? swaps->counters().on_host : 0,
          .queues = {}};
}

Tensor Device::host_empty(DType dtype, const Shape& shape) {
  if (&host_memory() == &host_allocator()) return Tensor::empty(dtype, shape);
  const auto bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  return Tensor::on_buffer(Buffer::allocate(host_memory(), bytes), 0, nullptr, dtype, shape);
}

}  // namespace troupe::detail
