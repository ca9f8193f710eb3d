// Dense linear algebra, one matrix a call: Cholesky, solving and determinants by blocks
// (factor.hpp), QR, SVD, eigenvalues and cofactors by Eigen. The matrices of a batch run on the
// pool.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <Eigen/QR>

#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/products/factor.hpp>
#include <troupe/devices/cpu/products/thin_svd.hpp>
#include <troupe/devices/device/algebra.hpp>

namespace troupe::cpu {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;
template <class T>
using Rows = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using In = Eigen::Map<const Rows<T>>;
template <class T>
using Out = Eigen::Map<Rows<T>>;

template <class T>
class Item {
 public:
  Item(const AlgebraArgs& args, std::int64_t index)
      : args_(args), index_(index),
        a_(static_cast<const T*>(args.a.data()) + index * args.m * args.n, args.m, args.n) {}

  void run() {
    switch (args_.what) {
      case Algebra::cholesky: return cholesky();
      case Algebra::qr: return qr();
      case Algebra::svd: return svd();
      case Algebra::eigh: return eigh();
      case Algebra::solve: return solve();
      case Algebra::triangular_solve: return triangular_solve();
      case Algebra::determinant: return determinant();
      case Algebra::cofactors: return cofactors();
    }
  }

 private:
  Out<T> out(int i, std::int64_t rows, std::int64_t columns) {
    return {static_cast<T*>(args_.out[static_cast<std::size_t>(i)].data) + index_ * rows * columns,
            rows, columns};
  }
  [[noreturn]] void refuse(const char* why) const {
    throw Error(Code::invalid_argument, fmt::format("matrix {} of the batch {}", index_, why));
  }

