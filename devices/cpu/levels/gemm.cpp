// Matrix products by Eigen: f64, and f32 products too small for oneDNN's entry cost. Eigen is
// renamed per level by the build (-DEigen=Eigen_v4), so that its templates are not shared.
// GCC 12 takes _mm512_undefined_pd() for an uninitialised read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

// After Eigen: functions from before tile.hpp's pragma are not inlined into those behind it, and a
// std::max left out of line would be a symbol that levels share.
#include <troupe/devices/cpu/levels/tile.hpp>

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

template <class T>
void gemm(const GemmCall& g) {
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
