// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Kernels that take many elements at a time, against plain loops: at every level of this processor,
// at lengths around those they are cut at.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include <troupe/devices/base/radix_sort.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/cpu/scratch.hpp>
#include <troupe/devices/device/device.hpp>
#include <troupe/devices/device/philox.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/support/levels.hpp>
#include <troupe/test/support/numbers.hpp>

using namespace troupe;
using namespace troupe::test;
using cpu::LevelKernels;

BOOST_AUTO_TEST_SUITE(cpu_kernels_test)

namespace {

template <class T>
std::vector<T> numbers(std::int64_t n, std::mt19937_64& random) {
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& v : x) {
    if constexpr (std::is_integral_v<T>) v = static_cast<T>(random());
    else v = static_cast<T>(static_cast<double>(random() % 20'001) / 10'000 - 1);
  }
  return x;
}

template <class F>
void for_integers(F&& f) {
  for (DType t : {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16, DType::u32,
                  DType::u64})
    visit_dtype(t, [&]<class T>(type_tag<T> tag) {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) f(tag, int(t));
    });
}

template <class T>
bool is_before(T x, T y) {
  return x < y || (y != y && x == x);
}

template <class T>
void check_order(const std::vector<T>& x, std::int64_t count, bool descending) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<std::int64_t> wanted(x.size()), got(static_cast<std::size_t>(count));
  std::iota(wanted.begin(), wanted.end(), 0);
  std::stable_sort(wanted.begin(), wanted.end(), [&](std::int64_t i, std::int64_t j) {
    const T a = x[static_cast<std::size_t>(i)], b = x[static_cast<std::size_t>(j)];
    return descending ? is_before(b, a) : is_before(a, b);
  });
  RowSorter<T> sorter;
  sorter.sort(x.data(), n, count, descending, [&](std::int64_t place, std::int64_t at) {
    got[static_cast<std::size_t>(place)] = at;
  });
  wanted.resize(got.size());
  BOOST_TEST((got == wanted), n << " elements of " << sizeof(T) << " bytes, " << count
                                << " of them, descending " << descending);
}

constexpr std::int64_t kLengths[] = {1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300, 1000};

}  // namespace

BOOST_AUTO_TEST_CASE(words_are_philox) {
  const Generator generator({5, 6, 7, 8});
  for (const LevelKernels* k : levels())
    for (std::int64_t blocks : {1, 3, 8, 17})
      // the counter's low word carries
      for (std::uint64_t first : {std::uint64_t{0}, std::uint64_t{0xFFFFFFFA}}) {
        std::vector<std::uint32_t> words(static_cast<std::size_t>(4 * blocks)), wanted;
        k->philox(words.data(), generator.words().data(), first, blocks);
        for (std::int64_t b = 0; b < blocks; ++b)
          for (std::uint32_t w : generator.block(first + static_cast<std::uint64_t>(b)))
            wanted.push_back(w);
        BOOST_TEST((words == wanted));
      }
}

BOOST_AUTO_TEST_CASE(normals_are_box_mullers_at_every_level) {
  std::mt19937_64 random(3);
  std::vector<std::uint32_t> words = numbers<std::uint32_t>(2000, random);
  const std::uint32_t edges[] = {0,       0,        ~0u, 0,        ~0u, ~0u,
                                 ~0u - 1, 1u << 30, 0,   1u << 31, 1,   3u << 30};
  std::copy(std::begin(edges), std::end(edges), words.begin());
  std::vector<float> first;
  for (const LevelKernels* k : levels()) {
    std::vector<float> z(words.size());
    k->normal_f32(z.data(), words.data(), static_cast<std::int64_t>(z.size()));
    for (std::size_t i = 0; i < z.size(); i += 2) {
      const double u = (words[i] + 1.0) * 0x1p-32,
                   angle = words[i + 1] * 0x1p-32 * 6.283185307179586477,
                   radius = std::sqrt(-2 * std::log(u));
      BOOST_TEST(std::abs(z[i] - radius * std::cos(angle)) <= 1e-7 * radius);
      BOOST_TEST(std::abs(z[i + 1] - radius * std::sin(angle)) <= 1e-7 * radius);
    }
    if (first.empty()) first = z;
    BOOST_TEST((z == first));
  }
}

