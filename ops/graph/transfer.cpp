#include <troupe/ops/graph/transfer.hpp>

namespace troupe {

void copy_to_device(Tensor& value, Device& device, Stream& stream) {
  if (device.is_synchronous() || value.is_inline() || value.device() == &device ||
      value.dtype() == DType::string)
    return;
  if (!value.is_on_host())
    throw Error(Code::internal, "a tensor of another device reached " + device.name());
  Tensor there = device.empty(value.dtype(), value.shape());
  device.copy_from_host(stream, value, View(there));
  value = std::move(there);
}

}  // namespace troupe
