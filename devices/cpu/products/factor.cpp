#include <troupe/devices/cpu/products/factor.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <troupe/devices/cpu/products/gemm.hpp>

namespace troupe::cpu {
namespace {

constexpr std::int64_t kFactorBlock = 64;

// Elements (i, j) at a[i * rs + j * cs].
template <class T>
struct Strided {
  const T* a;
  std::int64_t rs, cs;
};

// to [m, n], its rows `step` apart, less a [m, k] times b [k, n]; by way of `part`.
template <class T>
void subtract_product(T* to, std::int64_t step, Strided<T> a, Strided<T> b, std::int64_t m,
                      std::int64_t n, std::int64_t k, std::vector<T>& part) {
  if (m == 0 || n == 0) return;
  part.resize(static_cast<std::size_t>(m * n));
  gemm(dtype_of<T>, {m, n, k, a.a, a.rs, a.cs, b.a, b.rs, b.cs, part.data(), n});
  for (std::int64_t i = 0; i < m; ++i) {
    const T* from = part.data() + i * n;
    for (std::int64_t j = 0; j < n; ++j) to[i * step + j] -= from[j];
  }
}

template <class T>
void subtract_times(T* to, const T* from, T factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] -= factor * from[i];
}

// A diagonal block, `width` wide in rows of n: its own lower half alone.
template <class T>
bool factor_corner(T* a, std::int64_t n, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) {
    T pivot = a[j * n + j];
    for (std::int64_t k = 0; k < j; ++k) pivot -= a[j * n + k] * a[j * n + k];
    if (!(pivot > 0)) return false;
    const T root = a[j * n + j] = std::sqrt(pivot);
    for (std::int64_t i = j + 1; i < width; ++i) {
      T left = a[i * n + j];
      for (std::int64_t k = 0; k < j; ++k) left -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = left / root;
    }
  }
  return true;
}

}  // namespace

template <class T>
void solve_triangle(const Triangle<T>& t, T* x, std::int64_t right) {
  std::vector<T> part;
  const std::int64_t blocks = (t.n + kFactorBlock - 1) / kFactorBlock;
  for (std::int64_t step = 0; step < blocks; ++step) {
    const std::int64_t first = (t.lower ? step : blocks - 1 - step) * kFactorBlock,
                       end = std::min(t.n, first + kFactorBlock);
    for (std::int64_t k = 0; k < end - first; ++k) {
      const std::int64_t i = t.lower ? first + k : end - 1 - k, done = t.lower ? first : i + 1,
                         done_end = t.lower ? i : end;
      T* row = x + i * right;
      for (std::int64_t j = done; j < done_end; ++j)
        subtract_times(row, x + j * right, t.a[i * t.rs + j * t.cs], right);
      if (t.unit) continue;
      const T pivot = t.a[i * t.rs + i * t.cs];
      for (std::int64_t c = 0; c < right; ++c) row[c] /= pivot;
    }
    const std::int64_t left = t.lower ? end : 0, left_end = t.lower ? t.n : first;
    subtract_product<T>(x + left * right, right, {t.a + left * t.rs + first * t.cs, t.rs, t.cs},
                        {x + first * right, right, 1}, left_end - left, right, end - first, part);
  }
}

template <class T>
bool factor_cholesky(T* a, std::int64_t n) {
  std::vector<T> part, turned;
  for (std::int64_t first = 0; first < n; first += kFactorBlock) {
    const std::int64_t end = std::min(n, first + kFactorBlock), width = end - first, rest = n - end;
    T* corner = a + first * n + first;
    if (!factor_corner(corner, n, width)) return false;
    // The rows below, l21 with l21 l11^T = a21, as columns.
    turned.resize(static_cast<std::size_t>(width * rest));
    for (std::int64_t i = 0; i < rest; ++i)
      for (std::int64_t j = 0; j < width; ++j)
        turned[static_cast<std::size_t>(j * rest + i)] = a[(end + i) * n + first + j];
    solve_triangle<T>({corner, width, n, 1, true}, turned.data(), rest);
    for (std::int64_t i = 0; i < rest; ++i)
      for (std::int64_t j = 0; j < width; ++j)
        a[(end + i) * n + first + j] = turned[static_cast<std::size_t>(j * rest + i)];
    // Subtracts l21 l21^T from the rest, one column of blocks after another from its diagonal on.
    for (std::int64_t j = end; j < n; j += kFactorBlock) {
      const T* row = a + j * n + first;
      subtract_product<T>(a + j * n + j, n, {row, n, 1}, {row, 1, n}, n - j,
                          std::min(kFactorBlock, n - j), width, part);
    }
  }
  return true;
}

template <class T>
int factor_lu(T* a, std::int64_t n, std::int64_t* from) {
  int sign = 1;
  std::iota(from, from + n, std::int64_t{0});
  std::vector<T> part, top;
  for (std::int64_t first = 0; first < n; first += kFactorBlock) {
    const std::int64_t end = std::min(n, first + kFactorBlock), width = end - first, rest = n - end;
    for (std::int64_t j = first; j < end; ++j) {
      std::int64_t best = j;  // a NaN, if there is one: then the rest of the result is NaN
      for (std::int64_t i = j + 1; i < n; ++i)
        if (std::abs(a[i * n + j]) > std::abs(a[best * n + j]) || std::isnan(a[i * n + j]))
          best = i;
      if (best != j) {
        std::swap_ranges(a + j * n, a + (j + 1) * n, a + best * n);
        std::swap(from[j], from[best]);
        sign = -sign;
      }
      const T pivot = a[j * n + j];
      if (pivot == 0) continue;  // and so is all below
      for (std::int64_t i = j + 1; i < n; ++i) {
        const T factor = a[i * n + j] /= pivot;
        subtract_times(a + i * n + j + 1, a + j * n + j + 1, factor, end - j - 1);
      }
    }
    top.resize(static_cast<std::size_t>(width * rest));
    for (std::int64_t i = 0; i < width; ++i)
      std::copy_n(a + (first + i) * n + end, rest, top.data() + i * rest);
    solve_triangle<T>({a + first * n + first, width, n, 1, true, true}, top.data(), rest);
    for (std::int64_t i = 0; i < width; ++i)
      std::copy_n(top.data() + i * rest, rest, a + (first + i) * n + end);
    subtract_product<T>(a + end * n + end, n, {a + end * n + first, n, 1}, {top.data(), rest, 1},
                        rest, rest, width, part);
  }
  return sign;
}

template void solve_triangle(const Triangle<float>&, float*, std::int64_t);
template void solve_triangle(const Triangle<double>&, double*, std::int64_t);
template bool factor_cholesky(float*, std::int64_t);
template bool factor_cholesky(double*, std::int64_t);
template int factor_lu(float*, std::int64_t, std::int64_t*);
template int factor_lu(double*, std::int64_t, std::int64_t*);

}  // namespace troupe::cpu