  void cholesky() {
    // Reads the lower half alone. Reports a matrix that is not positive definite; NaN yields NaN.
    const std::int64_t n = args_.n;
    T* l = out(0, n, n).data();
    bool is_finite = true;
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        l[i * n + j] = a_(i, j);
        is_finite = is_finite && std::isfinite(a_(i, j));
      }
    for (std::int64_t i = 0; !is_finite && i < n; ++i)
      std::fill_n(l + i * n, i + 1, std::numeric_limits<T>::quiet_NaN());
    if (is_finite && !factor_cholesky(l, n)) refuse("is not positive definite");
    for (std::int64_t i = 0; i < n; ++i) std::fill(l + i * n + i + 1, l + (i + 1) * n, T(0));
  }
  // Works on columns scaled to near 1, so that no square of theirs is too large or too small: q is
  // the same, and the columns of r are scaled back.
  void qr() {
    const std::int64_t k = std::min(args_.m, args_.n);
    Matrix<T> near_one = a_;
    std::vector<int> exponents(static_cast<std::size_t>(args_.n), 0);
    for (std::int64_t j = 0; j < args_.n; ++j) {
      const T largest = args_.m > 0 ? a_.col(j).cwiseAbs().maxCoeff() : T(0);
      if (!(largest > 0) || !std::isfinite(largest)) continue;
      int& e = exponents[static_cast<std::size_t>(j)];
      std::frexp(largest, &e);
      for (std::int64_t i = 0; i < args_.m; ++i) near_one(i, j) = std::ldexp(a_(i, j), -e);
    }
    Eigen::HouseholderQR<Matrix<T>> made(near_one);
    Matrix<T> q = made.householderQ() * Matrix<T>::Identity(args_.m, k);
    Matrix<T> r = made.matrixQR().topRows(k).template triangularView<Eigen::Upper>();
    for (std::int64_t i = 0; i < k; ++i)
      if (r(i, i) < 0) {
        q.col(i) *= -1;
        r.row(i) *= -1;
      }
    for (std::int64_t j = 0; j < args_.n; ++j)
      for (std::int64_t i = 0; i <= std::min(j, k - 1); ++i)
        r(i, j) = std::ldexp(r(i, j), exponents[static_cast<std::size_t>(j)]);
    out(0, args_.m, k) = q;
    out(1, k, args_.n) = r;
  }
  // The sign of a vector is arbitrary: its largest element is made positive.
  template <class Column>
  static bool points_back(const Column& c) {
    Eigen::Index largest = 0;
    c.cwiseAbs().maxCoeff(&largest);
    return c[largest] < 0;
  }
  void svd() {
    const std::int64_t k = std::min(args_.m, args_.n);
    auto u = out(0, args_.m, k), s = out(1, k, 1), v = out(2, args_.n, k);
    if (!a_.allFinite()) {
      const T nan = std::numeric_limits<T>::quiet_NaN();
      u.setConstant(nan), s.setConstant(nan), v.setConstant(nan);
      return;
    }
    // f32 too: one instance to compile, and its last bits are right
    const Rows<double> wide = a_.template cast<double>();
    Rows<double> left(args_.m, k), values(k, 1), right(args_.n, k);
    thin_svd(wide.data(), args_.m, args_.n, left.data(), values.data(), right.data());
    u = left.cast<T>();
    s = values.cast<T>();
    v = right.cast<T>();
    for (std::int64_t i = 0; i < k; ++i)
      if (points_back(u.col(i))) {
        u.col(i) *= -1;
        v.col(i) *= -1;
      }
  }
  void eigh() {
    auto values = out(0, args_.n, 1), vectors = out(1, args_.n, args_.n);
    // the other one is not looked at
    const Matrix<T> half = a_.template triangularView<Eigen::Lower>();
    if (!half.allFinite()) {
      const T nan = std::numeric_limits<T>::quiet_NaN();
      values.setConstant(nan), vectors.setConstant(nan);
      return;
    }
    Eigen::SelfAdjointEigenSolver<Matrix<T>> made(half);
    values = made.eigenvalues();
    vectors = made.eigenvectors();
    for (std::int64_t i = 0; i < args_.n; ++i)
      if (points_back(vectors.col(i))) vectors.col(i) *= -1;
  }
  const T* b() const {
    return static_cast<const T*>(args_.b.data()) + index_ * args_.n * args_.right;
  }
  // A copy of a as its factors, and which of its rows each row is of.
  struct Factors {
    std::vector<T> lu;
    std::vector<std::int64_t> from;
    int sign;
    explicit Factors(const In<T>& a)
        : lu(a.data(), a.data() + a.size()), from(static_cast<std::size_t>(a.rows())),
          sign(factor_lu(lu.data(), a.rows(), from.data())) {}
    Triangle<T> l() const { return {lu.data(), std::ssize(from), std::ssize(from), 1, true, true}; }
    Triangle<T> u() const { return {lu.data(), std::ssize(from), std::ssize(from), 1, false}; }
    T pivot(std::int64_t i) const {
      return lu[static_cast<std::size_t>(i * (std::ssize(from) + 1))];
    }
  };
  void solve() {
    const std::int64_t n = args_.n, right = args_.right;
    const Factors f(a_);
    for (std::int64_t i = 0; i < n; ++i)
      if (f.pivot(i) == 0) refuse("is singular");
    T* x = out(0, n, right).data();
    auto row = [&](std::int64_t i) { return f.from[static_cast<std::size_t>(i)] * right; };
    if (args_.transposed) {
      std::vector<T> y(b(), b() + n * right);
      solve_triangle(f.u().transposed(), y.data(), right);
      solve_triangle(f.l().transposed(), y.data(), right);
      for (std::int64_t i = 0; i < n; ++i) std::copy_n(y.data() + i * right, right, x + row(i));
    } else {
      for (std::int64_t i = 0; i < n; ++i) std::copy_n(b() + row(i), right, x + i * right);
      solve_triangle(f.l(), x, right);
      solve_triangle(f.u(), x, right);
    }
  }
  void triangular_solve() {
    if ((a_.diagonal().array() == T(0)).any()) refuse("is singular: its diagonal has a zero");
    T* x = out(0, args_.n, args_.right).data();
    std::copy_n(b(), args_.n * args_.right, x);
    const Triangle<T> triangle{a_.data(), args_.n, args_.n, 1, args_.lower};
    solve_triangle(args_.transposed ? triangle.transposed() : triangle, x, args_.right);
  }
  void determinant() {
    const Factors f(a_);
    T sign = static_cast<T>(f.sign);
    double log = 0;
    for (std::int64_t i = 0; i < args_.n; ++i) {
      const T d = f.pivot(i);
      sign *= T((d > 0) - (d < 0));
      log += std::log(std::abs(double(d)));
    }
    out(0, 1, 1)(0, 0) = std::isnan(log) ? static_cast<T>(log) : sign;
    out(1, 1, 1)(0, 0) = static_cast<T>(log);
  }
  // By l u = p a q with the largest remaining element as each pivot: zeros are then last, and
  // nothing is divided by the last pivot. If two pivots are 0, all cofactors are 0.
  void cofactors() {
    const std::int64_t n = args_.n, m = n - 1;
    auto made = out(0, n, n);
    if (!a_.allFinite()) return void(made.setConstant(std::numeric_limits<T>::quiet_NaN()));
    const Eigen::FullPivLU<Matrix<double>> f(a_.template cast<double>());
    const Matrix<double>& lu = f.matrixLU();
    double sign =
               static_cast<double>(f.permutationP().determinant() * f.permutationQ().determinant()),
           log = 0;
    for (std::int64_t i = 0; i < m; ++i) {
      if (lu(i, i) == 0) return void(made.setZero());
      if (lu(i, i) < 0) sign = -sign;
      log += std::log(std::abs(lu(i, i)));
    }
    // The adjugate of u, but for the product of all pivots before the last.
    Matrix<double> x = Matrix<double>::Zero(n, n);
    x(m, m) = 1;
    x.topLeftCorner(m, m).diagonal().setConstant(lu(m, m));
    x.topRightCorner(m, 1) = -lu.topRightCorner(m, 1);
    lu.topLeftCorner(m, m).triangularView<Eigen::Upper>().solveInPlace(x.topRows(m));
    lu.triangularView<Eigen::UnitLower>().solveInPlace<Eigen::OnTheRight>(x);
    x = f.permutationQ() * x * f.permutationP();
    made = (x.transpose() * (sign * std::exp(log))).template cast<T>();
  }

