#include <troupe/devices/cpu/as_floats.hpp>

#include <cstring>

#include <troupe/devices/cpu/level.hpp>

namespace troupe::cpu {

Ref<Buffer> as_floats(const ConstView& v) {
  Ref<Buffer> floats = Buffer::allocate(
      host_allocator(), static_cast<std::size_t>(v.elements()) * sizeof(float) + 64);
  const LevelKernels& k = level_kernels();
  TileFunction cast = k.cast[int(DType::f32)][int(v.dtype)];
  std::int64_t n = v.elements(), whole = n / kPad * kPad;
  cast(floats->data(), v.data(), nullptr, nullptr, whole);
  std::uint16_t rest[kPad] = {};
  if (n > whole) {
    std::memcpy(rest, static_cast<const std::uint16_t*>(v.data()) + whole,
                static_cast<std::size_t>(n - whole) * 2);
    cast(static_cast<float*>(floats->data()) + whole, rest, nullptr, nullptr, n - whole);
  }
  return floats;
}

void from_floats(const float* floats, const View& out) {
  TileFunction cast = level_kernels().cast[int(out.dtype)][int(DType::f32)];
  std::int64_t n = out.elements(), whole = n / kPad * kPad;
  cast(out.data, floats, nullptr, nullptr, whole);
  std::uint16_t rest[kPad];
  if (n > whole) {
    float tail[kPad] = {};
    std::memcpy(tail, floats + whole, static_cast<std::size_t>(n - whole) * 4);
    cast(rest, tail, nullptr, nullptr, n - whole);
    std::memcpy(static_cast<std::uint16_t*>(out.data) + whole, rest,
                static_cast<std::size_t>(n - whole) * 2);
  }
}

}  // namespace troupe::cpu