BOOST_AUTO_TEST_CASE(a_lone_element_has_the_bits_it_has_among_others) {
  const float special[] = {0.f, -0.f, 1.f,    -1.f,    INFINITY, -INFINITY,
                           NAN, -NAN, 1e-40f, -1e-40f, 3e38f,    0.4142f};
  constexpr std::size_t count = std::size(special) * std::size(special);
  std::vector<float> x(count + cpu::kPad), y(x), z(x);
  for (std::size_t i = 0; i < count; ++i)
    x[i] = special[i / std::size(special)], y[i] = special[i % std::size(special)];
  for (const LevelKernels* k : levels())
    for (ScalarOp op : {ScalarOp::tanh, ScalarOp::erf, ScalarOp::erfc, ScalarOp::gelu,
                        ScalarOp::gelu_slope, ScalarOp::expm1, ScalarOp::log1p, ScalarOp::sin,
                        ScalarOp::tan, ScalarOp::atan, ScalarOp::atan2}) {
      const cpu::TileFunction f = k->op[int(op)][int(DType::f32)];
      f(z.data(), x.data(), y.data(), nullptr, count);
      for (std::size_t i = 0; i < count; ++i) {
        float a[cpu::kPad] = {x[i]}, b[cpu::kPad] = {y[i]}, c[cpu::kPad];
        f(c, a, b, nullptr, 1);
        BOOST_TEST(std::memcmp(c, &z[i], sizeof(float)) == 0,
                   name_of(op) << " of " << x[i] << " and " << y[i] << ": " << c[0] << " alone, "
                               << z[i] << " among others");
      }
      if (op != ScalarOp::atan2) continue;
      for (std::size_t i = 0; i < count; ++i) {
        const double wanted = std::atan2(double(x[i]), double(y[i]));
        BOOST_TEST((ulps(DType::f32, z[i], wanted) <= 4 &&
                    (std::isnan(wanted) || std::signbit(z[i]) == std::signbit(wanted))),
                   x[i] << ", " << y[i] << ": " << z[i]);
      }
    }
}

