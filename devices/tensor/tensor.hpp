// Tensors: a handle on a dense, row-major, counted buffer. A host scalar lives in the handle.
//
//   Tensor t = Tensor::of<float>({1, 2, 3, 4}, Shape{2, 2});
//   t.data<float>()[3];  t.item<float>() on one element;  t.reshaped({4}) shares the buffer.
//
// Threads: as `Value`. A tensor that has more than one holder is read-only. A sole holder of the
// buffer, not just of the view, may write in place (`is_sole_holder`).
#pragma once

#include <complex>
#include <cstddef>
#include <iosfwd>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <troupe/devices/base/shape.hpp>
#include <troupe/devices/tensor/allocator.hpp>
#include <troupe/devices/tensor/value.hpp>

namespace troupe {

namespace detail {

class Device;

/// Counted memory of one device.
class Buffer final : public Counted {
 public:
  /// `bytes` bytes from `allocator`, which must outlive the buffer; throws resource_exhausted.
  static Ref<Buffer> allocate(Allocator& allocator, std::size_t bytes);
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// Changes before each write; never the same for two buffers. 0: never written.
  std::uint64_t content() const { return content_; }
  void touch() { content_ = next_content(); }

 private:
  static std::uint64_t next_content();
  Buffer(Allocator& allocator, void* data, std::size_t bytes)
      : allocator_(&allocator), data_(data), bytes_(bytes) {}
  void destroy() noexcept override;

  Allocator* allocator_;
  void* data_;
  std::size_t bytes_;
  std::uint64_t content_ = 0;  // written by a sole holder
};

}  // namespace detail

class Tensor : public detail::Value {
 public:
  using At = std::source_location;
  Tensor() = default;

  /// A scalar, stored in the handle.
  template <class T>
  requires requires { dtype_of<T>; }
  static Tensor scalar(T value) {
    static_assert(sizeof(T) <= 16 && !std::is_same_v<T, detail::StringRef>);
    Tensor t;
    std::memcpy(t.bits_, &value, sizeof(T));
    t.kind_ = Kind::scalar;
    t.dtype_ = dtype_of<T>;
    return t;
  }
  /// A scalar of `dtype` nearest to `value` (bool: value != 0).
  static Tensor scalar_as(DType dtype, double value);
  /// A tensor with elements not yet written. A rank-0 host tensor is an inline scalar.
  static Tensor empty(DType dtype, const Shape& shape);
  /// As `empty`, on `device` (null: the host), from its allocator.
  static Tensor empty_on(detail::Device* device, detail::Allocator& allocator, DType dtype,
                         const Shape& shape);
  static Tensor zeros(DType dtype, const Shape& shape);
  /// The elements that lie `offset` bytes into a buffer of `device` (null: the host).
  static Tensor on_buffer(detail::Ref<detail::Buffer> buffer, std::size_t offset,
                          detail::Device* device, DType dtype, const Shape& shape);
  /// Throws invalid_argument, naming the caller's line, unless `elements` fill `shape`.
  template <class T>
  static Tensor of(std::span<const T> elements, const Shape& shape, At at = At::current());
  template <class T>
  static Tensor of(std::initializer_list<T> elements, const Shape& shape, At at = At::current()) {
    return of(std::span<const T>(elements.begin(), elements.size()), shape, at);
  }
  template <class T>
  static Tensor of(const std::vector<T>& elements, const Shape& shape, At at = At::current()) {
    return of(std::span<const T>(elements), shape, at);
  }
  template <class T>
  static Tensor of(std::initializer_list<T> elements) {
    return of(elements, Shape{static_cast<std::int64_t>(elements.size())});
  }

  /// A tensor of strings, any bytes, on the host. Throws invalid_argument unless they fill `shape`.
  static Tensor strings(const std::vector<std::string>& elements, const Shape& shape,
                        At at = At::current());
  /// A scalar of dtype string.
  static Tensor string(const std::string& element) { return strings({element}, Shape{}); }

