#include <troupe/devices/cpu/products/thin_svd.hpp>

#include <algorithm>

#include <Eigen/SVD>

namespace troupe::cpu {

void thin_svd(const double* a, std::int64_t m, std::int64_t n, double* u, double* s, double* v) {
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const std::int64_t k = std::min(m, n);
  Eigen::BDCSVD<Eigen::MatrixXd> made(Eigen::Map<const Rows>(a, m, n),
                                      Eigen::ComputeThinU | Eigen::ComputeThinV);
  Eigen::Map<Rows>(u, m, k) = made.matrixU();
  Eigen::Map<Eigen::VectorXd>(s, k) = made.singularValues();
  Eigen::Map<Rows>(v, n, k) = made.matrixV();
}

}  // namespace troupe::cpu
