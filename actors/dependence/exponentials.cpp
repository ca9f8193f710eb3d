#include <troupe/actors/dependence/exponentials.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

namespace troupe::dependence {
namespace {

using ExpLanes [[gnu::vector_size(16)]] = double;
using ExpBits [[gnu::vector_size(16)]] = std::int64_t;
constexpr std::size_t kLanesOfExp = 2;

constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: its sum has an integer in its bits
constexpr int kExpSteps = 64;                    // a doubling
// ln 2 / 64 in two parts: a product of the first with an integer of 17 bits is exact
constexpr double kStepHigh = 0x1.62e42fefa0000p-7, kStepLow = 0x1.cf79abc9e3b3ap-46;

struct ExpTable {
  ExpTable() {
    for (int i = 0; i < kExpSteps; ++i) power[i] = std::exp2(static_cast<double>(i) / kExpSteps);
  }
  double power[kExpSteps];  // 2^(i / 64)
};

}  // namespace

// exp(x) = 2^k 2^(i/64) exp(r), |r| <= ln(2) / 128: the second from a table, the third by its
// series.
void exponentials(const double* x, double* y) {
  static const ExpTable table;
  for (std::size_t i = 0; i < kExpBlock; i += kLanesOfExp) {
    ExpLanes v;
    std::memcpy(&v, x + i, sizeof v);
    v = v < -700 ? ExpLanes{} - 700 : v;
    v = v > 700 ? ExpLanes{} + 700 : v;
    const ExpLanes shifted = v * (std::numbers::log2e * kExpSteps) + kRounder,
                   whole = shifted - kRounder, r = v - whole * kStepHigh - whole * kStepLow,
                   square = r * r;
    ExpLanes sum =
        1 + r + square * (0.5 + r * (1.0 / 6)) + square * square * (1.0 / 24 + r * (1.0 / 120));
    const ExpBits bits = (ExpBits)shifted, step = bits & (kExpSteps - 1);
    const ExpLanes power{table.power[step[0]], table.power[step[1]]};
    sum = (ExpLanes)((ExpBits)(sum * power) + ((bits - step) << 46));
    std::memcpy(y + i, &sum, sizeof sum);
  }
}

// The logarithm of a product of mantissas, and the sum of the exponents.
double sum_of_logs(const std::vector<double>& values) {
  constexpr std::int64_t kMantissa = 0x000fffffffffffff, kOne = 0x3ff0000000000000;
  constexpr std::size_t kProducts = 4,
                        kMost = 128;  // mantissas below 2 a lane, so that no product overflows
  double logs = 0;
  std::int64_t exponents = 0;
  for (std::size_t begin = 0; begin < values.size();) {
    const std::size_t end = std::min(values.size(), begin + kMost * kProducts);
    double product[kProducts] = {1, 1, 1, 1};
    for (std::size_t i = begin; i < end; ++i) {
      const auto bits = std::bit_cast<std::int64_t>(std::max(values[i], 1e-300));
      exponents += (bits >> 52) - 1023;
      product[i % kProducts] *= std::bit_cast<double>((bits & kMantissa) | kOne);
    }
    for (const double p : product) logs += std::log(p);
    begin = end;
  }
  return logs + static_cast<double>(exponents) * std::numbers::ln2;
}

}  // namespace troupe::dependence
