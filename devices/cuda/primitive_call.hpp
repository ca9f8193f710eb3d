// One call of a primitive: its stream, checks of launches, and temporary memory.
//
//   PrimitiveCall call(device_, index_, stream);
//   if (call.skips()) return;
//   call.check(cuda::fill(call.stream(), ...), "filling");
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include <troupe/devices/cuda/kernels/kernels.hpp>
#include <troupe/devices/cuda/runtime/call.hpp>
#include <troupe/devices/cuda/stream.hpp>
#include <troupe/devices/device/primitives.hpp>

namespace troupe::cuda {

/// Temporary tensors go back to the allocator when the call ends: memory is reused in the compute
/// stream's order, behind this call's work.
class PrimitiveCall {
 public:
  /// `name`: of the primitive, for traces.
  PrimitiveCall(Device& device, int index, Stream& stream, const char* name = __builtin_FUNCTION())
      : on_(index), device_(device), stream_(CudaStream::of(stream)), piece_(stream_, name, false) {
    if (is_held()) Stretches::attribute(&stream_.origin());
  }

  bool skips() const { return stream_.skips(); }
  /// For launches (kernels/launch.hpp), which may be held.
  cudaStream_t stream() const { return is_held() ? stream_.queue().handle() : direct_stream(); }
  /// For calls that are made at once: what is held is started first.
  cudaStream_t direct_stream() const { return stream_.queue().stream(); }
  /// Makes a call that `Bytes::issue` makes of the bytes: now, or with the launches that are held.
  template <class Bytes>
  cudaError_t make(const Bytes& bytes) {
    const auto* const first = reinterpret_cast<const unsigned char*>(&bytes);
    if (!is_held()) return Bytes::issue(first, direct_stream());
    return queue().stretches()->take({&Bytes::issue, first, sizeof bytes});
  }
  /// True if launches may be held.
  bool is_held() const { return stream_.holds(); }
  Queue& queue() const { return stream_.queue(); }
  const Origin& origin() const { return stream_.origin(); }
  /// Checks a call that has enqueued work, and counts it.
  void check(cudaError_t error, const char* doing) {
    queue().check(error, doing);
    count();
  }

  /// A tensor that lives as long as the call.
  Tensor& temporary(DType dtype, const Shape& shape) {
    temporaries_.push_back(device_.empty(dtype, shape));
    return temporaries_.back();
  }
  /// Returns the device address of the elements; an inline scalar goes to a temporary.
  const void* data(const ConstView& v) {
    if (!v.is_inline()) return v.data();
    void* const there = temporary(v.dtype, Shape{1}).raw_mutable();
    Element value{};  // no stray bytes: equal launches have equal ones
    std::memcpy(value.bytes, v.data(), size_of(v.dtype));
    check(cuda::fill(stream(), value, element_bytes(v.dtype), there, 1), "bringing a scalar");
    return there;
  }
  void* scratch(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    return temporary(DType::u8, Shape{static_cast<std::int64_t>(bytes)}).raw_mutable();
  }
  /// One for all products of the call, which run one behind the other.
  void* workspace(std::size_t bytes) {
    if (!workspace_) workspace_ = scratch(bytes);
    return workspace_;
  }
  void clear(const View& v) {
    if (!v.data || v.bytes() == 0) return;
    queue().set(v.data, 0, v.bytes());
    count();
  }
  void copy(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0) check(make(Copy{to, from, bytes}), "a copy");
  }
  static int element_bytes(DType dtype) { return static_cast<int>(size_of(dtype)); }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;

    static cudaError_t issue(const unsigned char* bytes, cudaStream_t stream) {
      Copy copy;
      std::memcpy(&copy, bytes, sizeof copy);
      return cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDeviceToDevice, stream);
    }
  };
  void count() {
    queue().meter().add(QueueMeter::Work::launch);
    if (is_held()) queue().stretches()->count();
    piece_.enqueued();
  }

  const OnDevice on_;
  Device& device_;
  CudaStream& stream_;
  TimedPiece piece_;
  std::vector<Tensor> temporaries_;
  void* workspace_ = nullptr;
};

/// Kernels have enumerations of their own, because no header of the engine reaches nvcc.
template <class A, class B>
constexpr bool are_alike(A a, B b) {
  return static_cast<int>(a) == static_cast<int>(b);
}

/// Throws unimplemented: the device lacks the primitive, or has it for other dtypes.
[[noreturn]] void refuse(Primitive p);
/// Throws unimplemented with `what` of the dtype.
[[noreturn]] void refuse_dtype(const char* what, DType dtype);
void check_index_type_of(const ConstView& indices);

inline std::int64_t product_of(const Shape& shape, int begin, int end) {
  std::int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= shape[i];
  return n;
}
/// Elements from one coordinate to the next along each axis of a dense tensor.
using Strides = std::array<std::int64_t, Shape::kMaxRank>;
inline Strides strides_of(const Shape& shape) {
  Strides strides{};
  std::int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = stride;
    stride *= shape[i];
  }
  return strides;
}

}  // namespace troupe::cuda
