#include <troupe/devices/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>

#include <fmt/format.h>

#include <troupe/devices/base/block_pool.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

Ref<Buffer> Buffer::allocate(Allocator& allocator, std::size_t bytes) {
  void* data = allocator.allocate(bytes);
  void* memory = nullptr;
  try {
    memory = BlockPool<sizeof(Buffer)>::take();
  } catch (...) {
    allocator.deallocate(data, bytes);
    throw;
  }
  return Ref<Buffer>(new (memory) Buffer(allocator, data, bytes));
}

void Buffer::destroy() noexcept {
  allocator_->deallocate(data_, bytes_);
  this->~Buffer();
  BlockPool<sizeof(Buffer)>::give(this);
}

Tensor::Body* Tensor::Body::make(const Shape& shape, Device* device) {
  return new (BlockPool<sizeof(Body)>::take()) Body(shape, device);
}

void Tensor::Body::destroy() noexcept {
  this->~Body();
  BlockPool<sizeof(Body)>::give(this);
}

Tensor Tensor::from_body(Body* body, DType dtype) {
  Tensor t;
  t.adopt(body, Kind::tensor, dtype);
  return t;
}

Tensor Tensor::scalar_as(DType dtype, double value) {
  return visit_dtype(dtype, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_same_v<T, bool>) return scalar(value != 0);
    else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>)
      return scalar(T(value));
    else if constexpr (std::is_same_v<T, std::complex<float>>) return scalar(T(float(value)));
    else return scalar(static_cast<T>(value));
  });
}

Tensor Tensor::empty(DType dtype, const Shape& shape) {
  return empty_on(nullptr, host_allocator(), dtype, shape);
}

Tensor Tensor::empty_on(Device* device, Allocator& allocator, DType dtype, const Shape& shape) {
  if (!shape.is_known())
    throw Error(Code::internal, "a tensor needs a shape known in full, not " + shape.text());
  if (!device && shape.is_scalar() && dtype != DType::string) {
    Tensor t;
    t.kind_ = Kind::scalar;
    t.dtype_ = dtype;
    return t;
  }
  // signed, as inference counts them: an allocator rounds sizes up, which may wrap what is next to
  // 2^64
  std::int64_t counted;
  if (__builtin_mul_overflow(shape.elements(), static_cast<std::int64_t>(size_of(dtype)), &counted))
    throw Error(Code::resource_exhausted,
                "shape " + shape.text() + " has more bytes than 64 bits count");
  const auto bytes = static_cast<std::size_t>(counted);
  Ref<Buffer> buffer;
  if (device || bytes > Body::kSmall) buffer = Buffer::allocate(allocator, bytes);
  Body* body = Body::make(shape, device);
  if (buffer) body->data = buffer->data();
  body->buffer = std::move(buffer);
  return from_body(body, dtype);
}

Tensor Tensor::on_buffer(Ref<Buffer> buffer, std::size_t offset, Device* device, DType dtype,
                         const Shape& shape) {
  Body* body = Body::make(shape, device);
  body->data = static_cast<unsigned char*>(buffer->data()) + offset;
  body->buffer = std::move(buffer);
  return from_body(body, dtype);
}

// Numbers are handed out to threads in blocks, so that they share no counter.
std::uint64_t Buffer::next_content() {
  constexpr std::uint64_t kBlock = 1 << 20;
  static std::atomic<std::uint64_t> blocks{0};  // publishes nothing
  static thread_local std::uint64_t next = 0;
  if (next % kBlock == 0) next = blocks.fetch_add(1, std::memory_order_relaxed) * kBlock;
  return ++next;
}

Tensor Tensor::zeros(DType dtype, const Shape& shape) {
  Tensor t = empty(dtype, shape);
  std::memset(t.raw_mutable(), 0, t.bytes());
  return t;
}

void* Tensor::raw_mutable() {
  if (kind_ == Kind::none) return nullptr;
  if (kind_ == Kind::scalar) return bits_;
  if (!is_sole_holder()) throw Error(Code::internal, "a shared tensor cannot be written");
  if (body()->buffer) body()->buffer->touch();
  return body()->data;
}

Tensor Tensor::reshaped(const Shape& shape, At at) const {
  if (shape.elements() != elements())
    throw Error(Code::invalid_argument,
                fmt::format("reshaped() at {}: {} elements of shape {} cannot take shape {}",
                            Site(at).text(), elements(), this->shape().text(), shape.text()));
  if (kind_ == Kind::scalar || (shape.is_scalar() && is_on_host() && dtype_ != DType::string)) {
    Tensor t = empty(dtype_, shape);
    std::memcpy(t.raw_mutable(), raw(), bytes());
    return t;
  }
  const Body* b = body();
  Body* view = Body::make(shape, b->device);
  view->data = b->data;
  view->buffer = b->buffer;
  view->owner = b->buffer ? b->owner : *this;
  return from_body(view, dtype_);
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end, At at) const {
  if (rank() < 1 || begin < 0 || end < begin || end > shape()[0])
    throw Error(Code::out_of_range, fmt::format("rows() at {}: rows [{}, {}) are outside shape {}",
                                                Site(at).text(), begin, end, shape().text()));
  const Body* b = body();
  Shape s = b->shape;
  std::int64_t row = s[0] ? elements() / s[0] : 0;
  s.set(0, end - begin);
  Body* view = Body::make(s, b->device);
  view->data = static_cast<unsigned char*>(b->data) +
               static_cast<std::size_t>(begin * row) * size_of(dtype_);
  view->buffer = b->buffer;
  view->owner = b->buffer ? b->owner : *this;
  return from_body(view, dtype_);
}

