// Archives: the form of messages between nodes. A message is a flat sequence of msgpack numbers,
// strings and byte strings, and beside it the tensors, whose bytes are not copied. One description
// of a type serves both directions:
//
//   template <class A> void fields(A& a, Probe& p) { a(p.request), a(p.load); }
//   MessageWriter w;  fields(w, probe);  Message m = w.take();
//   MessageReader r(m);  fields(r, probe);  r.end();
//
// There are no msgpack arrays or maps. A count precedes its elements and is at most the rest of the
// message, so that nothing is allocated that was not sent. A MessageReader throws data_loss for
// anything unexpected.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <troupe/cluster/transport/pack_scan.hpp>
#include <troupe/cluster/transport/transport.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/list/list.hpp>
#include <troupe/ops/graph/expr.hpp>

namespace troupe {

class MessageWriter {
 public:
  static constexpr bool reads = false;

  void number(std::int64_t n) {
    if (n >= 0) unsigned_number(static_cast<std::uint64_t>(n));
    else negative_number(n);
  }
  /// Most are small: one byte, which is the number itself.
  void unsigned_number(std::uint64_t n) {
    make_room(kLongest);
    if (n < kOneByte) next_[used_++] = static_cast<std::byte>(n);
    else long_number(n);
  }
  void real(double x);
  void flag(bool b) {
    make_room(1);
    next_[used_++] = b ? std::byte{0xc3} : std::byte{0xc2};
  }
  void text(const std::string& s);
  void bytes(const void* data, std::size_t size);
  /// Bytes that no reader of archives sees.
  void raw(std::span<const std::byte> bytes);
  /// To the message's tensors.
  void attach(Tensor t) { message_.tensors.push_back(std::move(t)); }

  void count(std::size_t& n) { unsigned_number(n); }
  Message take() {
    spill();
    return std::move(message_);
  }

  template <class T>
  MessageWriter& operator()(const T& x);

 private:
  static constexpr std::uint64_t kOneByte = 128;
  static constexpr std::size_t kLongest = 9;  // bytes of a number
  static constexpr std::size_t kShort = 16;   // bytes of a scalar
  static constexpr std::size_t kGathered = 192;
  void make_room(std::size_t bytes) {
    if (kGathered - used_ < bytes) [[unlikely]]
      spill();
  }
  void spill();
  void negative_number(std::int64_t n);
  void long_number(std::uint64_t n);

  Message message_;
  // bytes of the head that follow head_: a turn's tokens fit, and take one block of memory, of
  // their size
  std::array<std::byte, kGathered> next_;
  std::size_t used_ = 0;
};

class MessageReader {
 public:
  static constexpr bool reads = true;

  /// Takes the tensors; the head must stay.
  explicit MessageReader(Message& message) : MessageReader(message.head, message.tensors) {}
  MessageReader(std::span<const std::byte> head, std::span<Tensor> tensors)
      : scan_(head), tensors_(tensors) {}
  std::int64_t number() {
    std::uint64_t n = 0;
    return scan_.next_number(n) && n <= static_cast<std::uint64_t>(INT64_MAX)
               ? static_cast<std::int64_t>(n)
               : other_number();
  }
  std::uint64_t unsigned_number() {
    std::uint64_t n = 0;
    return scan_.next_number(n) ? n : other_unsigned_number();
  }
  double real();
  bool flag();
  std::string text();
  std::span<const std::byte> bytes();
  Tensor attached();

  void count(std::size_t& n);
  /// Nothing is left.
  void end() const;
  [[noreturn]] static void malformed(const std::string& what);

  template <class T>
  MessageReader& operator()(T& x);

 private:
  PackScan::Element next();
  std::int64_t other_number();
  std::uint64_t other_unsigned_number();

  PackScan scan_;
  std::span<Tensor> tensors_;
  std::size_t tensor_ = 0;
};

// ---- what is in other headers of the tree

void write(MessageWriter& w, const Shape& shape);
void write(MessageWriter& w, const Value& value);
void read(MessageReader& r, Shape& shape);
void read(MessageReader& r, Value& value);
void write(MessageWriter& w, const Status& status);
void read(MessageReader& r, Status& status);
/// A message within another.
void write(MessageWriter& w, const Message& message);
void read(MessageReader& r, Message& message);

template <class A>
void fields(A& a, ValueSpec& s) {
  a(s.dtype), a(s.shape), a(s.depth);
}

/// Enumerations, by how many values they have.
template <class E>
inline constexpr std::uint64_t kValues = 0;
template <>
inline constexpr std::uint64_t kValues<DType> = kAllDTypes;
template <>
inline constexpr std::uint64_t kValues<Code> = static_cast<std::uint64_t>(Code::internal) + 1;

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

template <class T>
MessageWriter& MessageWriter::operator()(const T& x) {
  if constexpr (std::is_same_v<T, bool>) flag(x);
  else if constexpr (std::is_same_v<T, double>) real(x);
  else if constexpr (std::is_enum_v<T>) unsigned_number(static_cast<std::uint64_t>(x));
  else if constexpr (std::is_unsigned_v<T>) unsigned_number(x);
  else if constexpr (std::is_integral_v<T>) number(x);
  else if constexpr (std::is_same_v<T, std::string>) text(x);
  else if constexpr (is_vector<T>) {
    unsigned_number(x.size());
    for (const auto& element : x) (*this)(element);
  } else if constexpr (std::is_base_of_v<Value, T>) write(*this, static_cast<const Value&>(x));
  else if constexpr (requires { write(*this, x); }) write(*this, x);
  else fields(*this, const_cast<T&>(x));  // writes only
  return *this;
}

template <class T>
MessageReader& MessageReader::operator()(T& x) {
  if constexpr (std::is_same_v<T, bool>) x = flag();
  else if constexpr (std::is_same_v<T, double>) x = real();
  else if constexpr (std::is_enum_v<T>) {
    const std::uint64_t n = unsigned_number();
    if (n >= kValues<T>) malformed("an enumeration's value");
    x = static_cast<T>(n);
  } else if constexpr (std::is_integral_v<T>) {
    const auto n = [&] {
      if constexpr (std::is_unsigned_v<T>) return unsigned_number();
      else return number();
    }();
    x = static_cast<T>(n);
    if (static_cast<decltype(n)>(x) != n) malformed("a number too large");
  } else if constexpr (std::is_same_v<T, std::string>) x = text();
  else if constexpr (is_vector<T>) {
    std::size_t n = 0;
    count(n);
    x.clear();
    for (std::size_t i = 0; i < n; ++i) (*this)(x.emplace_back());
  } else if constexpr (std::is_same_v<T, Tensor>) {
    Value value;
    read(*this, value);
    if (value.is_list()) malformed("a list where a tensor was expected");
    x = std::move(value.tensor());
  } else if constexpr (requires { read(*this, x); }) read(*this, x);
  else fields(*this, x);
  return *this;
}

}  // namespace troupe
