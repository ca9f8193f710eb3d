// Moving tensors between the host and a device.
#pragma once

#include <troupe/devices/device/device.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Replaces a host tensor by its copy on `device`, in `stream`'s order. Inline scalars stay: every
/// device takes them by value. Nothing happens if it is there already.
/// Throws internal for a tensor of another device than the host.
void copy_to_device(Tensor& value, Device& device, Stream& stream);

}  // namespace troupe
