// The window model's reader: which characters the n-th example shows. Examples are drawn without
// replacement, an epoch at a time, in an order keyed by (seed, epoch); the position is all its
// state.
//
//   Windows w = batch(text, order, step * size, size, context);   // feeds of one step
#pragma once

#include <bit>
#include <cstdint>

#include <troupe/apps/examples/char_lm/text.hpp>
#include <troupe/troupe.hpp>

namespace troupe::char_lm {

/// SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014).
inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// The i-th of the numbers in [0, 1) that a seed stands for.
inline double uniform(std::uint64_t seed, std::int64_t i) {
  return static_cast<double>(mixed(mixed(seed) + static_cast<std::uint64_t>(i)) >> 11) * 0x1p-53;
}

/// A permutation of [0, n) by number: a Feistel network over the next even power of two, walked
/// until it lands inside (Black and Rogaway, CT-RSA 2002).
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t key)
      : n_(n), key_(key), half_((std::bit_width(n - 1) + 1) / 2) {}
  std::uint64_t operator[](std::uint64_t i) const {
    do i = once(i);
    while (i >= n_);
    return i;
  }

 private:
  std::uint64_t once(std::uint64_t i) const {
    std::uint64_t mask = (std::uint64_t(1) << half_) - 1, left = i >> half_, right = i & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      std::uint64_t next = left ^ (mixed(key_ + round * 0xD1B54A32D192ED03 + mixed(right)) & mask);
      left = right;
      right = next;
    }
    return left << half_ | right;
  }
  std::uint64_t n_, key_;
  int half_;
};

/// The order of the examples' ends: positions of the text whose symbol is to be predicted.
class Order {
 public:
  /// Positions [begin, end).
  Order(std::int64_t begin, std::int64_t end, std::uint64_t seed)
      : begin_(begin), count_(end - begin), seed_(seed) {}
  std::int64_t operator[](std::int64_t example) const {
    auto n = static_cast<std::uint64_t>(count_), i = static_cast<std::uint64_t>(example);
    return begin_ + static_cast<std::int64_t>(Permutation(n, mixed(seed_) + mixed(i / n))[i % n]);
  }
  std::int64_t epoch_size() const { return count_; }

 private:
  std::int64_t begin_, count_;
  std::uint64_t seed_;
};

/// The feeds of one run: contexts [rows, context] and the symbols that follow them, [rows].
struct Windows {
  Tensor contexts, labels;
};

/// The windows that end before `position(0)`, ..., `position(rows - 1)`.
template <class F>
Windows windows(const Text& text, std::int64_t rows, std::int64_t context, F position) {
  Windows w{Tensor::empty(DType::i32, {rows, context}), Tensor::empty(DType::i32, {rows})};
  auto* contexts = w.contexts.mutable_data<std::int32_t>();
  auto* labels = w.labels.mutable_data<std::int32_t>();
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t at = position(r);
    for (std::int64_t i = 0; i < context; ++i) *contexts++ = text.symbol(at - context + i);
    labels[r] = text.symbol(at);
  }
  return w;
}

}  // namespace troupe::char_lm
