// Each reduction: its accumulator, how one element and how another accumulator are added, the
// result.
//
//   typename Op::Acc acc = Op::start(how);
//   Op::add(acc, x, index, how);
//   Op::merge(acc, other, how);  // of other elements, in any order: lanes interleave
//   out = Op::finish(acc, how);
//
// kMostTogether: elements that are loaded together at most; more are not worth their code. Merging:
// the reduction of accumulators that chunks have left.
#pragma once

#include <troupe/devices/cuda/kernels/elements.hpp>

namespace troupe::cuda {

// Decisions that the launch makes, to have fewer kernels.
struct How {
  bool is_mean = false, is_largest = false, is_all = false;
  std::uint64_t mask = 0;  // the bits of an element that make it true
  std::uint64_t sign = 0;  // the sign bit of signed integers, which kernels see as unsigned
  std::int64_t n = 0;      // elements reduced
};

template <class Op>
struct Merged;

template <class T>
struct Sum {
  static constexpr int kMostTogether = 8;
  using Merging = Merged<Sum>;
  using In = T;
  using Out = T;
  using Acc = Accumulator<T>;
  static __device__ Acc start(const How&) { return Acc{}; }
  static __device__ void add(Acc& acc, T x, std::int64_t, const How& how) {
    if constexpr (std::is_integral_v<T>)
      acc += (std::uint64_t{x} ^ how.sign) - how.sign;  // extends the sign
    else acc = plus(acc, accumulated(x));
  }
  static __device__ void merge(Acc& acc, Acc other, const How&) { acc = plus(acc, other); }
  static __device__ T finish(Acc acc, const How& how) {
    if (!how.is_mean) return narrowed<T>(acc);
    if constexpr (std::is_integral_v<T>) {
      if (how.n == 0) return 0;
      return how.sign ? static_cast<T>(static_cast<std::int64_t>(acc) / how.n)
                      : static_cast<T>(acc / static_cast<std::uint64_t>(how.n));
    } else if constexpr (is_complex_type<T>)
      return narrowed<T>(Acc{acc.re / double(how.n), acc.im / double(how.n)});
    else return narrowed<T>(acc / double(how.n));
  }
};

template <class T>
struct Product {
  static constexpr int kMostTogether = 8;
  using Merging = Merged<Product>;
  using In = T;
  using Out = T;
  using Acc = Accumulator<T>;
  static __device__ Acc start(const How&) {
    if constexpr (is_complex_type<T>) return {1, 0};
    else return 1;
  }
  static __device__ void add(Acc& acc, T x, std::int64_t, const How&) {
    acc = times(acc, accumulated(x));
  }
  static __device__ void merge(Acc& acc, Acc other, const How&) { acc = times(acc, other); }
  static __device__ T finish(Acc acc, const How&) { return narrowed<T>(acc); }
};

// A NaN is more extreme than any number.
template <class T>
__device__ bool is_better(T x, T best, const How& how) {
  if constexpr (std::is_integral_v<T>) {
    const T sign = static_cast<T>(how.sign), v = x ^ sign, b = best ^ sign;
    return how.is_largest ? v > b : v < b;
  } else {
    const auto v = wide(x), b = wide(best);
    return b == b && ((how.is_largest ? v > b : v < b) || v != v);
  }
}

template <class T>
struct Extremum {
  static constexpr int kMostTogether = 8;
  using Merging = Extremum;
  using In = T;
  using Out = T;
  using Acc = T;
  static __device__ T start(const How& how) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>((how.is_largest ? 0 : ~std::uint64_t{0}) ^ how.sign);
    else return narrowed<T>(how.is_largest ? -double(INFINITY) : double(INFINITY));
  }
  static __device__ void add(T& acc, T x, std::int64_t, const How& how) {
    if (is_better(x, acc, how)) acc = x;
  }
  static __device__ void merge(T& acc, T other, const How& how) { add(acc, other, 0, how); }
  static __device__ T finish(T acc, const How&) { return acc; }
};

