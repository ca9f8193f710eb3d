// f16 and bf16 are stored only: kernels compute on floats.
#pragma once

#include <troupe/devices/device/primitives.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe::cpu {

constexpr bool is_stored_only(DType t) { return t == DType::f16 || t == DType::bf16; }

/// The elements of an f16 or bf16 tensor as floats, in a buffer of their own.
Ref<Buffer> as_floats(const ConstView& v);
/// out = the floats, rounded.
void from_floats(const float* floats, const View& out);

/// A tensor of f16 or bf16 as floats.
struct Widened {
  Ref<Buffer> buffer;
  ConstView view;
  explicit Widened(const ConstView& v)
      : buffer(as_floats(v)), view(buffer->data(), DType::f32, v.shape) {}
};
/// A float buffer for a narrower result until it is stored.
struct Narrowed {
  Ref<Buffer> buffer;
  View to, view;
  explicit Narrowed(const View& v)
      : buffer(Buffer::allocate(host_allocator(),
                                static_cast<std::size_t>(v.elements()) * sizeof(float) + 64)),
        to(v), view(buffer->data(), DType::f32, v.shape) {}
  void store() const { from_floats(static_cast<const float*>(buffer->data()), to); }
};

}  // namespace troupe::cpu
