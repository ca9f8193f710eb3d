// Reads msgpack where it lies, one element after another, and allocates nothing. The library's
// parsers take a stack or a tree from the heap for each call, a third of the cost of a small
// message.
//
//   PackScan scan(bytes);
//   PackScan::Element e = scan.next();
//   if (e.kind == PackScan::Kind::array) for (n = e.number; n > 0; --n) scan.next();
//   scan.place();  // bytes that are read
//
// Nothing beyond `bytes` is touched. An array's count, and a text's length, are at most the bytes
// that are left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace troupe {

class PackScan {
 public:
  enum class Kind : std::uint8_t {
    // cut short, or longer than the rest; or a kind that no sender writes: nil, a float, a map, an
    // extension
    malformed,
    number,
    negative,
    flag,
    text,
    bytes,
    array,  // its elements follow
  };
  struct Element {
    Kind kind = Kind::malformed;
    std::uint64_t number = 0;  // or the flag, or how many elements
    std::int64_t negative = 0;
    std::span<const std::byte> bytes = {};  // contents of a text or of bytes
  };

  explicit PackScan(std::span<const std::byte> bytes) : bytes_(bytes) {}
  Element next();
  /// Reads the next element if it is a number in one of the forms that are written: without a call,
  /// or an Element.
  bool next_number(std::uint64_t& n) {
    if (left() == 0) return false;
    const auto first = static_cast<unsigned>(bytes_[place_]);
    if (first < 0x80) {
      n = first;
      ++place_;
      return true;
    }
    // log2 of the number of bytes that follow, the highest first
    const unsigned log = first - 0xcc;
    if (log > 3 || left() <= std::size_t{1} << log) return false;
    const std::byte* from = bytes_.data() + place_ + 1;
    switch (log) {
      case 0: n = static_cast<std::uint64_t>(*from); break;
      case 1: n = __builtin_bswap16(at<std::uint16_t>(from)); break;
      case 2: n = __builtin_bswap32(at<std::uint32_t>(from)); break;
      default: n = __builtin_bswap64(at<std::uint64_t>(from)); break;
    }
    place_ += 1 + (std::size_t{1} << log);
    return true;
  }
  /// Reads the next element if it is a truth value: the same.
  bool next_flag(bool& b) {
    if (left() == 0 || (bytes_[place_] | std::byte{1}) != std::byte{0xc3}) return false;
    b = bytes_[place_++] == std::byte{0xc3};
    return true;
  }
  /// Reads the beginning of the next element if it is an array of up to fifteen: the same.
  bool next_array(std::size_t& elements) {
    if (left() == 0 || (bytes_[place_] & std::byte{0xf0}) != std::byte{0x90}) return false;
    const auto n = static_cast<std::size_t>(bytes_[place_] & std::byte{0x0f});
    if (n > left() - 1) return false;
    elements = n;
    ++place_;
    return true;
  }
  std::size_t place() const { return place_; }
  std::size_t left() const { return bytes_.size() - place_; }

 private:
  template <class T>
  static T at(const std::byte* from) {
    T n;
    std::memcpy(&n, from, sizeof n);
    return n;
  }
  bool take(std::size_t width, std::uint64_t& n);
  Element sized(Kind kind, std::size_t width);
  Element run(Kind kind, std::uint64_t n);
  Element whole(std::size_t width);
  Element with_sign(std::size_t width);

  std::span<const std::byte> bytes_;
  std::size_t place_ = 0;
};

}  // namespace troupe
