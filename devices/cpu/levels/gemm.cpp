// Matrix products by Eigen: f64, and f32 products too small for oneDNN's entry cost; tiny ones
// element by element, in an order that other code relies on (tiny_product.hpp). Eigen is
// renamed per level by the build (-DEigen=Eigen_v4), so that its templates are not shared.
// GCC 12 takes _mm512_undefined_pd() for an uninitialised read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

// After Eigen: functions from before tile.hpp's pragma are not inlined into those behind it, and a
// std::max left out of line would be a symbol that levels share.
#include <troupe/devices/cpu/levels/tile.hpp>
#include <troupe/devices/device/tiny_product.hpp>

namespace troupe::cpu {
namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ColMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
template <class T>
using Rows = Eigen::Map<const RowMajor<T>, 0, Eigen::OuterStride<>>;
template <class T>
using Columns = Eigen::Map<const ColMajor<T>, 0, Eigen::OuterStride<>>;

#if defined(__FMA__)
inline float sum_of(float sum, float a, float b) { return __builtin_fmaf(a, b, sum); }
inline double sum_of(double sum, double a, double b) { return __builtin_fma(a, b, sum); }
#else
template <class T>
inline T sum_of(T sum, T a, T b) {
  return sum + a * b;
}
#endif

template <class T>
void tiny_gemm(const GemmCall& g) {
  for (std::int64_t i = 0; i < g.m; ++i) {
    const T* const a = static_cast<const T*>(g.a) + i * g.a_rs;
    T* const c = static_cast<T*>(g.c) + i * g.c_rs;
    for (std::int64_t j = 0; j < g.n; ++j) {
      const T* const b = static_cast<const T*>(g.b) + j * g.b_cs;
      T sum = a[0] * b[0];
      for (std::int64_t k = 1; k < g.k; ++k) sum = sum_of(sum, a[k * g.a_cs], b[k * g.b_rs]);
      c[j] = sum;
    }
  }
}

// Few columns and a short sum, in the same order: b stays in registers. 200 rows of 2 times [2, 2]
// took 0.75 us by Eigen.
constexpr int kNarrow = 4;
template <class T, int n, int k>
void narrow_gemm(const GemmCall& g) {
  T b[k][n];
  for (int x = 0; x < k; ++x)
    for (int j = 0; j < n; ++j) b[x][j] = static_cast<const T*>(g.b)[x * g.b_rs + j * g.b_cs];
  for (std::int64_t i = 0; i < g.m; ++i) {
    const T* const a = static_cast<const T*>(g.a) + i * g.a_rs;
    T* const c = static_cast<T*>(g.c) + i * g.c_rs;
    T row[k];
    for (int x = 0; x < k; ++x) row[x] = a[x * g.a_cs];
    for (int j = 0; j < n; ++j) {
      T sum = row[0] * b[0][j];
      for (int x = 1; x < k; ++x) sum = sum_of(sum, row[x], b[x][j]);
      c[j] = sum;
    }
  }
}
template <class T, int n>
void narrow_gemm_of(const GemmCall& g) {
  switch (g.k) {
    case 1: return narrow_gemm<T, n, 1>(g);
    case 2: return narrow_gemm<T, n, 2>(g);
    case 3: return narrow_gemm<T, n, 3>(g);
    default: return narrow_gemm<T, n, 4>(g);
  }
}
template <class T>
void narrow_gemm_of(const GemmCall& g) {
  switch (g.n) {
    case 1: return narrow_gemm_of<T, 1>(g);
    case 2: return narrow_gemm_of<T, 2>(g);
    case 3: return narrow_gemm_of<T, 3>(g);
    default: return narrow_gemm_of<T, 4>(g);
  }
}

template <class T>
void gemm(const GemmCall& g) {
  if (g.k > 0 && g.k <= kNarrow && g.n > 0 && g.n <= kNarrow) return narrow_gemm_of<T>(g);
  if (is_tiny_product(g.m, g.n, g.k)) return tiny_gemm<T>(g);
  Eigen::Map<RowMajor<T>, 0, Eigen::OuterStride<>> c(static_cast<T*>(g.c), g.m, g.n,
                                                     Eigen::OuterStride<>(g.c_rs));
  auto a = static_cast<const T*>(g.a);
  auto b = static_cast<const T*>(g.b);
  bool a_rows = g.a_cs == 1, b_rows = g.b_cs == 1;
  auto with_b = [&](const auto& left) {
    if (b_rows) c.noalias() = left * Rows<T>(b, g.k, g.n, Eigen::OuterStride<>(g.b_rs));
    else c.noalias() = left * Columns<T>(b, g.k, g.n, Eigen::OuterStride<>(g.b_cs));
  };
  if (a_rows) with_b(Rows<T>(a, g.m, g.k, Eigen::OuterStride<>(g.a_rs)));
  else with_b(Columns<T>(a, g.m, g.k, Eigen::OuterStride<>(g.a_cs)));
}

}  // namespace

void TROUPE_FILL(gemm)(LevelKernels& k) {
  k.gemm_f32 = gemm<float>;
  k.gemm_f64 = gemm<double>;
}

}  // namespace troupe::cpu