  const AlgebraArgs& args_;
  std::int64_t index_;
  In<T> a_;
};

template <class T>
void run_all(WorkerPool* pool, const AlgebraArgs& args) {
  const bool is_small = args.batch * args.m * args.n * std::min(args.m, args.n) <= kSmallWork;
  for_blocks(is_small ? nullptr : pool, args.batch, [&](int i) { Item<T>(args, i).run(); });
}

}  // namespace

void CpuPrimitives::algebra(Stream&, const AlgebraArgs& args) const {
  if (args.batch == 0) return;
  if (args.m == 0 || args.n == 0) {
    // The determinant of nothing is 1; all else is empty, but for q r of no columns.
    if (args.what != Algebra::determinant) return;
    for (std::int64_t i = 0; i < args.batch; ++i) {
      if (args.a.dtype == DType::f32)
        static_cast<float*>(args.out[0].data)[i] = 1, static_cast<float*>(args.out[1].data)[i] = 0;
      else
        static_cast<double*>(args.out[0].data)[i] = 1,
        static_cast<double*>(args.out[1].data)[i] = 0;
    }
    return;
  }
  if (args.a.dtype == DType::f32) return run_all<float>(pool_, args);
  if (args.a.dtype == DType::f64) return run_all<double>(pool_, args);
  throw Error(Code::unimplemented,
              fmt::format("linear algebra of {} is not defined", name_of(args.a.dtype)));
}

}  // namespace troupe::cpu
