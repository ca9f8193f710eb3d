// Small work on a device, for tests of devices with streams.
#pragma once

#include <array>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/device.hpp>

namespace troupe::test {

/// x + 1, in f32.
inline ScalarProgram increment() {
  Recorder r(1);
  r.finish(r.input(0) + 1.0);
  return r.typed(std::array{DType::f32});
}

/// The elements on the host, when the stream has got there.
inline Tensor fetch(Device& device, Stream& stream, const Tensor& t) {
  Tensor host = Tensor::empty(t.dtype(), t.shape());
  device.copy_to_host(stream, t, View(host));
  stream.synchronize();
  return host;
}

}  // namespace troupe::test
