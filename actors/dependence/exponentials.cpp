#include <troupe/actors/dependence/exponentials.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

namespace troupe::dependence {
namespace {

// Without AVX2 the compiler makes two operations of one.
using ExpLanes [[gnu::vector_size(32)]] = double;
using ExpBits [[gnu::vector_size(32)]] = std::int64_t;
constexpr std::size_t kLanesOfExp = 4;

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

const ExpTable& exp_table() {
  static const ExpTable table;
  return table;
}

// exp(v) = 2^k 2^(i/64) exp(r), |r| <= ln(2) / 128: the second from a table, the third by its
// series.
[[gnu::always_inline]] inline void exp_lanes(const ExpTable& table, ExpLanes& v) {
  v = v < -700 ? ExpLanes{} - 700 : v;
  v = v > 700 ? ExpLanes{} + 700 : v;
  const ExpLanes shifted = v * (std::numbers::log2e * kExpSteps) + kRounder,
                 whole = shifted - kRounder, r = v - whole * kStepHigh - whole * kStepLow,
                 square = r * r;
  const ExpLanes sum =
      1 + r + square * (0.5 + r * (1.0 / 6)) + square * square * (1.0 / 24 + r * (1.0 / 120));
  const ExpBits bits = (ExpBits)shifted, step = bits & (kExpSteps - 1);
  const ExpLanes power{table.power[step[0]], table.power[step[1]], table.power[step[2]],
                       table.power[step[3]]};
  v = (ExpLanes)((ExpBits)(sum * power) + ((bits - step) << 46));
}

[[gnu::always_inline]] inline void exp_block(const double* x, double* y) {
  const ExpTable& table = exp_table();
  for (std::size_t i = 0; i < kExpBlock; i += kLanesOfExp) {
    ExpLanes v;
    std::memcpy(&v, x + i, sizeof v);
    exp_lanes(table, v);
    std::memcpy(y + i, &v, sizeof v);
  }
}

[[gnu::always_inline]] inline void exp_of(double constant, double a, const double* x, double b,
                                          const double* t, double* y, std::size_t n) {
  const ExpTable& table = exp_table();
  for (std::size_t i = 0; i < n; i += kLanesOfExp) {
    ExpLanes u, w;
    std::memcpy(&u, x + i, sizeof u);
    std::memcpy(&w, t + i, sizeof w);
    ExpLanes v = constant + a * u + b * w;
    exp_lanes(table, v);
    std::memcpy(y + i, &v, sizeof v);
  }
}

[[gnu::always_inline]] inline void exp_sums(const double* z, const std::uint32_t* of,
                                            const double* factors, const double* x, const double* t,
                                            std::size_t n, WeightedSums& sums) {
  ExpLanes weights{}, xs{}, ts{};
  std::size_t i = 0;
  for (; i + kLanesOfExp <= n; i += kLanesOfExp) {
    ExpLanes w, u, v;
    std::memcpy(&w, z + i, sizeof w);
    std::memcpy(&u, x + i, sizeof u);
    std::memcpy(&v, t + i, sizeof v);
    w *= ExpLanes{factors[of[i]], factors[of[i + 1]], factors[of[i + 2]], factors[of[i + 3]]};
    weights += w;
    xs += w * u;
    ts += w * v;
  }
  for (std::size_t lane = 0; lane < kLanesOfExp; ++lane) {
    sums.weights += weights[lane];
    sums.xs += xs[lane];
    sums.ts += ts[lane];
  }
  for (; i < n; ++i) {
    const double w = z[i] * factors[of[i]];
    sums.weights += w;
    sums.xs += w * x[i];
    sums.ts += w * t[i];
  }
}

[[gnu::always_inline]] inline double exp_products(const double* x, const double* y, std::size_t n) {
  ExpLanes lanes[2] = {};  // two, because each addition waits for the last one
  std::size_t i = 0;
  for (; i + 2 * kLanesOfExp <= n; i += 2 * kLanesOfExp)
    for (std::size_t half = 0; half < 2; ++half) {
      ExpLanes u, v;
      std::memcpy(&u, x + i + half * kLanesOfExp, sizeof u);
      std::memcpy(&v, y + i + half * kLanesOfExp, sizeof v);
      lanes[half] += u * v;
    }
  double sum = 0;
  lanes[0] += lanes[1];
  for (std::size_t lane = 0; lane < kLanesOfExp; ++lane) sum += lanes[0][lane];
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

#if defined(__x86_64__)
const bool kHasAvx2 = __builtin_cpu_supports("avx2");
[[gnu::target("avx2")]] void exp_block_avx2(const double* x, double* y) { exp_block(x, y); }
[[gnu::target("avx2")]] void exp_of_avx2(double constant, double a, const double* x, double b,
                                         const double* t, double* y, std::size_t n) {
  exp_of(constant, a, x, b, t, y, n);
}
[[gnu::target("avx2")]] void exp_sums_avx2(const double* z, const std::uint32_t* of,
                                           const double* factors, const double* x, const double* t,
                                           std::size_t n, WeightedSums& sums) {
  exp_sums(z, of, factors, x, t, n, sums);
}
[[gnu::target("avx2")]] double exp_products_avx2(const double* x, const double* y, std::size_t n) {
  return exp_products(x, y, n);
}
#endif

}  // namespace

void exponentials(const double* x, double* y) {
#if defined(__x86_64__)
  if (kHasAvx2) return exp_block_avx2(x, y);
#endif
  exp_block(x, y);
}

void exponentials_of(double constant, double a, const double* x, double b, const double* t,
                     double* y, std::size_t n) {
#if defined(__x86_64__)
  if (kHasAvx2) return exp_of_avx2(constant, a, x, b, t, y, n);
#endif
  exp_of(constant, a, x, b, t, y, n);
}

WeightedSums weighted_sums(const double* z, const std::uint32_t* of, const double* factors,
                           const double* x, const double* t, std::size_t n) {
  WeightedSums sums;
#if defined(__x86_64__)
  if (kHasAvx2) {
    exp_sums_avx2(z, of, factors, x, t, n, sums);
    return sums;
  }
#endif
  exp_sums(z, of, factors, x, t, n, sums);
  return sums;
}

double sum_of_products(const double* x, const double* y, std::size_t n) {
#if defined(__x86_64__)
  if (kHasAvx2) return exp_products_avx2(x, y, n);
#endif
  return exp_products(x, y, n);
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