Tensor Tensor::clone() const {
  if (!is_on_host())
    throw Error(Code::internal, "clone copies host tensors; a device's are copied by its stream");
  if (kind_ != Kind::tensor) return *this;
  Tensor copy = empty(dtype_, shape());
  std::memcpy(copy.raw_mutable(), raw(), bytes());
  return dtype_ == DType::string ? copy.with_own_text() : copy;
}

// ---- strings

Tensor Tensor::strings(const std::vector<std::string>& elements, const Shape& shape, At at) {
  std::vector<StringRef> views;
  for (const std::string& s : elements) views.push_back({s.data(), s.size()});
  return of(views, shape, at).with_own_text();
}

std::vector<std::string> Tensor::to_strings(At at) const {
  check_access(DType::string, "to_strings", at);
  std::vector<std::string> out;
  for (const StringRef& t : std::span(data<StringRef>(), static_cast<std::size_t>(elements())))
    out.emplace_back(t.view());
  return out;
}

Tensor Tensor::with_own_text() const {
  // the holder of the elements: small ones lie in the tensor that this is a view of
  const Body* holder = body();
  while (holder->owner.has_value() && holder->owner.dtype() == DType::string)
    holder = holder->owner.body();
  if (holder->owner.has_value()) return *this;
  const std::span from(data<StringRef>(), static_cast<std::size_t>(elements()));
  std::int64_t bytes = 0;
  for (const StringRef& t : from) bytes += static_cast<std::int64_t>(t.size);
  if (bytes == 0) return *this;
  Tensor own = empty(DType::string, shape()), text = empty(DType::u8, Shape{bytes});
  auto* to = static_cast<StringRef*>(own.raw_mutable());
  auto* next = static_cast<char*>(text.raw_mutable());
  for (const StringRef& t : from) {
    *to++ = {next, t.size};
    next = std::copy_n(t.data, t.size, next);
  }
  own.body()->owner = std::move(text);
  return own;
}

void Tensor::refuse_access(DType wanted, const char* call, const At& at) const {
  const std::string where = fmt::format("{}() at {}: ", call, Site(at).text());
  if (kind_ == Kind::none)
    throw Error(Code::failed_precondition, where + "an empty tensor handle has no elements");
  if (wanted != dtype_)
    throw Error(Code::invalid_argument, fmt::format("{}a tensor of {} was read as {}", where,
                                                    name_of(dtype_), name_of(wanted)));
  throw Error(Code::failed_precondition, where + "the tensor is on a device; fetch it first");
}

void Tensor::refuse_fill(std::size_t elements, const Shape& shape, const At& at) {
  throw Error(Code::invalid_argument,
              fmt::format("a tensor at {}: {} elements do not fill shape {}", Site(at).text(),
                          elements, shape.text()));
}

void Tensor::refuse_item(const At& at) const {
  throw Error(Code::invalid_argument,
              fmt::format("item() at {}: it needs one element; shape {} has {}", Site(at).text(),
                          shape().text(), elements()));
}

double Tensor::at(std::int64_t i, At at) const {
  check_access(dtype_ == DType::string ? DType::f64 : dtype_, "at", at);
  if (i < 0 || i >= elements())
    throw Error(Code::out_of_range, fmt::format("at({}) at {}: the element is outside shape {}", i,
                                                Site(at).text(), shape().text()));
  return visit_dtype(dtype_, [&]<class T>(type_tag<T>) -> double {
    T v = data<T>()[i];
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
      return v.real();
    else if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) return float(v);
    else return static_cast<double>(v);
  });
}

std::string Tensor::text(std::int64_t limit) const {
  if (kind_ == Kind::none) return "nothing";
  std::string out = fmt::format("{}{}", name_of(dtype_), shape().text());
  if (!is_on_host()) return out + " on a device";
  out += " {";
  for (std::int64_t i = 0; i < std::min(limit, elements()); ++i) {
    if (i) out += ", ";
    if (dtype_ == DType::string) out += fmt::format("\"{}\"", data<StringRef>()[i].view());
    else
      out += visit_dtype(dtype_, [&]<class T>(type_tag<T>) {
        const T v = data<T>()[i];
        if constexpr (std::is_same_v<T, bool>) return std::string(v ? "true" : "false");
        else if constexpr (std::is_same_v<T, std::complex<float>> ||
                           std::is_same_v<T, std::complex<double>>)
          return fmt::format("{:g}{:+g}i", v.real(), v.imag());
        else if constexpr (std::is_integral_v<T>) return fmt::format("{}", +v);
        else
          return std::isnan(at(i))
                     ? std::string("nan")
                     : fmt::format("{:g}", at(i));  // x86 makes NaNs with a sign: print none
      });
  }
  if (elements() > limit) out += ", ...";
  return out + "}";
}

bool identical(const Tensor& a, const Tensor& b) {
  if (a.has_value() != b.has_value() || a.dtype() != b.dtype() || a.shape() != b.shape())
    return false;
  if (a.has_value() && a.dtype() == DType::string)
    return std::equal(a.data<StringRef>(), a.data<StringRef>() + a.elements(), b.data<StringRef>());
  return a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace troupe
