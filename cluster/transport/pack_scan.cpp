#include <troupe/cluster/transport/pack_scan.hpp>

namespace troupe {

/// `width` bytes, the first the highest.
bool PackScan::take(std::size_t width, std::uint64_t& n) {
  if (left() < width) return false;
  n = 0;
  for (std::size_t i = 0; i < width; ++i)
    n = n << 8 | static_cast<std::uint64_t>(bytes_[place_ + i]);
  place_ += width;
  return true;
}

PackScan::Element PackScan::whole(std::size_t width) {
  Element e;
  if (take(width, e.number)) e.kind = Kind::number;
  return e;
}

PackScan::Element PackScan::with_sign(std::size_t width) {
  Element e;
  std::uint64_t n;
  if (!take(width, n)) return e;
  const auto unused = static_cast<unsigned>(64 - 8 * width);
  const std::int64_t value = static_cast<std::int64_t>(n << unused) >> unused;
  if (value < 0) return e.kind = Kind::negative, e.negative = value, e;
  return e.kind = Kind::number, e.number = static_cast<std::uint64_t>(value), e;
}

PackScan::Element PackScan::run(Kind kind, std::uint64_t n) {
  Element e;
  if (n > left()) return e;
  e.kind = kind;
  e.number = n;
  if (kind == Kind::array) return e;
  e.bytes = bytes_.subspan(place_, n);
  place_ += n;
  return e;
}

PackScan::Element PackScan::sized(Kind kind, std::size_t width) {
  std::uint64_t n;
  return take(width, n) ? run(kind, n) : Element();
}

PackScan::Element PackScan::next() {
  if (left() == 0) return {};
  const auto first = static_cast<unsigned>(bytes_[place_++]);
  if (first < 0x80) return {.kind = Kind::number, .number = first};
  if (first >= 0xe0)
    return {.kind = Kind::negative, .negative = static_cast<std::int64_t>(first) - 0x100};
  if (first >= 0xa0 && first < 0xc0) return run(Kind::text, first & 0x1f);
  if (first >= 0x90 && first < 0xa0) return run(Kind::array, first & 0x0f);
  switch (first) {
    case 0xc2:
    case 0xc3: return {.kind = Kind::flag, .number = first & 1};
    case 0xc4: return sized(Kind::bytes, 1);
    case 0xc5: return sized(Kind::bytes, 2);
    case 0xc6: return sized(Kind::bytes, 4);
    case 0xcc: return whole(1);
    case 0xcd: return whole(2);
    case 0xce: return whole(4);
    case 0xcf: return whole(8);
    case 0xd0: return with_sign(1);
    case 0xd1: return with_sign(2);
    case 0xd2: return with_sign(4);
    case 0xd3: return with_sign(8);
    case 0xd9: return sized(Kind::text, 1);
    case 0xda: return sized(Kind::text, 2);
    case 0xdb: return sized(Kind::text, 4);
    case 0xdc: return sized(Kind::array, 2);
    case 0xdd: return sized(Kind::array, 4);
    default: return {};
  }
}

}  // namespace troupe