  const Shape& shape() const;
  int rank() const { return shape().rank(); }
  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype_); }
  /// The device that holds the elements: null for the host.
  detail::Device* device() const;
  bool is_on_host() const { return device() == nullptr; }
  /// The buffer that holds the elements; null if the handle itself or a small body holds them.
  detail::Ref<detail::Buffer> buffer() const;

  const void* raw() const;
  /// Throws internal if the handle is no sole holder's; kernels write only what they allocated or
  /// took over.
  void* raw_mutable();
  /// The elements, `elements()` of them in row-major order. The errors of the accessors name the
  /// caller's line: invalid_argument if T is not the dtype, failed_precondition if the handle is
  /// empty or the tensor is not on the host.
  template <class T>
  const T* data(At at = At::current()) const {
    check_access(dtype_of<T>, "data", at);
    return static_cast<const T*>(raw());
  }
  template <class T>
  T* mutable_data(At at = At::current()) {
    check_access(dtype_of<T>, "mutable_data", at);
    return static_cast<T*>(raw_mutable());
  }
  /// The only element; throws invalid_argument if there are more or none.
  template <class T>
  T item(At at = At::current()) const {
    check_access(dtype_of<T>, "item", at);
    if (elements() != 1) [[unlikely]]
      refuse_item(at);
    return *static_cast<const T*>(raw());
  }
  /// Element `i` in row-major order as a double, whatever the real dtype (bool: 0 or 1; complex:
  /// the real part). Throws out_of_range.
  double at(std::int64_t i, At at = At::current()) const;
  /// A copy of the elements in row-major order.
  template <class T>
  std::vector<T> to_vector(At at = At::current()) const {
    check_access(dtype_of<T>, "to_vector", at);
    const T* p = static_cast<const T*>(raw());
    return std::vector<T>(p, p + elements());
  }

  std::vector<std::string> to_strings(At at = At::current()) const;
  /// For strings: returns a tensor that keeps its bytes itself; this one, if it does. A kernel that
  /// put elements of its inputs together calls it before the inputs may go.
  Tensor with_own_text() const;

  /// Identifies the contents of the buffer that this is a view of: equal numbers mean equal
  /// elements. 0: not known.
  std::uint64_t content() const;
  /// Returns true if this handle's elements may be overwritten.
  bool is_sole_holder() const;
  /// Returns these elements under another shape of as many elements; shares the buffer.
  Tensor reshaped(const Shape& shape, At at = At::current()) const;
  /// Rows [begin, end) of axis 0; shares the buffer.
  Tensor rows(std::int64_t begin, std::int64_t end, At at = At::current()) const;
  /// A copy with a buffer of its own (host tensors only).
  Tensor clone() const;

  /// dtype, shape and up to `limit` elements, for people.
  std::string text(std::int64_t limit = 16) const;

 private:
  class Body;
  Body* body() const;
  static Tensor from_body(Body* body, DType dtype);
  void check_access(DType wanted, const char* call, const At& at) const {
    if (kind_ == Kind::none || wanted != dtype_ || !is_on_host()) [[unlikely]]
      refuse_access(wanted, call, at);
  }
  [[noreturn, gnu::cold]] void refuse_access(DType wanted, const char* call, const At& at) const;
  [[noreturn, gnu::cold]] void refuse_item(const At& at) const;
  [[noreturn, gnu::cold]] static void refuse_fill(std::size_t elements, const Shape& shape,
                                                  const At& at);
};

static_assert(sizeof(Tensor) == sizeof(detail::Value));

// The body behind a handle. Up to 64 bytes of host elements live in the body itself: small vectors
// cost one block of a `BlockPool`, no buffer. Inline, with the accessors: a firing calls a dozen of
// them.
class Tensor::Body final : public detail::Counted {
 public:
  static constexpr std::size_t kSmall = 64;
  static Body* make(const Shape& shape, detail::Device* device);

  Shape shape;
  detail::Device* device;
  void* data = small;
  detail::Ref<detail::Buffer> buffer;  // null while the elements are in `small`
  Tensor owner;  // keeps a view's small elements alive; of strings, a u8 tensor: their bytes
  alignas(64) unsigned char small[kSmall];

 private:
  Body(const Shape& s, detail::Device* d) : shape(s), device(d) {}
  void destroy() noexcept override;
};

inline Tensor::Body* Tensor::body() const { return static_cast<Body*>(object()); }

inline const Shape& Tensor::shape() const {
  static constinit const Shape scalar_shape;
  return kind_ == Kind::tensor ? body()->shape : scalar_shape;
}

inline std::int64_t Tensor::elements() const {
  if (kind_ != Kind::tensor) return kind_ == Kind::scalar;
  return body()->shape.elements();
}

inline detail::Device* Tensor::device() const {
  return kind_ == Kind::tensor ? body()->device : nullptr;
}

inline detail::Ref<detail::Buffer> Tensor::buffer() const {
  return kind_ == Kind::tensor ? body()->buffer : detail::Ref<detail::Buffer>();
}

inline const void* Tensor::raw() const {
  if (kind_ == Kind::none) return nullptr;
  return kind_ == Kind::scalar ? bits_ : body()->data;
}

inline bool Tensor::is_sole_holder() const {
  if (kind_ != Kind::tensor) return kind_ == Kind::scalar;
  const Body* b = body();
  return b->is_sole() && !b->owner.has_value() && (!b->buffer || b->buffer->is_sole());
}

inline std::uint64_t Tensor::content() const {
  return kind_ == Kind::tensor && body()->buffer ? body()->buffer->content() : 0;
}

/// For people, as NumPy does: dtype and shape, then the elements with all their digits, a row a
/// line. A tensor of more than 1,000 elements shows the first and last three along each axis.
std::ostream& operator<<(std::ostream& out, const Tensor& t);

/// Bit-for-bit equality of dtype, shape and elements (host tensors), of strings byte for byte.
bool identical(const Tensor& a, const Tensor& b);

template <class T>
Tensor Tensor::of(std::span<const T> elements, const Shape& shape, At at) {
  if (shape.elements() != static_cast<std::int64_t>(elements.size()))
    refuse_fill(elements.size(), shape, at);
  Tensor t = empty(dtype_of<T>, shape);
  if (!elements.empty()) std::memcpy(t.raw_mutable(), elements.data(), elements.size_bytes());
  return t;
}

template <>
inline Tensor Tensor::of<bool>(const std::vector<bool>& elements, const Shape& shape, At at) {
  std::vector<std::uint8_t> bytes(elements.begin(), elements.end());
  if (shape.elements() != static_cast<std::int64_t>(bytes.size()))
    refuse_fill(bytes.size(), shape, at);
  Tensor t = empty(DType::boolean, shape);
  std::memcpy(t.raw_mutable(), bytes.data(), bytes.size());
  return t;
}

}  // namespace troupe