// any and all, of the bits of elements.
struct Bits128 {
  std::uint64_t low, high;
};
template <class T>
struct Logical {
  static constexpr int kMostTogether = 16;
  using Merging = Logical<std::uint8_t>;
  using In = T;
  using Out = bool;
  using Acc = bool;
  static __device__ bool is_set(Bits128 x, std::uint64_t mask) {
    return ((x.low | x.high) & mask) != 0;
  }
  static __device__ bool is_set(std::uint64_t x, std::uint64_t mask) { return (x & mask) != 0; }
  static __device__ bool start(const How& how) { return how.is_all; }
  static __device__ void add(bool& acc, T x, std::int64_t, const How& how) {
    merge(acc, is_set(x, how.mask), how);
  }
  static __device__ void merge(bool& acc, bool other, const How& how) {
    acc = how.is_all ? acc && other : acc || other;
  }
  static __device__ bool finish(bool acc, const How&) { return acc; }
};

// The first of equals.
template <class T>
struct Where {
  static constexpr int kMostTogether = 4;
  using Merging = Merged<Where>;
  using In = T;
  using Out = std::int64_t;
  struct Acc {
    T best;
    std::int64_t index;
  };
  static __device__ Acc start(const How&) { return {T{}, -1}; }
  static __device__ void add(Acc& acc, T x, std::int64_t index, const How& how) {
    merge(acc, {x, index}, how);
  }
  static __device__ void merge(Acc& acc, Acc other, const How& how) {
    if (other.index < 0) return;
    const bool is_first = other.index < acc.index && !is_better(acc.best, other.best, how);
    if (acc.index < 0 || is_first || is_better(other.best, acc.best, how)) acc = other;
  }
  static __device__ std::int64_t finish(Acc acc, const How&) { return acc.index; }
};

// log(sum(exp(x))), shifted by the largest x so far, which itself adds 1. The rest is kept apart,
// so that it is not lost beside the 1.
template <class T>
struct LogSumExp {
  static constexpr int kMostTogether = 4;
  using Merging = Merged<LogSumExp>;
  using In = T;
  using Out = T;
  struct Acc {
    double top, rest;
  };
  static __device__ Acc start(const How&) { return {-INFINITY, 0}; }
  static __device__ void add(Acc& acc, T x, std::int64_t, const How& how) {
    merge(acc, {static_cast<double>(wide(x)), 0}, how);
  }
  static __device__ void merge(Acc& acc, Acc other, const How&) {
    if (other.top == -INFINITY) return;  // adds exp(-inf) = 0
    if (other.top != other.top || acc.top != acc.top) {
      acc = {NAN, NAN};
      return;
    }
    const bool is_higher = other.top > acc.top;
    const Acc high = is_higher ? other : acc, low = is_higher ? acc : other;
    const double more = 1 + low.rest;
    acc = {high.top, high.rest + (low.top == high.top ? more : more * exp(low.top - high.top))};
  }
  static __device__ T finish(Acc acc, const How&) {
    return narrowed<T>(acc.top == -INFINITY ? acc.top : acc.top + log1p(acc.rest));
  }
};

// Merges accumulators that chunks have left.
template <class Op>
struct Merged {
  static constexpr int kMostTogether = 4;
  using In = typename Op::Acc;
  using Out = typename Op::Out;
  using Acc = typename Op::Acc;
  static __device__ Acc start(const How& how) { return Op::start(how); }
  static __device__ void add(Acc& acc, In x, std::int64_t, const How& how) {
    Op::merge(acc, x, how);
  }
  static __device__ void merge(Acc& acc, Acc other, const How& how) { Op::merge(acc, other, how); }
  static __device__ Out finish(Acc acc, const How& how) { return Op::finish(acc, how); }
};

}  // namespace troupe::cuda
