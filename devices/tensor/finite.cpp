#include <troupe/devices/tensor/finite.hpp>

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe {
namespace {

// The position of a number's exponent in a dtype: all of its bits are set just if the number is not
// finite. Adding the exponent's lowest bit then carries into the sign, for each number in a word.
struct Exponent {
  std::uint64_t bits, lowest, sign;
  std::size_t bytes;  // in one number
};

std::optional<Exponent> exponent_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return Exponent{0x7C007C007C007C00, 0x0400040004000400, 0x8000800080008000, 2};
    case DType::bf16:
      return Exponent{0x7F807F807F807F80, 0x0080008000800080, 0x8000800080008000, 2};
    case DType::f32:
    case DType::c64: return Exponent{0x7F8000007F800000, 0x0080000000800000, 0x8000000080000000, 4};
    case DType::f64:
    case DType::c128:
      return Exponent{0x7FF0000000000000, 0x0010000000000000, 0x8000000000000000, 8};
    default: return {};
  }
}

std::uint64_t carries(const char* from, std::size_t words, const Exponent& e) {
  std::uint64_t all[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= words; i += 4) {
    std::uint64_t w[4];
    std::memcpy(w, from + i * 8, sizeof w);
    for (int k = 0; k < 4; ++k) all[k] |= (w[k] & e.bits) + e.lowest;
  }
  for (; i < words; ++i) {
    std::uint64_t w;
    std::memcpy(&w, from + i * 8, sizeof w);
    all[0] |= (w & e.bits) + e.lowest;
  }
  return (all[0] | all[1] | all[2] | all[3]) & e.sign;
}

// One number of a tensor, by its bits.
Finiteness finiteness_of(const char* from, const Exponent& e) {
  std::uint64_t w = 0;
  std::memcpy(&w, from, e.bytes);
  const std::uint64_t mask =
      e.bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * e.bytes)) - 1;
  const std::uint64_t bits = e.bits & mask, sign = e.sign & mask;
  if ((w & bits) != bits) return Finiteness::finite;
  return (w & mask & ~sign & ~bits) != 0 ? Finiteness::nan : Finiteness::infinite;
}

}  // namespace

bool is_all_finite(const Tensor& t) {
  const auto e = exponent_of(t.dtype());
  if (!e) return true;
  const auto* from = static_cast<const char*>(t.raw());
  const std::size_t words = t.bytes() / 8;
  if (carries(from, words, *e) != 0) return false;
  for (std::size_t at = words * 8; at < t.bytes(); at += e->bytes)
    if (finiteness_of(from + at, *e) != Finiteness::finite) return false;
  return true;
}

WorstElement worst_element(const Tensor& t) {
  WorstElement worst;
  const auto e = exponent_of(t.dtype());
  if (!e || is_all_finite(t)) return worst;
  const auto* from = static_cast<const char*>(t.raw());
  const std::size_t parts = size_of(t.dtype()) / e->bytes;
  for (std::size_t i = 0; i * e->bytes < t.bytes() && worst.what != Finiteness::nan; ++i)
    if (const Finiteness f = finiteness_of(from + i * e->bytes, *e); f > worst.what)
      worst = {f, static_cast<std::int64_t>(i / parts)};
  return worst;
}

Finiteness worst_of(std::span<const Value> values) {
  Finiteness worst = Finiteness::finite;
  for (const Value& v : values) {
    if (v.is_list()) return Finiteness::nan;
    if (v.has_value()) worst = std::max(worst, worst_element(v.tensor()).what);
  }
  return worst;
}

std::string element_text(const Tensor& t, std::int64_t element) {
  const std::string whole = fmt::format("{}{}", name_of(t.dtype()), t.shape().text());
  if (t.rank() < 2) return fmt::format("element {} of {}", element, whole);
  std::vector<std::int64_t> index(static_cast<std::size_t>(t.rank()));
  for (int i = t.rank() - 1; i >= 0; --i) {
    index[static_cast<std::size_t>(i)] = element % t.shape()[i];
    element /= t.shape()[i];
  }
  return fmt::format("element [{}] of {}", fmt::join(index, ", "), whole);
}

}  // namespace troupe
