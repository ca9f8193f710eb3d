// Computations of the CPU device, against loops that a reader can check by eye: reductions,
// products, norms, draws. For data movement see cpu_movement_test.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <numeric>

#include <troupe/devices/device/attention.hpp>
#include <troupe/devices/device/channel_sums.hpp>
#include <troupe/devices/device/philox.hpp>
#include <troupe/devices/device/row_norm.hpp>
#include <troupe/devices/device/tiny_product.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/support/cpu.hpp>

using namespace troupe;
using namespace troupe::test;

namespace {

double reference_reduce(Reduction how, const std::vector<double>& x) {
  switch (how) {
    case Reduction::sum: return std::accumulate(x.begin(), x.end(), 0.0);
    case Reduction::mean: return std::accumulate(x.begin(), x.end(), 0.0) / double(x.size());
    case Reduction::product: return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>());
    case Reduction::min: return *std::min_element(x.begin(), x.end());
    case Reduction::max: return *std::max_element(x.begin(), x.end());
    case Reduction::any: return std::any_of(x.begin(), x.end(), [](double v) { return v != 0; });
    case Reduction::all: return std::all_of(x.begin(), x.end(), [](double v) { return v != 0; });
    case Reduction::argmin: return double(std::min_element(x.begin(), x.end()) - x.begin());
    case Reduction::argmax: return double(std::max_element(x.begin(), x.end()) - x.begin());
    case Reduction::logsumexp: break;
  }
  double sum = 0;
  for (double v : x) sum += std::exp(v);
  return std::log(sum);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cpu_primitives, Cpu)