BOOST_AUTO_TEST_CASE(integers_are_added_and_multiplied_modulo_2_to_64) {
  std::mt19937_64 random(4);
  for_integers([&]<class T>(type_tag<T>, int type) {
    for (std::int64_t n : kLengths) {
      const std::vector<T> x = numbers<T>(9 * n, random);
      std::uint64_t sum = 0, product = 1;
      for (std::int64_t i = 0; i < n; ++i)
        sum += static_cast<std::uint64_t>(x[static_cast<std::size_t>(i)]),
            product *= static_cast<std::uint64_t>(x[static_cast<std::size_t>(i)]);
      for (const LevelKernels* k : levels()) {
        BOOST_TEST(k->sum_int[type](x.data(), n) == sum);
        BOOST_TEST(k->product_int[type](x.data(), n) == product);
        std::vector<std::uint64_t> columns(static_cast<std::size_t>(n), 3), wanted = columns;
        k->add_rows_int[type](columns.data(), x.data(), 9, n, n);
        for (std::size_t i = 0; i < x.size(); ++i)
          wanted[i % static_cast<std::size_t>(n)] += static_cast<std::uint64_t>(x[i]);
        BOOST_TEST((columns == wanted));
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(extrema_of_rows_and_columns) {
  std::mt19937_64 random(5);
  auto check = [&]<class T>(type_tag<T>, int type) {
    for (std::int64_t n : kLengths)
      for (const LevelKernels* k : levels()) {
        const std::vector<T> x = numbers<T>(6 * n, random);
        T low, high;
        k->extremum[0][type](x.data(), n, &low);
        k->extremum[1][type](x.data(), n, &high);
        BOOST_TEST((low == *std::min_element(x.begin(), x.begin() + n) &&
                    high == *std::max_element(x.begin(), x.begin() + n)));
        std::vector<T> best(x.begin(), x.begin() + n), wanted = best;
        k->extremum_rows[1][type](best.data(), x.data(), 6, n, n);
        for (std::size_t i = 0; i < x.size(); ++i)
          wanted[i % static_cast<std::size_t>(n)] =
              std::max(wanted[i % static_cast<std::size_t>(n)], x[i]);
        BOOST_TEST((best == wanted));
        if constexpr (std::is_floating_point_v<T>)
          for (std::int64_t bad : {std::int64_t{0}, n / 2, n - 1}) {
            std::vector<T> y(x.begin(), x.begin() + n);
            y[static_cast<std::size_t>(bad)] = std::numeric_limits<T>::quiet_NaN();
            k->extremum[0][type](y.data(), n, &low);
            BOOST_TEST(std::isnan(low));
            std::vector<T> lowest(x.begin(), x.begin() + n);
            k->extremum_rows[0][type](lowest.data(), y.data(), 1, n, n);
            k->extremum_rows[0][type](lowest.data(), x.data(), 6, n, n);
            BOOST_TEST((std::isnan(lowest[static_cast<std::size_t>(bad)]) &&
                        (n == 1 || !std::isnan(lowest[static_cast<std::size_t>(bad == 0)]))));
          }
      }
  };
  for_integers(check);
  check(type_tag<float>{}, int(DType::f32));
  check(type_tag<double>{}, int(DType::f64));
}

// Sums of f32 add eight or four elements before widening them, or none in shorter rows.
BOOST_AUTO_TEST_CASE(sums_of_rows_are_accurate_and_equal_at_every_level) {
  std::mt19937_64 random(11);
  std::vector<std::int64_t> lengths(300);
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.insert(lengths.end(), {511, 512, 513, 1000, 1024, 1025, 32'768, 100'003});
  for (std::int64_t n : lengths) {
    const std::vector<float> x = numbers<float>(n, random);
    double sum = 0, magnitude = 0, squares = 0, off = 0, off_squares = 0;
    for (float v : x) {
      const double from_first = double(v) - double(x[0]);
      sum += double(v), magnitude += std::abs(double(v)), squares += double(v) * double(v);
      off += from_first, off_squares += from_first * from_first;
    }
    const double close = n < 128 ? 1e-13 : 1.8e-7, size = static_cast<double>(n);
    std::vector<double> first;
    for (const LevelKernels* k : levels()) {
      std::vector<double> got{k->sum_f32(x.data(), n), k->squares_f32(x.data(), n), 0, 0};
      k->moments_f32(x.data(), n, &got[2], &got[3]);
      if (first.empty()) first = got;
      BOOST_TEST((got == first), "another level's sums of " << n);
      BOOST_TEST(std::abs(got[0] - sum) <= close * magnitude,
                 n << " added up are " << got[0] << ", not " << sum);
      BOOST_TEST(std::abs(got[1] - squares) <= 4e-7 * squares,
                 n << " squares added up are " << got[1] << ", not " << squares);
      BOOST_TEST(
          (std::abs(got[2] - off) <= 4e-7 * size && std::abs(got[3] - off_squares) <= 1e-6 * size),
          "moments of " << n);
    }
  }
}

// Sums of a group overflow with one sign, or become infinities of both, wherever its signs change.
BOOST_AUTO_TEST_CASE(sums_of_rows_that_overflow_in_float_are_taken_in_double) {
  constexpr float kHuge = 3e38f;
  for (const int run : {1, 2, 4, 8, 16, 32, 64, 1000}) {
    std::vector<float> x(700);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = i / static_cast<std::size_t>(run) % 4 < 2 ? kHuge : -kHuge;
    double sum = 0;
    for (std::size_t n = 1; n <= x.size(); ++n) {
      sum += double(x[n - 1]);  // a small multiple of kHuge: exact
      for (const LevelKernels* k : levels())
        BOOST_TEST_REQUIRE(k->sum_f32(x.data(), static_cast<std::int64_t>(n)) == sum,
                           n << " elements, signs change after " << run);
    }
  }
  // Squares overflow one by one.
  for (std::int64_t n : kLengths) {
    std::vector<float> x(static_cast<std::size_t>(n));
    double squares = 0, off = 0, off_squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = i % 3 ? 1e30f : -2e30f;
      const double from_first = double(x[i]) - double(x[0]);
      squares += double(x[i]) * double(x[i]), off += from_first,
          off_squares += from_first * from_first;
    }
    for (const LevelKernels* k : levels()) {
      double got[2];
      k->moments_f32(x.data(), n, got, got + 1);
      BOOST_TEST((std::abs(got[0] - off) <= 1e-6 * off &&
                  std::abs(got[1] - off_squares) <= 1e-6 * off_squares),
                 "moments of " << n);
      BOOST_TEST(std::abs(k->squares_f32(x.data(), n) - squares) <= 1e-6 * squares,
                 "squares of " << n);
    }
  }
}

BOOST_AUTO_TEST_CASE(sums_of_columns_that_overflow_in_float_are_taken_in_double) {
  constexpr float kHuge = 3e38f, inf = std::numeric_limits<float>::infinity();
  constexpr std::int64_t kRows = 19;
  for (const std::int64_t n : kLengths)
    for (const std::int64_t bad : {std::int64_t{0}, n / 2, n - 1})
      for (const LevelKernels* k : levels()) {
        // Beside a column that overflows others keep the bits that they have without it.
        std::mt19937_64 random(13);
        std::vector<float> mixed = numbers<float>(kRows * n, random), calm = mixed;
        for (std::int64_t r = 0; r < kRows; ++r)
          mixed[static_cast<std::size_t>(r * n + bad)] = kHuge;
        std::vector<double> beside(static_cast<std::size_t>(n), 0.0), alone(beside);
        k->add_rows_f32(beside.data(), mixed.data(), kRows, n, n);
        k->add_rows_f32(alone.data(), calm.data(), kRows, n, n);
        alone[static_cast<std::size_t>(bad)] = 19.0 * double(kHuge);
        BOOST_TEST_REQUIRE((beside == alone), "columns beside " << bad << " of " << n);
        std::vector<float> x(static_cast<std::size_t>(kRows * n), 1);
        for (std::int64_t r = 0; r < kRows; ++r)
          x[static_cast<std::size_t>(r * n + bad)] = r % 4 < 2 ? kHuge : -kHuge;
        std::vector<double> sums(static_cast<std::size_t>(n), 0.0);
        k->add_rows_f32(sums.data(), x.data(), kRows, n, n);
        for (std::int64_t j = 0; j < n; ++j)
          BOOST_TEST_REQUIRE(
              sums[static_cast<std::size_t>(j)] == (j == bad ? 1.0 * double(kHuge) : 1.0 * kRows),
              "column " << j << " of " << n << ", " << bad << " overflows");
        x[static_cast<std::size_t>(n + bad)] = inf;
        k->add_rows_f32(sums.data(), x.data(), kRows, n, n);
        BOOST_TEST_REQUIRE(sums[static_cast<std::size_t>(bad)] == double(inf));
        x[static_cast<std::size_t>(2 * n + bad)] = -inf;
        k->add_rows_f32(sums.data(), x.data(), kRows, n, n);
        for (std::int64_t j = 0; j < n; ++j)
          BOOST_TEST_REQUIRE(std::isnan(sums[static_cast<std::size_t>(j)]) == (j == bad));
      }
}

BOOST_AUTO_TEST_CASE(sums_of_rows_with_infinities_and_nan) {
  constexpr float inf = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t n : kLengths)
    for (std::int64_t at : {std::int64_t{0}, n / 2, n - 1})
      for (const LevelKernels* k : levels()) {
        std::vector<float> x(static_cast<std::size_t>(n), 3e38f);
        float& bad = x[static_cast<std::size_t>(at)];
        bad = inf;
        BOOST_TEST(
            (k->sum_f32(x.data(), n) == double(inf) && k->squares_f32(x.data(), n) == double(inf)),
            "infinity at " << at << " of " << n);
        bad = -inf;
        BOOST_TEST(k->sum_f32(x.data(), n) == -double(inf), "-infinity at " << at << " of " << n);
        bad = nan;
        double moments[2];
        k->moments_f32(x.data(), n, moments, moments + 1);
        BOOST_TEST((std::isnan(k->sum_f32(x.data(), n)) && std::isnan(moments[0]) &&
                    std::isnan(moments[1])),
                   "NaN at " << at << " of " << n);
        if (n == 1) continue;
        bad = inf;
        x[static_cast<std::size_t>(at ? 0 : n - 1)] = -inf;
        BOOST_TEST(std::isnan(k->sum_f32(x.data(), n)),
                   "infinities at " << at << " and another place of " << n);
      }
}

BOOST_AUTO_TEST_CASE(exponentials_of_rows_and_their_sums) {
  std::mt19937_64 random(12);
  for (std::int64_t n : {1,   2,   3,   15,  16,  17,  31,   32,   33,   100, 127,
                         128, 129, 300, 511, 512, 513, 1000, 1024, 1025, 5000}) {
    std::vector<float> x = numbers<float>(n, random);
    for (float& v : x) v = 20 * v - 1000;
    x[static_cast<std::size_t>(n / 2)] = -std::numeric_limits<float>::infinity();
    constexpr float shift = -980;
    double sum = 0;
    for (float v : x) sum += std::exp(double(v) - double(shift));
    std::vector<float> first;
    double first_sum = 0;
    for (const LevelKernels* k : levels()) {
      std::vector<float> out(x.size() + 1, 7), in_place = x;
      const double got = k->exp_sum_f32(out.data(), x.data(), shift, n);
      if (first.empty()) first = out, first_sum = got;
      BOOST_TEST((out == first && got == first_sum), "another level's exponentials of " << n);
      BOOST_TEST((k->exp_sum_f32(nullptr, x.data(), shift, n) == got &&
                  k->exp_sum_f32(in_place.data(), in_place.data(), shift, n) == got),
                 n << " not stored, or in place");
      BOOST_TEST((out.back() == 7 && std::equal(in_place.begin(), in_place.end(), out.begin())),
                 n << " exponentials, and what is behind them");
      double worst = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        worst = std::max(worst, std::abs(double(out[i]) - std::exp(double(x[i]) - double(shift))));
      BOOST_TEST(
          (worst <= 1e-6 && std::abs(got - sum) <= 1e-5 * sum),
          n << " exponentials are off by " << worst << ", their sum is " << got << ", not " << sum);
    }
  }
}

// Rows side by side are folded one after the other, but that eight of f32 are first added pairwise
// in f32: the bits are those of a plain loop that does so.
BOOST_AUTO_TEST_CASE(sums_and_products_of_columns) {
  std::mt19937_64 random(7);
  const auto check = [&]<class T>(type_tag<T>) {
    for (std::int64_t rows : {1, 3, 8, 9, 16, 21})
      for (std::int64_t n : kLengths) {
        const std::int64_t stride = n + 3;
        const std::vector<T> x = numbers<T>(rows * stride, random);
        std::vector<double> sums(static_cast<std::size_t>(n), 0.5), products(sums);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::size_t j = 0; j < sums.size(); ++j) {
            const auto at = [&](std::int64_t row) {
              return x[static_cast<std::size_t>(row * stride) + j];
            };
            products[j] *= double(at(r));
            const bool is_of_eight = std::is_same_v<T, float> && r < rows / 8 * 8;
            if (!is_of_eight) sums[j] += double(at(r));
            else if (r % 8 == 0)
              sums[j] += double(((at(r) + at(r + 1)) + (at(r + 2) + at(r + 3))) +
                                ((at(r + 4) + at(r + 5)) + (at(r + 6) + at(r + 7))));
          }
        for (const LevelKernels* k : levels()) {
          std::vector<double> sum(sums.size(), 0.5), product(sum);
          if constexpr (std::is_same_v<T, float>) {
            k->add_rows_f32(sum.data(), x.data(), rows, stride, n);
            k->multiply_rows_f32(product.data(), x.data(), rows, stride, n);
          } else {
            k->add_rows_f64(sum.data(), x.data(), rows, stride, n);
            k->multiply_rows_f64(product.data(), x.data(), rows, stride, n);
          }
          BOOST_TEST((sum == sums && product == products), rows << " rows of " << n);
        }
      }
  };
  check(type_tag<float>{});
  check(type_tag<double>{});
}

// The sums of columns in normalisation: near a plain loop's, with equal bits at every level.
BOOST_AUTO_TEST_CASE(sums_of_centered_columns) {
  std::mt19937_64 random(8);
  for (const bool has_dy : {false, true})
    for (std::int64_t rows : {1, 3, 4, 9})
      for (std::int64_t n : kLengths) {
        const std::vector<float> x = numbers<float>(rows * n, random),
                                 dy = numbers<float>(rows * n, random),
                                 center = numbers<float>(n, random);
        const auto columns = static_cast<std::size_t>(n);
        std::vector<double> wanted(2 * columns, 0.5), first;
        for (std::size_t at = 0; at < x.size(); ++at) {
          const double off = double(x[at]) - double(center[at % columns]),
                       weight = has_dy ? double(dy[at]) : off;
          wanted[at % columns] += weight;
          wanted[columns + at % columns] += weight * off;
        }
        for (const LevelKernels* k : levels()) {
          std::vector<double> got(wanted.size(), 0.5);
          k->column_sums_f32(x.data(), has_dy ? dy.data() : nullptr, center.data(), rows, n,
                             got.data(), got.data() + n);
          if (first.empty()) first = got;
          double worst = 0;
          for (std::size_t i = 0; i < got.size(); ++i)
            worst = std::max(worst, std::abs(got[i] - wanted[i]));
          BOOST_TEST((got == first && worst < 1e-5),
                     rows << " rows of " << n << ", dy " << has_dy << ": off by " << worst);
        }
      }
}

BOOST_AUTO_TEST_CASE(products_of_integers) {
  std::mt19937_64 random(6);
  for_integers([&]<class T>(type_tag<T>, int type) {
    for (auto [m, n, depth] : {std::array{1, 1, 1}, std::array{5, 67, 130}, std::array{8, 32, 128},
                               std::array{8, 32, 127}, std::array{3, 5, 300}}) {
      std::vector<T> a = numbers<T>(m * depth, random), b = numbers<T>(depth * n, random);
      if (sizeof(T) == 8 && m == 8)  // 32 bits are enough for them, but in one case for one of b
        for (std::vector<T>* all : {&a, &b})
          for (T& v : *all) v = static_cast<T>(static_cast<std::int32_t>(v));
      if (sizeof(T) == 8 && depth == 127) b[5] = static_cast<T>(std::uint64_t{1} << 31);
      for (const LevelKernels* k : levels())
        for (bool ta : {false, true})
          for (bool tb : {false, true}) {
            std::vector<T> c(static_cast<std::size_t>(m * n)), wanted = c;
            const cpu::GemmCall g{m,          n,        depth,      a.data(),       ta ? 1 : depth,
                                  ta ? m : 1, b.data(), tb ? 1 : n, tb ? depth : 1, c.data(),
                                  n};
            k->gemm_int[type](g);
            for (std::int64_t i = 0; i < m; ++i)
              for (std::int64_t j = 0; j < n; ++j) {
                std::uint64_t sum = 0;
                for (std::int64_t l = 0; l < depth; ++l)
                  sum += static_cast<std::uint64_t>(
                             a[static_cast<std::size_t>(i * g.a_rs + l * g.a_cs)]) *
                         static_cast<std::uint64_t>(
                             b[static_cast<std::size_t>(l * g.b_rs + j * g.b_cs)]);
                wanted[static_cast<std::size_t>(i * n + j)] = static_cast<T>(sum);
              }
            BOOST_TEST((c == wanted),
                       m << " x " << depth << " x " << n << ", transposed " << ta << tb);
          }
    }
  });
}

BOOST_AUTO_TEST_CASE(orders_are_those_of_stable_sorts) {
  std::mt19937_64 random(7);
  for (std::int64_t n : {0, 1, 2, 63, 64, 65, 1000, 4095, 5000, 70'000})
    for (bool descending : {false, true}) {
      std::vector<float> x = numbers<float>(n, random);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (i % 7 < 3) x[i] = std::array{0.f, -0.f, i % 5 ? NAN : -INFINITY}[i % 7];
      const std::vector<double> y(x.begin(), x.end());
      std::vector<std::int64_t> few = numbers<std::int64_t>(n, random);
      for (std::int64_t& v : few) v %= 100;
      for (std::int64_t count : {std::int64_t{0}, std::min<std::int64_t>(n, 10), n / 2, n}) {
        check_order(x, count, descending);
        check_order(y, count, descending);
        check_order(few, count, descending);
        check_order(numbers<std::int8_t>(n, random), count, descending);
        check_order(numbers<std::uint16_t>(n, random), count, descending);
        check_order(numbers<std::int64_t>(n, random), count, descending);
      }
    }
}

BOOST_AUTO_TEST_CASE(half_floats_have_the_order_of_floats) {
  auto check = [&]<class T>(type_tag<T>) {
    for (std::uint32_t a = 0; a < 0x10000; a += 97)
      for (std::uint32_t b = 0; b < 0x10000; b += 89) {
        T x, y;
        x.bits = static_cast<std::uint16_t>(a);
        y.bits = static_cast<std::uint16_t>(b);
        if ((order_key(x) < order_key(y)) != is_before(float(x), float(y)))
          BOOST_FAIL("bits " << a << " and " << b);
      }
  };
  check(type_tag<half>{});
  check(type_tag<bfloat16>{});
}

BOOST_AUTO_TEST_CASE(argmax_and_argmin_return_the_first_extremum) {
  WorkerPool pool(2);
  auto device = make_cpu_device({&pool, "cpu:0"});
  auto stream = device->make_stream();
  std::mt19937_64 random(8);
  for (std::int64_t n : {1, 1023, 1024, 1025, 5000, 70'000})
    for (int bad : {0, 1}) {
      std::vector<double> x(static_cast<std::size_t>(n));
      for (double& v : x) v = static_cast<double>(random() % 50);
      if (bad) x[x.size() / 2] = x.back() = NAN;
      auto wanted = std::find_if(x.begin(), x.end(),
                                 [&](double v) {
                                   return bad ? v != v : v == *std::max_element(x.begin(), x.end());
                                 }) -
                    x.begin();
      for (DType t : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::u8}) {
        if (bad && !is_floating(t)) continue;
        Tensor out = Tensor::empty(DType::i64, Shape{});
        device->primitives().reduce(*stream, Reduction::argmax, from_doubles(t, Shape{n}, x),
                                    View(out), 1);
        BOOST_TEST(out.at(0) == static_cast<double>(wanted), name_of(t) << ", " << n);
      }
      Tensor all = Tensor::empty(DType::i64, Shape{});
      device->primitives().reduce(
          *stream, Reduction::argmin,
          from_doubles(DType::f32, Shape{n}, std::vector<double>(x.size(), -INFINITY)), View(all),
          1);
      BOOST_TEST(all.at(0) == 0);
    }
}

// Small products depend on it, and would else on which thread computes them.
BOOST_AUTO_TEST_CASE(memory_of_kernels_begins_a_cache_line) {
  std::vector<cpu::Room<double>> all;
  for (std::int64_t n = 0; n < 100; ++n) {
    all.push_back(cpu::room<double>(n));
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(all.back().get()) % 64 == 0, n);
  }
}

BOOST_AUTO_TEST_SUITE_END()
