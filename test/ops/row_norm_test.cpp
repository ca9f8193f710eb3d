// Not under tsan: its kernels run in parallel in op_table_test and devices/cpu_primitives_test.
// Layer and RMS normalisation where outliers, far means and few bits make it hard, forward and
// backward: against the same in f64.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <troupe/autodiff/check.hpp>
#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/support/one_thread.hpp>

namespace troupe::test {

BOOST_AUTO_TEST_SUITE(row_norm_test, TROUPE_ONE_THREAD)

namespace {

struct Given {
  Tensor x, scale, bias, weights;  // in f64, of numbers that the dtype under test holds
};

Tensor in(const Tensor& t, DType dtype) {
  Graph g;
  return evaluate_eagerly(g, {}, {cast(g.constant(t), dtype)})[0];
}

Given drawn(DType dtype, std::int64_t rows, std::int64_t n, double mean, double first) {
  std::mt19937_64 bits(static_cast<std::uint64_t>(rows * 1000 + n));
  std::normal_distribution<double> normal;
  const auto draw = [&](const Shape& shape, double around, double outlier) {
    std::vector<double> v(static_cast<std::size_t>(shape.elements()));
    for (double& e : v) e = around + normal(bits);
    for (std::size_t row = 0; outlier != 0 && row < v.size(); row += static_cast<std::size_t>(n))
      v[row] = outlier;
    return in(in(Tensor::of(v, shape), dtype), DType::f64);
  };
  return {draw({rows, n}, mean, first), draw({n}, 1, 0), draw({n}, 0, 0), draw({rows, n}, 0, 0)};
}

/// y, dx, dscale and, where there is one, dbias of sum(y * weights), in f64.
std::vector<Tensor> computed_in(DType dtype, const Given& v, bool is_centered) {
  Graph g;
  const auto input = [&](const char* name, const Tensor& t) {
    return g.input(name, dtype, t.shape());
  };
  const Expr x = input("x", v.x), scale = input("scale", v.scale), bias = input("bias", v.bias),
             weights = input("weights", v.weights);
  const Expr y = is_centered ? layer_norm(x, scale, bias) : rms_norm(x, scale);
  Exprs of{x, scale};
  if (is_centered) of.push_back(bias);
  Exprs all{y};
  for (const Expr& d : gradients(sum(y * weights), of)) all.push_back(d);
  for (Expr& e : all) e = cast(e, DType::f64);
  return evaluate_eagerly(g,
                          {{x, in(v.x, dtype)},
                           {scale, in(v.scale, dtype)},
                           {bias, in(v.bias, dtype)},
                           {weights, in(v.weights, dtype)}},
                          all);
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_that_it_yields) {
  struct Row {
    const char* name;
    DType dtype;
    double mean, first;
    double slack;  // relative to the largest element
  };
  for (const Row& row :
       {Row{"f32", DType::f32, 0, 0, 2e-6}, Row{"f32 far from 0", DType::f32, 1000, 0, 1e-4},
        Row{"f32 after an outlier", DType::f32, 0, 300, 1e-5},
        Row{"f16", DType::f16, 0.5, 0, 0x1p-10}, Row{"bf16", DType::bf16, 0.5, 0, 0x1p-7}})
    for (const bool is_centered : {true, false})
      for (const auto& [rows, n] :
           {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {5, 64}, {70, 129}, {4, 5000}}) {
        const Given given = drawn(row.dtype, rows, n, row.mean, row.first);
        const std::vector<Tensor> got = computed_in(row.dtype, given, is_centered),
                                  wanted = computed_in(DType::f64, given, is_centered);
        for (std::size_t k = 0; k < wanted.size(); ++k) {
          double largest = 0, worst = 0;
          for (std::int64_t i = 0; i < wanted[k].elements(); ++i) {
            largest = std::max(largest, std::abs(wanted[k].at(i)));
            worst = std::max(worst, std::abs(wanted[k].at(i) - got[k].at(i)));
          }
          // dx of one column is 0 but for rounding, and is measured by what it is the difference
          // of: rstd is 1 / sqrt(epsilon).
          if (k == 1 && n == 1)
            largest = std::abs(given.weights.at(0) * given.scale.at(0)) / std::sqrt(1e-5);
          BOOST_TEST(worst <= row.slack * largest,
                     fmt::format("{}, {}, [{}, {}], output {}: off by {} of {}", row.name,
                                 is_centered ? "layer" : "RMS", rows, n, k, worst, largest));
        }
      }
}

// Over all but the channels: of numbers far from 0, after rows of outliers, of few channels and
// many.
BOOST_AUTO_TEST_CASE(channels_far_from_0) {
  struct Kind {
    const char* name;
    double mean, first;
    double slack;  // relative to the largest element
  };
  for (const Kind& kind : {Kind{"around 0", 0, 0, 2e-6}, Kind{"far from 0", 1000, 0, 1e-4},
                           Kind{"after an outlier", 0, 300, 1e-5}})
    for (const auto& [rows, n] :
         {std::pair<std::int64_t, std::int64_t>{9, 3}, {12, 64}, {700, 3}, {2000, 40}, {400, 129}})
      for (const int how : {0, 1, 2}) {
        Given given = drawn(DType::f32, rows, n, kind.mean, 0);
        std::vector<double> numbers = given.x.to_vector<double>();
        if (kind.first != 0) std::fill_n(numbers.begin(), n, kind.first);
        given.x = Tensor::of(numbers, given.x.shape());
        const auto of = [&](DType dtype) {
          Graph g;
          const auto input = [&](const char* name, const Tensor& t) {
            return g.input(name, dtype, t.shape());
          };
          const Expr x = input("x", given.x), scale = input("scale", given.scale),
                     bias = input("bias", given.bias), weights = input("weights", given.weights);
          const Expr item = reshape(x, {1, rows, n});
          const Expr y = how == 0   ? batch_norm(x, scale, bias)[0]
                         : how == 1 ? instance_norm(item, scale, bias)
                                    : group_norm(item, 1, scale, bias);
          Exprs all{y};
          for (const Expr& d :
               gradients(sum(reshape(y, {rows, n}) * weights), Exprs{x, scale, bias}))
            all.push_back(d);
          for (Expr& e : all) e = cast(e, DType::f64);
          return evaluate_eagerly(g,
                                  {{x, in(given.x, dtype)},
                                   {scale, in(given.scale, dtype)},
                                   {bias, in(given.bias, dtype)},
                                   {weights, in(given.weights, dtype)}},
                                  all);
        };
        const std::vector<Tensor> got = of(DType::f32), wanted = of(DType::f64);
        for (std::size_t k = 0; k < wanted.size(); ++k) {
          double largest = 0, worst = 0;
          for (std::int64_t i = 0; i < wanted[k].elements(); ++i) {
            largest = std::max(largest, std::abs(wanted[k].at(i)));
            worst = std::max(worst, std::abs(wanted[k].at(i) - got[k].at(i)));
          }
          BOOST_TEST(worst <= kind.slack * std::max(1.0, largest),
                     fmt::format("{}, kind {}, [{}, {}], output {}: off by {} of {}", kind.name,
                                 how, rows, n, k, worst, largest));
        }
      }
}

// Squares of the distance from an outlier lose against each other.
BOOST_AUTO_TEST_CASE(a_row_that_begins_with_an_outlier) {
  for (const std::int64_t n : {64, 4096, 65536}) {
    Graph g;
    std::vector<float> row(static_cast<std::size_t>(n), 0.0f);
    row[0] = 8.3f;
    const double mean = double(row[0]) / static_cast<double>(n),
                 variance = mean * (double(row[0]) - mean);
    const Tensor y = evaluate_eagerly(g, {},
                                      {layer_norm(g.constant(Tensor::of(row, {1, n})),
                                                  g.constant(1.0f), g.constant(0.0f), 1e-12)})[0];
    const double rstd = 1 / std::sqrt(variance + 1e-12);
    BOOST_TEST(std::abs(y.at(0) / ((double(row[0]) - mean) * rstd) - 1) < 3e-6,
               n << ": " << y.at(0));
    BOOST_TEST(std::abs(y.at(1) / (-mean * rstd) - 1) < 3e-6, n << ": " << y.at(1));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace troupe::test