BOOST_AUTO_TEST_CASE(reduce_over_any_axes) {
  for (int round = 0; round < 3000 / kRoundShare; ++round) {
    Reduction how = static_cast<Reduction>(below(10));
    bool where = how == Reduction::argmin || how == Reduction::argmax;
    DType type = static_cast<DType>(below(kDTypes));
    if (is_complex(type) || (how == Reduction::logsumexp && !is_floating(type))) continue;
    Shape in = shape(5, round % 100 == 0 ? 40 : 6);
    std::uint32_t axes = static_cast<std::uint32_t>(below(std::int64_t(1) << in.rank()));
    if (where) {
      if (in.rank() == 0) continue;
      axes = 1u << below(in.rank());
    }
    Shape out;
    std::int64_t reduced = 1;
    for (int d = 0; d < in.rank(); ++d)
      if (axes >> d & 1) reduced *= in[d];
      else out.push_back(in[d]);
    bool empty_fails = where || how == Reduction::min || how == Reduction::max;
    Tensor x = how == Reduction::product ? random_tensor(random, type, in, 0.8, 1.3)
                                         : random_tensor(random, type, in, -3, 3);
    Tensor y = Tensor::empty(where                                            ? DType::i64
                             : how == Reduction::any || how == Reduction::all ? DType::boolean
                                                                              : type,
                             out);
    if (reduced == 0 && empty_fails && out.elements() > 0) {
      BOOST_TEST(
          throws_code(Code::out_of_range, [&] { p().reduce(*stream, how, x, View(y), axes); }));
      continue;
    }
    p().reduce(*stream, how, x, View(y), axes);
    std::vector<std::vector<double>> groups(static_cast<std::size_t>(out.elements()));
    for (std::int64_t i = 0; i < in.elements(); ++i) {
      std::vector<std::int64_t> c = coordinates(i, in), kept;
      for (int d = 0; d < in.rank(); ++d)
        if (!(axes >> d & 1)) kept.push_back(c[static_cast<std::size_t>(d)]);
      groups[static_cast<std::size_t>(position(kept, out))].push_back(x.at(i));
    }
    for (std::int64_t i = 0; i < out.elements(); ++i) {
      auto& g = groups[static_cast<std::size_t>(i)];
      if (g.empty() && (how == Reduction::mean || empty_fails)) continue;
      double expected = reference_reduce(how, g);
      if (is_integer(type) && how == Reduction::mean) expected = std::trunc(expected);
      if (type == DType::boolean && !where) expected = expected != 0;
      expected = Tensor::scalar_as(y.dtype(), expected).at(0);
      double tolerance = type == DType::f64    ? 1e-12
                         : type == DType::f32  ? 1e-6
                         : type == DType::f16  ? 1e-3
                         : type == DType::bf16 ? 8e-3
                                               : 0;
      bool overflows = is_integer(type) && std::fabs(reference_reduce(how, g)) > 127;
      if (overflows) continue;
      BOOST_TEST_REQUIRE(
          (y.at(i) == expected ||
           std::fabs(y.at(i) - expected) <= tolerance * std::max(1.0, std::fabs(expected))),
          name_of(how) << " of " << name_of(type) << in.text() << " axes " << axes << ": "
                       << y.at(i) << ", not " << expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(large_reductions_are_accurate_and_equal_on_one_worker) {
  for (Shape in : {Shape{1'000'003}, Shape{3, 300'000}, Shape{5000, 70}, Shape{70, 2000, 3}}) {
    Tensor x = random_tensor(random, DType::f32, in, 0, 1);
    for (Reduction how : {Reduction::sum, Reduction::max, Reduction::min, Reduction::logsumexp})
      for (std::uint32_t axes = 1; axes < 1u << in.rank(); ++axes) {
        Shape out;
        for (int d = 0; d < in.rank(); ++d)
          if (!(axes >> d & 1)) out.push_back(in[d]);
        Tensor y = Tensor::empty(DType::f32, out), z = Tensor::empty(DType::f32, out);
        p().reduce(*stream, how, x, View(y), axes);
        alone->primitives().reduce(*stream, how, x, View(z), axes);
        BOOST_TEST(identical(y, z));
        if (how == Reduction::sum && out.is_scalar()) {
          double sum = 0;
          for (std::int64_t i = 0; i < x.elements(); ++i) sum += x.at(i);
          BOOST_TEST(y.at(0) == static_cast<float>(sum));  // eighths: exact in double
        }
      }
  }
}

BOOST_AUTO_TEST_CASE(extrema_propagate_nan_and_arg_takes_the_first) {
  Tensor x = Tensor::of<float>({1, 5, NAN, 5, 2, NAN});
  Tensor y = Tensor::empty(DType::f32, Shape()), at = Tensor::empty(DType::i64, Shape());
  p().reduce(*stream, Reduction::max, x, View(y), 1);
  BOOST_TEST(std::isnan(y.at(0)));
  p().reduce(*stream, Reduction::min, x, View(y), 1);
  BOOST_TEST(std::isnan(y.at(0)));
  p().reduce(*stream, Reduction::argmax, x, View(at), 1);
  BOOST_TEST(at.at(0) == 2);
  Tensor ties = Tensor::of<std::int32_t>({3, 7, 7, 3, 7});
  p().reduce(*stream, Reduction::argmax, ties, View(at), 1);
  BOOST_TEST(at.at(0) == 1);
  p().reduce(*stream, Reduction::argmin, ties, View(at), 1);
  BOOST_TEST(at.at(0) == 0);
  Tensor none = Tensor::of<float>({-INFINITY, -INFINITY});
  p().reduce(*stream, Reduction::logsumexp, none, View(y), 1);
  BOOST_TEST(y.at(0) == -INFINITY);
  Tensor large = Tensor::of<float>({1000, 1000});
  p().reduce(*stream, Reduction::logsumexp, large, View(y), 1);
  BOOST_TEST(y.at(0) == 1000 + std::log(2.0), boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(matmul_of_every_form) {
  for (int round = 0; round < 500 / kRoundShare; ++round) {
    DType type = std::array{DType::f32, DType::f64, DType::f16, DType::bf16,
                            DType::i32, DType::i64, DType::u8}[static_cast<std::size_t>(below(7))];
    bool ta = below(2), tb = below(2);
    std::int64_t m = below(40), n = below(40), k = below(40);
    if (round % 25 == 0) m = 1;
    if (round % 25 == 1) n = 1;
    Shape batch = shape(2, 3), a_batch, b_batch;
    for (int d = 0; d < batch.rank(); ++d) {
      a_batch.push_back(below(3) ? batch[d] : 1);
      b_batch.push_back(below(3) ? batch[d] : 1);
    }
    batch = broadcast(a_batch, b_batch);
    if (b_batch.rank() && b_batch[0] == 1 && below(2)) b_batch = b_batch.without(0);
    auto with = [](Shape s, std::int64_t x, std::int64_t y) {
      s.push_back(x);
      s.push_back(y);
      return s;
    };
    Shape sa = ta ? with(a_batch, k, m) : with(a_batch, m, k),
          sb = tb ? with(b_batch, n, k) : with(b_batch, k, n);
    Tensor a = random_tensor(random, type, sa, -2, 2), b = random_tensor(random, type, sb, -2, 2);
    Tensor c = Tensor::empty(type, with(batch, m, n));
    p().matmul(*stream, {a, b, View(c), ta, tb});
    for (std::int64_t i = 0; i < c.elements(); ++i) {
      std::vector<std::int64_t> at = coordinates(i, c.shape());
      std::int64_t row = at[at.size() - 2], column = at[at.size() - 1];
      auto base = [&](const Shape& s) {
        std::int64_t o = 0;
        int lead = batch.rank() - (s.rank() - 2);
        for (int d = 0; d < s.rank() - 2; ++d)
          o = o * s[d] + (s[d] == 1 ? 0 : at[static_cast<std::size_t>(d + lead)]);
        return o;
      };
      double expected = 0;
      for (std::int64_t x = 0; x < k; ++x)
        expected += a.at(base(sa) * m * k + (ta ? x * m + row : row * k + x)) *
                    b.at(base(sb) * k * n + (tb ? column * k + x : x * n + column));
      expected = Tensor::scalar_as(type, expected).at(0);
      double tolerance = type == DType::bf16  ? 0.02
                         : type == DType::f16 ? 0.003
                         : is_floating(type)  ? 1e-5
                                              : 0;
      if (type == DType::u8 && expected > 255) continue;
      BOOST_TEST_REQUIRE(std::fabs(c.at(i) - expected) <= tolerance * (1 + std::fabs(expected)),
                         name_of(type) << " " << sa.text() << (ta ? "^T" : "") << " " << sb.text()
                                       << (tb ? "^T" : ""));
    }
  }
}

// Scalar code takes them apart (devices/device/tiny_product.hpp).
BOOST_AUTO_TEST_CASE(tiny_products_are_sums_in_order) {
  const bool is_fused = cpu_level() >= CpuLevel::v3;
  for (int round = 0; round < 400; ++round) {
    const DType type = below(2) ? DType::f32 : DType::f64;
    const bool is_narrow = below(2);  // many rows in the same order
    const std::int64_t m = 1 + below(is_narrow ? 300 : 9), n = 1 + below(is_narrow ? 4 : 9),
                       k = 1 + below(is_narrow ? 4 : 17);
    if (!is_narrow && !is_tiny_product(m, n, k)) continue;
    const bool ta = below(2), tb = below(2);
    const Tensor a = random_tensor(random, type, ta ? Shape{k, m} : Shape{m, k}, -2, 2),
                 b = random_tensor(random, type, tb ? Shape{n, k} : Shape{k, n}, -2, 2);
    Tensor c = Tensor::empty(type, Shape{m, n});
    p().matmul(*stream, {a, b, View(c), ta, tb});
    const auto check = [&]<class T>(T) {
      for (std::int64_t i = 0; i < m * n; ++i) {
        T wanted = 0;
        for (std::int64_t x = 0; x < k; ++x) {
          const T left = a.data<T>()[ta ? x * m + i / n : i / n * k + x],
                  right = b.data<T>()[tb ? i % n * k + x : x * n + i % n];
          const T product = left * right;
          wanted = x == 0 ? product : is_fused ? std::fma(left, right, wanted) : wanted + product;
        }
        BOOST_TEST_REQUIRE(c.data<T>()[i] == wanted, m << " " << k << " " << n);
      }
    };
    if (type == DType::f32) check(0.f);
    else check(0.0);
  }
}

BOOST_AUTO_TEST_CASE(products_with_a_matrix_that_comes_again) {
  for (auto [m, k, n] :
       {std::array<std::int64_t, 3>{32, 256, 1024}, {1, 300, 65}, {33, 257, 511}, {200, 64, 2000}})
    for (int form = 0; form < 4; ++form) {
      const bool ta = form & 1, tb = form & 2;
      Tensor a = random_tensor(random, DType::f32, ta ? Shape{k, m} : Shape{m, k}, -1, 1),
             b = random_tensor(random, DType::f32, tb ? Shape{n, k} : Shape{k, n}, -1, 1);
      Tensor plain = Tensor::empty(DType::f32, Shape{m, n});
      RepackedSlot slot, other;
      auto product = [&](const Primitives& with, RepackedSlot& kept, const Tensor& of) {
        Tensor c = Tensor::empty(DType::f32, Shape{m, n});
        with.matmul(*stream, {a, of, View(c), ta, tb, &kept, of.content()});
        return c;
      };
      p().matmul(*stream, {a, b, View(plain), ta, tb});
      const Tensor first = product(p(), slot, b);
      BOOST_TEST(slot.get() != nullptr);
      const auto kept = slot.get();
      BOOST_TEST(identical(first, product(p(), slot, b)));
      BOOST_TEST((slot.get() == kept));  // not made anew
      BOOST_TEST(identical(first, product(alone->primitives(), other, b)));
      for (std::int64_t i = 0; i < first.elements(); i += 17)
        BOOST_TEST_REQUIRE(std::fabs(first.at(i) - plain.at(i)) < 1e-3,
                           m << "x" << k << "x" << n << " form " << form);
      // Written in place: the same memory, other elements.
      for (float& v : std::span(b.mutable_data<float>(), static_cast<std::size_t>(b.elements())))
        v *= 2;
      p().matmul(*stream, {a, b, View(plain), ta, tb});
      const Tensor changed = product(p(), slot, b);
      BOOST_TEST(!identical(first, changed));
      for (std::int64_t i = 0; i < first.elements(); i += 17)
        BOOST_TEST_REQUIRE(std::fabs(changed.at(i) - plain.at(i)) < 1e-3);
    }
}

BOOST_AUTO_TEST_CASE(large_products_are_the_same_on_any_number_of_workers) {
  for (auto [m, k, n] : {std::array<std::int64_t, 3>{64, 784, 512},
                         {300, 257, 600},
                         {1000, 64, 90},
                         {129, 1000, 2000}}) {
    Tensor a = random_tensor(random, DType::f32, Shape{m, k}, -1, 1),
           b = random_tensor(random, DType::f32, Shape{k, n}, -1, 1);
    Tensor c = Tensor::empty(DType::f32, Shape{m, n}), d = Tensor::empty(DType::f32, Shape{m, n});
    p().matmul(*stream, {a, b, View(c)});
    alone->primitives().matmul(*stream, {a, b, View(d)});
    BOOST_TEST(identical(c, d));
    for (int i = 0; i < 50; ++i) {
      std::int64_t row = below(m), column = below(n);
      double expected = 0;
      for (std::int64_t x = 0; x < k; ++x) expected += a.at(row * k + x) * b.at(x * n + column);
      BOOST_TEST(std::fabs(c.at(row * n + column) - expected) < 1e-3);
    }
  }
}

BOOST_AUTO_TEST_CASE(softmax_and_cross_entropy) {
  for (DType type : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (Shape s : {Shape{3, 5}, Shape{1, 1}, Shape{40, 33}, Shape{2, 3, 700}, Shape{0, 4},
                    Shape{64, 1000}}) {
      double tolerance = type == DType::f64   ? 1e-12
                         : type == DType::f32 ? 2e-6
                         : type == DType::f16 ? 2e-3
                                              : 2e-2;
      Tensor x = random_tensor(random, type, s, -20, 20), y = Tensor::empty(type, s),
             l = Tensor::empty(type, s);
      p().softmax(*stream, x, View(y), false);
      p().softmax(*stream, x, View(l), true);
      std::int64_t n = s[s.rank() - 1], rows = s.elements() / n;
      Tensor labels = Tensor::empty(DType::i32, Shape{rows}),
             loss = Tensor::empty(type, Shape{rows});
      for (std::int64_t r = 0; r < rows; ++r)
        labels.mutable_data<std::int32_t>()[r] = static_cast<std::int32_t>(below(n));
      Tensor scale = random_tensor(random, type, Shape{rows}),
             gradient = Tensor::empty(type, Shape{rows, n});
      Tensor logits = x.reshaped(Shape{rows, n});
      p().cross_entropy(*stream, logits, labels, View(loss));
      p().cross_entropy_gradient(*stream, logits, labels, scale, View(gradient));
      for (std::int64_t r = 0; r < rows; ++r) {
        double top = -INFINITY, sum = 0;
        for (std::int64_t i = 0; i < n; ++i) top = std::max(top, x.at(r * n + i));
        for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x.at(r * n + i) - top);
        std::int64_t label = labels.data<std::int32_t>()[r];
        double log_sum = top + std::log(sum);
        BOOST_TEST(std::fabs(loss.at(r) - (log_sum - x.at(r * n + label))) <= tolerance * 40);
        for (std::int64_t i = 0; i < n; ++i) {
          double probability = std::exp(x.at(r * n + i) - log_sum);
          BOOST_TEST_REQUIRE(std::fabs(y.at(r * n + i) - probability) <= tolerance);
          BOOST_TEST_REQUIRE(std::fabs(l.at(r * n + i) - (x.at(r * n + i) - log_sum)) <=
                             tolerance * 40);
          BOOST_TEST_REQUIRE(std::fabs(gradient.at(r * n + i) - (probability - (i == label)) *
                                                                    scale.at(r)) <= tolerance * 8);
        }
      }
    }
}

BOOST_AUTO_TEST_CASE(norms_of_rows_are_accurate_and_equal_on_one_worker) {
  Cpu cpu;
  const std::int64_t rows = 515, n = 300;
  const Shape all{rows, n}, each{rows}, columns{n};
  std::vector<float> x(static_cast<std::size_t>(rows * n)), dy(x.size());
  // the deviation is a part in 3500 of the mean
  for (float& v : x) v = 1000 + static_cast<float>(cpu.below(1 << 12)) / 4096;
  for (float& v : dy) v = static_cast<float>(cpu.below(1 << 12)) / 4096 - 0.3f;
  const Tensor in = Tensor::of(x, all), up = Tensor::of(dy, all),
               scale = Tensor::of(std::vector<float>(x.end() - n, x.end()), columns),
               bias = Tensor::scalar(0.5f);
  for (bool centered : {true, false}) {
    std::vector<std::vector<float>> results[2];
    for (const Device* who : {cpu.device.get(), cpu.alone.get()}) {
      Tensor y = Tensor::empty(DType::f32, all), mean = Tensor::empty(DType::f32, each),
             rstd = Tensor::empty(DType::f32, each);
      RowNormArgs a{in, scale, {}, View(y), {}, View(rstd), rows, n, 1e-5, centered};
      if (centered) a.bias = bias, a.mean = View(mean);
      who->primitives().row_norm(*cpu.stream, a);
      Tensor dx = Tensor::empty(DType::f32, all), dscale = Tensor::empty(DType::f32, columns),
             dbias = Tensor::empty(DType::f32, columns);
      RowNormGradientArgs b{in, scale, {}, rstd, up, View(dx), View(dscale), {}, rows, n, centered};
      if (centered) b.mean = mean, b.dbias = View(dbias);
      who->primitives().row_norm_gradient(*cpu.stream, b);
      auto& out = results[who == cpu.alone.get()];
      for (const Tensor* t : {&y, &rstd, &dx, &dscale}) out.push_back(t->to_vector<float>());
      if (centered) out.push_back(dbias.to_vector<float>());
    }
    BOOST_TEST((results[0] == results[1]), "the number of workers changes a bit");
    for (std::int64_t r = 0; r < rows; r += 37) {
      double sum = 0, squares = 0;
      for (std::int64_t i = 0; i < n; ++i) sum += x[static_cast<std::size_t>(r * n + i)];
      const double mean = centered ? sum / static_cast<double>(n) : 0;
      for (std::int64_t i = 0; i < n; ++i)
        squares += std::pow(x[static_cast<std::size_t>(r * n + i)] - mean, 2);
      const double wanted = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5),
                   got = results[0][1][static_cast<std::size_t>(r)];
      BOOST_TEST(std::abs(got / wanted - 1) < 1e-6,
                 "rstd of row " << r << " is " << got << ", not " << wanted);
    }
  }
}

// A program's result is reduced as it is computed: bits equal to doing one after the other, on one
// worker and on two, stored beside (over an operand, too) or not.
BOOST_AUTO_TEST_CASE(a_program_and_a_reduction_in_one_go) {
  Cpu cpu;
  Recorder r(2);
  const Symbol x = r.input(0), y = r.input(1);
  r.finish(x * y);
  r.finish(tanh(x) * y - x);
  const ScalarProgram program = r.typed(std::array{DType::f32, DType::f32});
  struct Case {
    Shape shape;
    std::uint32_t axes;
  };
  for (const Case& c : {Case{{70}, 1},
                        {{3, 90'001}, 2},
                        {{270'003}, 1},
                        {{701, 1030}, 1},
                        {{90, 40, 50}, 2},
                        {{90, 40, 50}, 5},
                        {{60'001, 5}, 1},
                        {{60'001, 5}, 2}})
    for (const bool is_stored : {false, true}) {
      Shape row = c.shape, out;
      for (int i = 0; i + 1 < row.rank(); ++i) row.set(i, 1);
      for (int i = 0; i < c.shape.rank(); ++i)
        if (!(c.axes >> i & 1)) out.push_back(c.shape[i]);
      const auto draw = [&](const Shape& s) {
        std::vector<float> v(static_cast<std::size_t>(s.elements()));
        for (float& e : v) e = static_cast<float>(cpu.below(2001) - 1000) / 512;
        return v;
      };
      const std::vector<float> of_x = draw(c.shape), of_y = draw(row);
      const Tensor b = Tensor::of(of_y, row);
      for (const Reduction how : {Reduction::sum, Reduction::max}) {
        Tensor a = Tensor::of(of_x, c.shape), products = Tensor::empty(DType::f32, c.shape),
               made = Tensor::empty(DType::f32, c.shape), wanted = Tensor::empty(DType::f32, out);
        const ConstView in[] = {a, b};
        const View both[] = {View(products), View(made)};
        cpu.p().pointwise(*cpu.stream, program, in, both);
        cpu.p().reduce(*cpu.stream, how, made, View(wanted), c.axes);
        for (Device* where : {cpu.device.get(), cpu.alone.get()}) {
          Tensor over = Tensor::of(of_x, c.shape), beside = Tensor::empty(DType::f32, c.shape),
                 got = Tensor::empty(DType::f32, out);
          const View to(over);
          const ConstView from[] = {ConstView(to.data, DType::f32, c.shape), b};
          const View results[] = {is_stored ? View(beside) : to,
                                  is_stored ? to : View(nullptr, DType::f32, c.shape)};
          const auto in_order = where->make_stream();
          where->primitives().pointwise_reduce(
              *in_order, {&program, from, results, 1, how, View(got), c.axes});
          BOOST_TEST(identical(got, wanted), "of " << c.shape.text() << " over " << c.axes);
          BOOST_TEST((identical(is_stored ? beside : over, products) &&
                      (!is_stored || identical(over, made))),
                     "what is made beside, of " << c.shape.text());
        }
      }
    }
}

// Squares and products that overflow in f32 do not in the sums, and what is divided by them is not
// lost: what is scaled by 2^70 gives the same, scaled.
BOOST_AUTO_TEST_CASE(norms_and_means_of_huge_rows) {
  Cpu cpu;
  const float huge = std::ldexp(1.f, 70);
  for (const std::int64_t n : {5, 64, 127, 128, 300})
    for (bool centered : {true, false}) {
      const std::int64_t rows = 5;  // four together, and one
      const Shape all{rows, n}, each{rows}, columns{n};
      std::vector<float> results[3];
      for (const int scaled : {0, 1, 2}) {  // neither, x, x and dy
        const float factor = scaled ? huge : 1, of_dy = scaled == 2 ? huge : 1;
        std::vector<float> x, dy;
        for (std::int64_t i = 0; i < rows * n; ++i)
          x.push_back(factor * static_cast<float>(i * 7 % 23 + 1)),
              dy.push_back(of_dy * static_cast<float>(i * 5 % 17));
        const Tensor in = Tensor::of(x, all), up = Tensor::of(dy, all), scale = Tensor::scalar(2.f),
                     bias = Tensor::scalar(0.f);
        Tensor y = Tensor::empty(DType::f32, all), mean = Tensor::empty(DType::f32, each),
               rstd = Tensor::empty(DType::f32, each);
        RowNormArgs a{in, scale, {}, View(y), {}, View(rstd), rows, n, 0, centered};
        if (centered) a.bias = bias, a.mean = View(mean);
        cpu.p().row_norm(*cpu.stream, a);
        Tensor dx = Tensor::empty(DType::f32, all), dscale = Tensor::empty(DType::f32, columns),
               dbias = Tensor::empty(DType::f32, columns);
        RowNormGradientArgs b{in,           scale, {},   rstd, up,      View(dx),
                              View(dscale), {},    rows, n,    centered};
        if (centered) b.mean = mean, b.dbias = View(dbias);
        cpu.p().row_norm_gradient(*cpu.stream, b);
        std::vector<float>& out = results[scaled] = y.to_vector<float>();
        for (const float v : dx.to_vector<float>()) out.push_back(v * factor / of_dy);
        for (const float v : rstd.to_vector<float>()) out.push_back(v * factor);
        for (const float v : dscale.to_vector<float>()) out.push_back(v / of_dy);
      }
      const auto is_near = [&](float got, float wanted) {
        return std::abs(got - wanted) <= 1e-5f * (1 + std::abs(wanted));
      };
      for (const int scaled : {1, 2}) {
        std::size_t at = 0;
        while (at < results[0].size() && is_near(results[scaled][at], results[0][at])) ++at;
        BOOST_TEST(at == results[0].size(), "result " << at << " of rows of " << n << ", centered "
                                                      << centered << ", scaled " << scaled
                                                      << ", is another");
      }
    }
  const Tensor same = Tensor::of(std::vector<float>(600, 3e38f), Shape{2, 300});
  Tensor mean = Tensor::empty(DType::f32, Shape{2}),
         shares = Tensor::empty(DType::f32, Shape{2, 300});
  cpu.p().reduce(*cpu.stream, Reduction::mean, same, View(mean), 2);
  BOOST_TEST((mean.to_vector<float>() == std::vector<float>(2, 3e38f)));
  cpu.p().softmax(*cpu.stream, same, View(shares), false);
  for (const float v : shares.to_vector<float>())
    BOOST_TEST_REQUIRE(std::abs(v - 1.f / 300) <= 1e-9f);
}

BOOST_AUTO_TEST_CASE(labels_outside_the_classes_are_named) {
  Tensor x = Tensor::zeros(DType::f32, Shape{2, 3}), loss = Tensor::empty(DType::f32, Shape{2});
  Tensor labels = Tensor::of<std::int64_t>({0, 3});
  try {
    p().cross_entropy(*stream, x, labels, View(loss));
    BOOST_FAIL("no error");
  } catch (const Error& e) { BOOST_TEST(e.what() == "index 3 at position 1 is outside [0, 3)"); }
}

BOOST_AUTO_TEST_CASE(sums_over_rows_and_heads_are_equal_on_one_worker) {
  for (DType type : {DType::f32, DType::f64})
    for (const auto& [outer, rows, n] :
         {std::array<std::int64_t, 3>{1, 5000, 70}, {1, 40'000, 3}, {6, 900, 33}}) {
      const Tensor x = random_tensor(random, type, {outer, rows, n}),
                   dy = random_tensor(random, type, {outer, rows, n}),
                   mean = random_tensor(random, type, {outer, n});
      for (const bool has_dy : {false, true}) {
        auto empty = [&] { return Tensor::empty(DType::f64, {outer, n}); };
        std::array<Tensor, 2> many{empty(), empty()}, one{empty(), empty()};
        for (auto* found : {&many, &one}) {
          ChannelSumsArgs a{x, {}, {}, View((*found)[0]), View((*found)[1]), outer, rows, n};
          if (has_dy) a.dy = dy, a.mean = mean;
          (found == &many ? p() : alone->primitives()).channel_sums(*stream, a);
        }
        BOOST_TEST((identical(many[0], one[0]) && identical(many[1], one[1])));
      }
    }
  const Shape query{2, 4, 130, 8}, key{2, 2, 200, 8};
  const Tensor q = random_tensor(random, DType::f32, query, -1, 1),
               k = random_tensor(random, DType::f32, key, -1, 1),
               v = random_tensor(random, DType::f32, key, -1, 1),
               dy = random_tensor(random, DType::f32, query, -1, 1);
  for (const Shape& s : {Shape{1, 4, 130, 200}, Shape{2, 1, 130, 1}, Shape{130, 200}}) {
    const Tensor mask = random_tensor(random, DType::f32, s, -1, 1);
    Tensor of_mask[] = {Tensor::empty(DType::f32, s), Tensor::empty(DType::f32, s)};
    for (int i = 0; i < 2; ++i) {
      const Primitives& on = i ? alone->primitives() : p();
      Tensor y = Tensor::empty(DType::f32, query), log_sum = Tensor::empty(DType::f32, {2, 4, 130}),
             dq = Tensor::empty(DType::f32, query), dk = Tensor::empty(DType::f32, key),
             dv = Tensor::empty(DType::f32, key);
      AttentionArgs a{q, k, v, mask, View(y), View(log_sum), 2, 4, 2, 130, 200, 8, 8, 0.5, true};
      on.attention(*stream, a);
      on.attention_gradient(*stream,
                            {a, y, log_sum, dy, View(dq), View(dk), View(dv), View(of_mask[i])});
    }
    BOOST_TEST(identical(of_mask[0], of_mask[1]), s.text());
  }
}

BOOST_AUTO_TEST_CASE(philox_known_answers) {
  using W = PhiloxWords;
  BOOST_TEST((philox(W{0, 0, 0, 0}, 0, 0) == W{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  std::uint32_t ones = 0xffffffff;
  BOOST_TEST((philox(W{ones, ones, ones, ones}, ones, ones) ==
              W{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  BOOST_TEST((philox(W{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
              W{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

BOOST_AUTO_TEST_CASE(random_numbers_depend_on_key_and_index_alone) {
  RandomKey key{1, 2, 3, 4};
  for (DType type :
       {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::u8, DType::i64})
    for (Random how : {Random::uniform, Random::normal, Random::truncated_normal}) {
      if (is_integer(type) && how != Random::uniform) continue;
      Tensor many = Tensor::empty(type, Shape{100'001}), few = Tensor::empty(type, Shape{777}),
             again = Tensor::empty(type, Shape{100'001});
      p().random(*stream, how, key, View(many));
      p().random(*stream, how, key, View(few));
      alone->primitives().random(*stream, how, key, View(again));
      BOOST_TEST(identical(many, again));
      BOOST_TEST(std::memcmp(many.raw(), few.raw(), few.bytes()) == 0);
      if (!is_floating(type)) continue;
      double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
      for (std::int64_t i = 0; i < many.elements(); ++i) {
        double v = many.at(i);
        sum += v;
        squares += v * v;
        low = std::min(low, v);
        high = std::max(high, v);
      }
      double mean = sum / 100'001, variance = squares / 100'001 - mean * mean;
      double true_mean = how == Random::uniform ? 0.5 : 0,
             true_variance = how == Random::uniform  ? 1.0 / 12
                             : how == Random::normal ? 1
                                                     : 0.774;
      BOOST_TEST(std::fabs(mean - true_mean) < 0.012);
      BOOST_TEST(std::fabs(variance - true_variance) < 0.02);
      if (how == Random::uniform) BOOST_TEST((low >= 0 && high < 1));
      if (how == Random::truncated_normal) BOOST_TEST((low >= -2 && high <= 2));
    }
  for (RandomKey other : {RandomKey{2, 2, 3, 4}, RandomKey{1, 3, 3, 4}, RandomKey{1, 2, 4, 4},
                          RandomKey{1, 2, 3, 5}}) {
    Tensor a = Tensor::empty(DType::i64, Shape{4}), b = Tensor::empty(DType::i64, Shape{4});
    p().random(*stream, Random::uniform, key, View(a));
    p().random(*stream, Random::uniform, other, View(b));
    BOOST_TEST(!identical(a, b));
  }
}

BOOST_AUTO_TEST_SUITE_END()
