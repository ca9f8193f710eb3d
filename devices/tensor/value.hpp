// Values: the contents of a token. A `Value` is a 32-byte handle: nothing, a scalar stored in the
// handle itself, or a counted reference to an object (a tensor's body, a list's log).
//
// Threads: a handle belongs to one thread at a time, the object behind it may be shared.
// Invariants: 1. a move never touches a count; 2. an inline scalar has none; 3. fan-out to n
// adds n-1 at once (`share`).
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include <troupe/devices/base/dtype.hpp>

namespace troupe {

class Tensor;
namespace detail {

class List;

/// Something counted from inside; created with one holder.
class Counted {
 public:
  void retain(std::uint32_t holders = 1) const noexcept {
    count_.fetch_add(holders, std::memory_order_relaxed);
  }
  void release() const noexcept {
    // acquire pairs with the other holders' release, so that the last one sees all their writes;
    // a sole holder needs no read-modify-write.
    if (count_.load(std::memory_order_acquire) == 1 ||
        count_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      const_cast<Counted*>(this)->destroy();
  }
  bool is_sole() const noexcept { return count_.load(std::memory_order_acquire) == 1; }

 protected:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  virtual ~Counted() = default;
  virtual void destroy() noexcept { delete this; }

 private:
  // publishes the object's last writes to its destroyer
  mutable std::atomic<std::uint32_t> count_{1};
};

/// A counted pointer.
template <class T>
class Ref {
 public:
  Ref() = default;
  /// Adopts the first holder's count.
  explicit Ref(T* object) : object_(object) {}
  Ref(const Ref& o) : object_(o.object_) {
    if (object_) object_->retain();
  }
  Ref(Ref&& o) noexcept : object_(std::exchange(o.object_, nullptr)) {}
  Ref& operator=(Ref o) noexcept {
    std::swap(object_, o.object_);
    return *this;
  }
  ~Ref() {
    if (object_) object_->release();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

class Value {
 public:
  // from tensor on: counted objects; saved: in lists only, see swap.hpp
  enum class Kind : std::uint8_t { none, scalar, tensor, list, saved };

  Value() = default;
  Value(const Value& o) noexcept {
    copy_bits(o);
    if (kind_ >= Kind::tensor) object()->retain();
  }
  Value(Value&& o) noexcept {
    copy_bits(o);
    o.kind_ = Kind::none;
  }
  Value& operator=(const Value& o) noexcept {
    Value copy(o);
    return *this = std::move(copy);
  }
  Value& operator=(Value&& o) noexcept {
    if (this != &o) {
      drop();
      copy_bits(o);
      o.kind_ = Kind::none;
    }
    return *this;
  }
  ~Value() { reset(); }
  /// Moves the value of `o` here; this must hold nothing.
  void fill(Value&& o) noexcept {
    copy_bits(o);
    o.kind_ = Kind::none;
  }
  /// Shares the value of `o`.
  void share(const Value& o) noexcept {
    if (o.kind_ >= Kind::tensor) o.object()->retain();
    drop();
    copy_bits(o);
  }

  Kind kind() const { return kind_; }
  bool has_value() const { return kind_ != Kind::none; }
  bool is_inline() const { return kind_ == Kind::scalar; }
  bool is_list() const { return kind_ == Kind::list; }
  DType dtype() const { return dtype_; }

  void reset() noexcept {
    drop();
    kind_ = Kind::none;
  }

  /// The 16 bytes that hold an inline scalar.
  const void* scalar_bits() const { return bits_; }
  /// Returns true if both are inline scalars of equal dtype and bits. Unused bytes are zero.
  bool is_same_scalar(const Value& o) const {
    return is_inline() && o.is_inline() && dtype_ == o.dtype_ &&
           std::memcmp(bits_, o.bits_, sizeof bits_) == 0;
  }
  /// Becomes an inline scalar of `bytes` bytes.
  void set_scalar(DType dtype, const void* element, std::size_t bytes) {
    reset();
    std::memset(bits_, 0, sizeof bits_);
    std::memcpy(bits_, element, bytes);
    kind_ = Kind::scalar;
    dtype_ = dtype;
  }

  /// Sets a scalar from 16 bytes, whose bytes beyond the dtype's size are zero.
  void set_padded_scalar(DType dtype, const void* element) {
    reset();
    std::memcpy(bits_, element, sizeof bits_);
    kind_ = Kind::scalar;
    dtype_ = dtype;
  }

  /// This value as the tensor it is (none counts as an empty tensor handle).
  const Tensor& tensor() const { return *reinterpret_cast<const Tensor*>(this); }
  Tensor& tensor() { return *reinterpret_cast<Tensor*>(this); }
  /// This value as the list it is; defined in list.hpp.
  const List& list() const;
  List& list();

 protected:
  Counted* object() const {
    Counted* o;
    std::memcpy(&o, bits_, sizeof o);
    return o;
  }
  void adopt(Counted* object, Kind kind, DType dtype) {
    std::memcpy(bits_, &object, sizeof object);
    kind_ = kind;
    dtype_ = dtype;
  }
  /// Releases the object before another value is written here. It leaves kind_ unset: a store of
  /// kind_ alone, between the stores of `copy_bits`, keeps the compiler from merging the stores of
  /// the dtype and the kind. A reader that loads the two as one would wait for both stores.
  void drop() noexcept {
    if (kind_ >= Kind::tensor) object()->release();
  }
  void copy_bits(const Value& o) {
    std::memcpy(bits_, o.bits_, sizeof bits_);
    dtype_ = o.dtype_;
    kind_ = o.kind_;
  }

  alignas(16) unsigned char bits_[16] = {};
  DType dtype_ = DType::f32;
  Kind kind_ = Kind::none;
};

}  // namespace detail

static_assert(sizeof(detail::Value) == 32);

}  // namespace troupe
