// Dense linear algebra by Eigen, one matrix a call; the matrices of a batch run on the pool.
#include <cmath>
#include <limits>

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <Eigen/QR>
#include <fmt/format.h>

#include <troupe/devices/algebra.hpp>
#include <troupe/devices/cpu/blocks.hpp>
#include <troupe/devices/cpu/cpu_primitives.hpp>
#include <troupe/devices/cpu/thin_svd.hpp>

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
      : args_(args), index_(index), a_(static_cast<const T*>(args.a.data()) + index * args.m * args.n, args.m, args.n) {}

  void run() {
    switch (args_.what) {
      case Algebra::cholesky: return cholesky();
      case Algebra::qr: return qr();
      case Algebra::svd: return svd();
      case Algebra::eigh: return eigh();
      case Algebra::solve: return solve();
      case Algebra::triangular_solve: return triangular_solve();
      case Algebra::determinant: return determinant();
    }
  }

 private:
  Out<T> out(int i, std::int64_t rows, std::int64_t columns) { return {static_cast<T*>(args_.out[static_cast<std::size_t>(i)].data) + index_ * rows * columns, rows, columns}; }
  [[noreturn]] void refuse(const char* why) const { throw Error(Code::invalid_argument, fmt::format("matrix {} of the batch {}", index_, why)); }

  void cholesky() {
    // Of the lower half alone. Of a matrix that is not positive definite it says so, of NaN it makes NaN.
    const Matrix<T> half = a_.template triangularView<Eigen::Lower>();
    if (!half.allFinite()) {
      Matrix<T> nothing = Matrix<T>::Constant(args_.n, args_.n, std::numeric_limits<T>::quiet_NaN());
      out(0, args_.n, args_.n) = nothing.template triangularView<Eigen::Lower>();
      return;
    }
    Eigen::LLT<Matrix<T>, Eigen::Lower> l(half);
    if (l.info() != Eigen::Success) refuse("is not positive definite");
    out(0, args_.n, args_.n) = Matrix<T>(l.matrixL());
  }
  void qr() {
    const std::int64_t k = std::min(args_.m, args_.n);
    Eigen::HouseholderQR<Matrix<T>> made(a_);
    Matrix<T> q = made.householderQ() * Matrix<T>::Identity(args_.m, k);
    Matrix<T> r = made.matrixQR().topRows(k).template triangularView<Eigen::Upper>();
    for (std::int64_t i = 0; i < k; ++i)
      if (r(i, i) < 0) {
        q.col(i) *= -1;
        r.row(i) *= -1;
      }
    out(0, args_.m, k) = q;
    out(1, k, args_.n) = r;
  }
  // The sign of a vector is nobody's: its largest element is made positive.
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
    const Rows<double> wide = a_.template cast<double>();  // f32 too: one instance to compile, and its last bits are right
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
    const Matrix<T> half = a_.template triangularView<Eigen::Lower>();  // the other one is not looked at
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
  In<T> b() const { return {static_cast<const T*>(args_.b.data()) + index_ * args_.n * args_.right, args_.n, args_.right}; }
  void solve() {
    Eigen::PartialPivLU<Matrix<T>> lu(a_);
    if ((lu.matrixLU().diagonal().array() == T(0)).any()) refuse("is singular");
    if (args_.transposed) out(0, args_.n, args_.right) = lu.transpose().solve(b());
    else out(0, args_.n, args_.right) = lu.solve(b());
  }
  void triangular_solve() {
    if ((a_.diagonal().array() == T(0)).any()) refuse("is singular: its diagonal has a zero");
    Matrix<T> x = b();
    if (args_.lower && args_.transposed) a_.transpose().template triangularView<Eigen::Upper>().solveInPlace(x);
    else if (args_.lower) a_.template triangularView<Eigen::Lower>().solveInPlace(x);
    else if (args_.transposed) a_.transpose().template triangularView<Eigen::Lower>().solveInPlace(x);
    else a_.template triangularView<Eigen::Upper>().solveInPlace(x);
    out(0, args_.n, args_.right) = x;
  }
  void determinant() {
    Eigen::PartialPivLU<Matrix<T>> lu(a_);
    T sign = lu.permutationP().determinant();
    double log = 0;
    for (std::int64_t i = 0; i < args_.n; ++i) {
      const T d = lu.matrixLU()(i, i);
      sign *= T((d > 0) - (d < 0));
      log += std::log(std::abs(double(d)));
    }
    out(0, 1, 1)(0, 0) = std::isnan(log) ? static_cast<T>(log) : sign;
    out(1, 1, 1)(0, 0) = static_cast<T>(log);
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
      if (args.a.dtype == DType::f32) static_cast<float*>(args.out[0].data)[i] = 1, static_cast<float*>(args.out[1].data)[i] = 0;
      else static_cast<double*>(args.out[0].data)[i] = 1, static_cast<double*>(args.out[1].data)[i] = 0;
    }
    return;
  }
  if (args.a.dtype == DType::f32) return run_all<float>(pool_, args);
  if (args.a.dtype == DType::f64) return run_all<double>(pool_, args);
  throw Error(Code::unimplemented, fmt::format("linear algebra of {} is not defined", name_of(args.a.dtype)));
}

}  // namespace troupe::cpu
