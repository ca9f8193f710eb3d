// Scalar programs as CUDA text: printed, compiled by g++ as plain C++ and compared with the CPU
// device; compiled by NVRTC.
//
// NVRTC compiles a sample, another each day (TROUPE_ROTATION); with TROUPE_WHOLE=1, all programs.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <thread>

#include <dlfcn.h>
#include <unistd.h>

#include <fmt/format.h>

#include <troupe/devices/cuda/programs/nvrtc.hpp>
#include <troupe/devices/cuda/programs/print.hpp>
#include <troupe/test/devices/cuda/compiled_programs.hpp>
#include <troupe/test/support/numbers.hpp>
#include <troupe/test/support/scalar_programs.hpp>
#include <troupe/test/support/share.hpp>
#include <troupe/test/support/temp_directory.hpp>

using namespace troupe;
using namespace troupe::cuda;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cuda_programs)

namespace {

// ---- Operands

template <class T>
std::vector<T> special_floats() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> v{0,
                   1,
                   T(0.5),
                   2,
                   3,
                   10,
                   T(0.1),
                   T(1e-10),
                   Limits::min(),
                   Limits::min() / 8,
                   Limits::denorm_min(),
                   Limits::max(),
                   T(1e30),
                   T(88.8),
                   100,
                   T(103.9),
                   T(710.1),
                   T(745.2),
                   Limits::infinity(),
                   1 - Limits::epsilon() / 2,
                   1 + Limits::epsilon(),
                   127,
                   T(127.9),
                   128,
                   255,
                   256,
                   T(32767.5),
                   65519,
                   65520,
                   T(2147483647.),
                   T(2147483648.),
                   T(4294967295.),
                   T(9.2233720368547748e18),
                   T(9.2233720368547758e18),
                   T(1.8446744073709552e19),
                   T(1.5707963267948966),
                   T(3.1415926535897931),
                   T(1e6),
                   T(12345678.9),
                   T(1.5),
                   T(2.5)};
  const std::size_t positive = v.size();
  for (std::size_t i = 0; i < positive; ++i) v.push_back(-v[i]);
  v.push_back(Limits::quiet_NaN());
  return v;
}

template <class T>
std::vector<T> specials() {
  if constexpr (std::is_same_v<T, bool>) return {false, true};
  else if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    std::vector<T> v{0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, Limits::max(), Limits::max() - 1};
    v.insert(v.end(), {Limits::min(), T(Limits::min() + 1), T(-1), T(-2), T(-7), T(-8), T(-100)});
    return v;
  } else {
    return special_floats<T>();
  }
}

template <class T>
T drawn(std::mt19937_64& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(random()) >> (random() % 64));
  } else {
    std::uniform_real_distribution<double> exponent(-44, 38), near(-12, 12), sign(-1, 1);
    switch (random() % 3) {
      case 0: return T(std::copysign(std::pow(10, exponent(random)), sign(random)));
      case 1: return T(near(random));
      default: return T(near(random) * 8);
    }
  }
}

// Two operands: every pair of specials, then numbers at random.
template <class T>
std::pair<std::vector<T>, std::vector<T>> operand_pairs(int randoms) {
  std::mt19937_64 random(7 + rotation());
  std::pair<std::vector<T>, std::vector<T>> v;
  const std::vector<T> all = specials<T>();
  for (const T x : all)
    for (const T y : all) v.first.push_back(x), v.second.push_back(y);
  for (int i = 0; i < randoms; ++i)
    v.first.push_back(drawn<T>(random)), v.second.push_back(drawn<T>(random));
  return v;
}

template <class T>
Tensor vector_of(const std::vector<T>& v) {
  return Tensor::of(v, Shape{static_cast<std::int64_t>(v.size())});
}

Tensor conditions(std::int64_t n) {
  std::vector<bool> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = i % 3 == 0;
  Tensor t = Tensor::empty(DType::boolean, Shape{n});
  for (std::size_t i = 0; i < v.size(); ++i) static_cast<bool*>(t.raw_mutable())[i] = v[i];
  return t;
}

// Functions that are not correctly rounded; the others agree bit for bit.
bool is_approximate(ScalarOp op) {
  return (op >= ScalarOp::exp && op <= ScalarOp::sigmoid) || op == ScalarOp::pow ||
         op == ScalarOp::atan2;
}

template <class T>
void compare_operations() {
  constexpr DType type = dtype_of<T>;
  const Printed& p = Compiled::all().at("operations of " + std::string(name_of(type)));
  const auto [x, y] = operand_pairs<T>(2000);
  const auto n = static_cast<std::int64_t>(x.size());
  const std::vector<Tensor> in{vector_of(x), vector_of(y), conditions(n)};
  const std::vector<Tensor> got = run_flat(p, in, n), expected = run_on_cpu(p.program, in, {n});
  const std::vector<ScalarOp> ops = operations_of(type);
  BOOST_TEST_REQUIRE(got.size() == ops.size());
  for (std::size_t o = 0; o < ops.size(); ++o) {
    const bool is_exact = is_integer(type) || !is_approximate(ops[o]);
    for (std::int64_t i = 0; i < n; ++i) {
      double off = distance_at(got[o], expected[o], i);
      // Next to its root the slope is a difference of two that are a fifth.
      if (ops[o] == ScalarOp::gelu_slope && in[0].at(i) > -2 && in[0].at(i) < 0)
        off *= std::min(1.0, std::fabs(expected[o].at(i)) / 0.2);
      if (off <= (is_exact ? 0 : 4)) continue;
      BOOST_ERROR(name_of(ops[o]) << ":" << name_of(type) << "(" << element_text(in[0], i) << ", "
                                  << element_text(in[1], i) << ") is " << element_text(got[o], i)
                                  << ", on the CPU " << element_text(expected[o], i) << ": " << off
                                  << " ulp");
      break;
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(integers_agree_with_the_cpu) {
  compare_operations<std::int8_t>(), compare_operations<std::int16_t>();
  compare_operations<std::int32_t>(), compare_operations<std::int64_t>();
  compare_operations<std::uint8_t>(), compare_operations<std::uint16_t>();
  compare_operations<std::uint32_t>(), compare_operations<std::uint64_t>();
}

BOOST_AUTO_TEST_CASE(floats_agree_with_the_cpu) {
  compare_operations<float>(), compare_operations<double>();
}

BOOST_AUTO_TEST_CASE(bools_agree_with_the_cpu) {
  const Printed& p = Compiled::all().at("operations of bool");
  std::vector<Tensor> in(3, Tensor::empty(DType::boolean, Shape{8}));
  for (std::size_t k = 0; k < 3; ++k) {
    in[k] = Tensor::empty(DType::boolean, Shape{8});
    for (std::size_t i = 0; i < 8; ++i)
      static_cast<bool*>(in[k].raw_mutable())[i] = ((i >> k) & 1) != 0;
  }
  const std::vector<Tensor> got = run_flat(p, in, 8), expected = run_on_cpu(p.program, in, {8});
  for (std::size_t o = 0; o < got.size(); ++o)
    BOOST_TEST(farthest(got[o], expected[o]).first == 0, o);
}

namespace {

// c128 as the CPU's libm, in units of the larger part. c64 is computed in f64 and compared with the
// CPU's c128, rounded: the CPU's c64 loses digits in between.
void compare_complex(const std::vector<std::complex<double>>& x,
                     const std::vector<std::complex<double>>& y, bool has_powers) {
  const auto n = static_cast<std::int64_t>(x.size());
  const std::vector<std::complex<float>> few(x.begin(), x.end()), other(y.begin(), y.end());
  const std::vector<Tensor> wide{vector_of(x), vector_of(y), conditions(n)},
      narrow{vector_of(few), vector_of(other), conditions(n)};
  const Printed &p128 = Compiled::all().at("operations of c128"),
                &p64 = Compiled::all().at("operations of c64");
  const std::vector<Tensor> got = run_flat(p128, wide, n),
                            expected = run_on_cpu(p128.program, wide, {n}),
                            got64 = run_flat(p64, narrow, n),
                            expected64 = run_on_cpu(p64.program, narrow, {n});
  Recorder r(1);
  r.finish(r.cast(r.input(0), DType::c64));
  const ScalarProgram to_c64 = r.typed(std::array{DType::c128});
  const std::vector<ScalarOp> ops = operations_of(DType::c128);
  for (std::size_t o = 0; o < ops.size(); ++o) {
    const ScalarOp op = ops[o];
    if (op == ScalarOp::pow && !has_powers) continue;
    const auto check = [&](const Tensor& g, const Tensor& e, double allowed) {
      const auto [off, at] = farthest(g, e);
      BOOST_TEST(off <= allowed,
                 name_of(op) << ":" << name_of(g.dtype()) << "(" << element_text(wide[0], at)
                             << ", " << element_text(wide[1], at) << ") is " << element_text(g, at)
                             << ", on the CPU " << element_text(e, at) << ": " << off << " ulp");
    };
    const bool is_exact = !is_approximate(op) && op != ScalarOp::sqrt && op != ScalarOp::rsqrt;
    // a power takes on the rounding of y log(x), whose size is up to 400
    check(got[o], expected[o], is_exact ? 0 : op == ScalarOp::pow ? 400 : 8);
    if (is_exact) check(got64[o], expected64[o], 0);
    else check(got64[o], run_on_cpu(to_c64, {expected[o]}, {n})[0], 1);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(complex_numbers_agree_with_the_cpu) {
  std::mt19937_64 random(11 + rotation());
  const double inf = INFINITY;
  const std::vector<double> parts{0,     -0.0,   1,    -1,    0.5,          -2,   3,
                                  1e-10, -1e-30, 1e10, -1e20, 40,           -100, 1.5625,
                                  inf,   -inf,   NAN,  0.75,  -0.9990234375};
  std::vector<std::complex<double>> x, y;
  for (const double re : parts)
    for (const double im : parts) x.emplace_back(re, im);
  std::uniform_real_distribution<double> near(-3, 3), exponent(-20, 20), sign(-1, 1);
  const auto draw = [&] {
    const bool is_near = random() % 2;
    return static_cast<double>(static_cast<float>(
        is_near ? near(random) : std::copysign(std::pow(10, exponent(random)), sign(random))));
  };
  for (int i = 0; i < 600; ++i) x.emplace_back(draw(), draw());
  // on the circle of 1, where logarithms lose digits, and beside i and 1
  for (int i = 0; i < 200; ++i) {
    const std::complex<double> z = std::polar(1.0, near(random));
    x.emplace_back(static_cast<float>(z.real()), static_cast<float>(z.imag()));
    x.emplace_back(1 + std::ldexp(near(random), -20), std::ldexp(near(random), -22));
    x.emplace_back(std::ldexp(near(random), -30), 1 + std::ldexp(near(random), -21));
  }
  for (auto& z : x) z = std::complex<double>(std::complex<float>(z));
  y = x;
  std::shuffle(y.begin(), y.end(), random);
  compare_complex(x, y, false);
  // Powers whose angle is not lost in rounding.
  for (auto& z : y)
    z = {std::isfinite(z.real()) ? std::fmod(z.real(), 4) : z.real(),
         std::isfinite(z.imag()) ? std::fmod(z.imag(), 4) : z.imag()};
  compare_complex(x, y, true);
}

BOOST_AUTO_TEST_CASE(casts_agree_with_the_cpu) {
  const auto check = [](const Tensor& x) {
    const Printed& p = Compiled::all().at("casts of " + std::string(name_of(x.dtype())));
    const std::int64_t n = x.elements();
    const std::vector<Tensor> got = run_flat(p, {x}, n), expected = run_on_cpu(p.program, {x}, {n});
    for (std::size_t t = 0; t < got.size(); ++t) {
      const auto [off, at] = farthest(got[t], expected[t]);
      BOOST_TEST(off == 0, name_of(got[t].dtype())
                               << " of " << name_of(x.dtype()) << " " << element_text(x, at)
                               << " is " << element_text(got[t], at) << ", on the CPU "
                               << element_text(expected[t], at));
    }
  };
  const auto of_type = [&]<class T>(type_tag<T>) {
    std::mt19937_64 random(3 + rotation());
    std::vector<T> v = specials<T>();
    for (int i = 0; i < 2000; ++i) v.push_back(drawn<T>(random));
    check(vector_of(v));
    if constexpr (std::is_floating_point_v<T>) {
      std::vector<std::complex<T>> z;
      for (const T re : specials<T>())
        for (const T im : {T(0), T(-0.0), T(2), T(NAN)}) z.emplace_back(re, im);
      check(vector_of(z));
    }
  };
  of_type(type_tag<float>{}), of_type(type_tag<double>{});
  of_type(type_tag<std::int8_t>{}), of_type(type_tag<std::int16_t>{});
  of_type(type_tag<std::int32_t>{}), of_type(type_tag<std::int64_t>{});
  of_type(type_tag<std::uint8_t>{}), of_type(type_tag<std::uint16_t>{});
  of_type(type_tag<std::uint32_t>{}), of_type(type_tag<std::uint64_t>{});
  check(conditions(5));
  std::vector<half> halves(65536);
  std::vector<bfloat16> brains(65536);
  for (std::size_t i = 0; i < halves.size(); ++i)
    halves[i].bits = brains[i].bits = static_cast<std::uint16_t>(i);
  check(vector_of(halves)), check(vector_of(brains));
}

BOOST_AUTO_TEST_CASE(constants_keep_their_bits) {
  const Printed& p = Compiled::all().at("constants");
  const std::vector<Tensor> in{Tensor::of<float>({0.f, 1.f, 1e-44f, INFINITY, NAN})};
  const std::vector<Tensor> got = run_flat(p, in, 5), expected = run_on_cpu(p.program, in, {5});
  for (std::size_t o = 0; o < got.size(); ++o)
    BOOST_TEST(farthest(got[o], expected[o]).first == 0,
               o << ": " << element_text(got[o], 0) << ", not " << element_text(expected[o], 0));
}

namespace {

// Few digits, so that every program on them is exact.
std::vector<Tensor> mixed_operands(std::mt19937_64& random, std::int64_t n) {
  std::vector<Tensor> in;
  for (const DType type : kMixed)
    if (type == DType::c128) {
      std::vector<std::complex<double>> z;
      for (std::int64_t i = 0; i < n; ++i)
        z.emplace_back(static_cast<double>(random() % 64), static_cast<double>(random() % 64) - 32);
      in.push_back(vector_of(z));
    } else {
      in.push_back(random_tensor(random, type, Shape{n}));
    }
  return in;
}

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& expected,
                 const std::string& what, double allowed = 0) {
  BOOST_TEST_REQUIRE(got.size() == expected.size());
  for (std::size_t o = 0; o < got.size(); ++o) {
    const auto [off, at] = farthest(got[o], expected[o]);
    BOOST_TEST(off <= allowed, what << ", result " << o << " at " << at << ": "
                                    << element_text(got[o], at) << ", not "
                                    << element_text(expected[o], at));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(flat_forms_of_all_lengths) {
  std::mt19937_64 random(5 + rotation());
  for (const char* width : {"", ", wide"})
    for (const char* vectorized : {"", ", vectorized"})
      for (const char* values : {"", ", values"}) {
        const std::string name = fmt::format("mixed{}{}{}", width, vectorized, values);
        const Printed& p = Compiled::all().at(name);
        for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 23, 24, 100, 1027}) {
          std::vector<Tensor> in = mixed_operands(random, n);
          for (std::size_t i = 0; i < in.size(); ++i)
            if (p.form.by_value[i]) in[i] = in[i].rows(0, 1);
          // few threads, so that each goes round
          for (const unsigned blocks : {1u, 3u})
            expect_same(run_flat(p, in, n, blocks, 4), run_on_cpu(p.program, in, {n}),
                        fmt::format("{}, {} elements", name, n));
        }
      }
  for (const char* name : {"chain", "chain, wide", "silu of f32"}) {
    const Printed& p = Compiled::all().at(name);
    std::vector<Tensor> in;
    for (std::size_t i = 0; i < p.program.inputs.size(); ++i)
      in.push_back(random_tensor(random, DType::f32, Shape{333}));
    expect_same(run_flat(p, in, 333), run_on_cpu(p.program, in, {333}), name, 8);
  }
  // A result of few bits is rounded from results that differ by a unit of f32: the next at most.
  for (const DType type : {DType::f16, DType::bf16}) {
    const Printed& p = Compiled::all().at("silu of " + std::string(name_of(type)));
    std::vector<Tensor> in{random_tensor(random, type, Shape{333}),
                           random_tensor(random, type, Shape{333})};
    const Tensor got = run_flat(p, in, 333)[0], expected = run_on_cpu(p.program, in, {333})[0];
    for (std::int64_t i = 0; i < 333; ++i)
      BOOST_TEST(std::fabs(got.at(i) - expected.at(i)) <=
                 std::fabs(expected.at(i)) * (type == DType::f16 ? 0x1p-10 : 0x1p-7));
  }
  const Printed& many = Compiled::all().at("many inputs");
  std::vector<Tensor> in;
  for (std::size_t i = 0; i < many.program.inputs.size(); ++i)
    in.push_back(random_tensor(random, DType::f32, Shape{50}));
  expect_same(run_flat(many, in, 50), run_on_cpu(many.program, in, {50}), "many inputs");
}

// Rotated operands: each result is written where another result's operand lies.
BOOST_AUTO_TEST_CASE(results_may_lie_in_operands) {
  const Printed& p = Compiled::all().at("handed through");
  for (const std::int64_t n : {1, 3, 4, 22}) {
    std::mt19937_64 random(static_cast<std::uint64_t>(n));
    Tensor x = random_tensor(random, DType::f32, Shape{n}),
           y = random_tensor(random, DType::f32, Shape{n});
    const Tensor was_x = x.clone(), was_y = y.clone();
    ProgramArguments arguments(p.form, 2, 2);
    arguments.set_elements(n);
    StridedProgramInput in;
    StridedProgramResult out;
    for (const auto& [i, t] : {std::pair{0u, &x}, {1u, &y}}) {
      in.data = out.data = t->raw_mutable();
      arguments.set_input(i, in), arguments.set_result(i, out);
    }
    Compiled::all().launch(p, arguments.data(), 2, 2);
    BOOST_TEST((farthest(x, was_y).first == 0 && farthest(y, was_x).first == 0), n);
  }
}

BOOST_AUTO_TEST_CASE(strided_forms_of_all_axes) {
  std::mt19937_64 random(9 + rotation());
  for (const char* width : {"", ", wide"})
    for (int axes = 1; axes <= kMaxAxes; ++axes)
      for (int round = 0; round < 4; ++round) {
        const std::string name = fmt::format("strided {}{}", axes, width);
        const Printed& p = Compiled::all().at(name);
        std::vector<std::int64_t> extents;
        std::int64_t n = 1;
        for (int a = 0; a < axes; ++a) {
          extents.push_back(1 + static_cast<std::int64_t>(random() % (axes < 4 ? 9 : 3)));
          n *= extents.back();
        }
        // The index of element i of an operand, which has some axes twice as wide as it needs, some
        // of stride 0, and some that run backwards from `origin`.
        struct Walk {
          std::vector<std::int64_t> stride;
          std::int64_t size = 1, origin = 0;
        };
        const auto walk = [&](bool may_repeat) {
          Walk w{std::vector<std::int64_t>(static_cast<std::size_t>(axes), 0), 1, 0};
          for (std::size_t a = static_cast<std::size_t>(axes); a-- > 0;) {
            if (may_repeat && random() % 3 == 0) continue;
            const std::int64_t step = w.size * (1 + static_cast<std::int64_t>(random() % 2));
            w.size = step * extents[a];
            w.stride[a] = step;
            if (random() % 4 == 0) {
              w.stride[a] = -step;
              w.origin += step * (extents[a] - 1);
            }
          }
          return w;
        };
        const auto place = [&](const Walk& w, std::int64_t i) {
          std::int64_t at = w.origin;
          for (std::size_t a = static_cast<std::size_t>(axes); a-- > 0; i /= extents[a])
            at += i % extents[a] * w.stride[a];
          return at;
        };
        ProgramArguments arguments(p.form, kMixed.size(), p.program.results.size());
        arguments.set_elements(n);
        for (int a = 0; a < axes; ++a)
          arguments.set_extent(a, extents[static_cast<std::size_t>(a)]);
        std::vector<Tensor> stored, dense;
        std::vector<Walk> walks;
        for (std::size_t i = 0; i < kMixed.size(); ++i) {
          const std::size_t bytes = size_of(kMixed[i]);
          const bool is_value = p.form.by_value[i];
          walks.push_back(walk(true));
          stored.push_back(mixed_operands(random, is_value ? 1 : walks[i].size)[i]);
          dense.push_back(is_value ? stored[i] : Tensor::empty(kMixed[i], Shape{n}));
          const auto* from = static_cast<const std::byte*>(stored[i].raw());
          StridedProgramInput in;
          if (is_value) {
            std::memcpy(in.value, from, bytes);
          } else {
            in.data = from + static_cast<std::size_t>(walks[i].origin) * bytes;
            std::copy(walks[i].stride.begin(), walks[i].stride.end(), in.stride);
            for (std::int64_t e = 0; e < n; ++e)
              std::memcpy(static_cast<std::byte*>(dense[i].raw_mutable()) +
                              static_cast<std::size_t>(e) * bytes,
                          from + static_cast<std::size_t>(place(walks[i], e)) * bytes, bytes);
          }
          arguments.set_input(i, in);
        }
        const std::vector<Tensor> expected = run_on_cpu(p.program, dense, {n});
        std::vector<Tensor> out, got;
        walks.clear();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          walks.push_back(walk(false));
          out.push_back(Tensor::zeros(expected[i].dtype(), Shape{walks[i].size}));
          StridedProgramResult result;
          result.data = static_cast<std::byte*>(out[i].raw_mutable()) +
                        static_cast<std::size_t>(walks[i].origin) * size_of(out[i].dtype());
          std::copy(walks[i].stride.begin(), walks[i].stride.end(), result.stride);
          arguments.set_result(i, result);
        }
        Compiled::all().launch(p, arguments.data(), 2, 5);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const std::size_t bytes = size_of(out[i].dtype());
          got.push_back(Tensor::empty(out[i].dtype(), Shape{n}));
          for (std::int64_t e = 0; e < n; ++e)
            std::memcpy(
                static_cast<std::byte*>(got[i].raw_mutable()) + static_cast<std::size_t>(e) * bytes,
                static_cast<const std::byte*>(out[i].raw()) +
                    static_cast<std::size_t>(place(walks[i], e)) * bytes,
                bytes);
        }
        expect_same(got, expected, name);
      }
}

BOOST_AUTO_TEST_CASE(names_distinguish_programs) {
  const PrintedProgram one = print_program(chain_program(), flat_form(chain_program())),
                       again = print_program(chain_program(), flat_form(chain_program())),
                       other = print_program(chain_program(), flat_form(chain_program(), true));
  BOOST_TEST(one.name == again.name);
  BOOST_TEST(one.text == again.text);
  BOOST_TEST(one.name != other.name);
  BOOST_TEST(elements_a_thread(flat_form(chain_program(), true)) == 4);
  ProgramForm wrong = flat_form(chain_program());
  wrong.by_value.pop_back();
  BOOST_CHECK_THROW(print_program(chain_program(), wrong), Error);
}

// ---- NVRTC

namespace {

struct Sample {
  std::string what;
  PrintedProgram printed;
};

// Each operation of each dtype, each cast, and the forms.
std::vector<Sample> all_samples() {
  std::vector<Sample> all;
  const auto add = [&](std::string what, const ScalarProgram& p, const ProgramForm& form) {
    all.push_back({std::move(what), print_program(p, form)});
  };
  for (int t = 0; t < kDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    for (const ScalarOp op : operations_of(type)) {
      ScalarProgram p;
      make_program(op, type, p);
      add(fmt::format("{} of {}", name_of(op), name_of(type)), p,
          flat_form(p, all.size() % 2 == 0, all.size() % 3 == 0));
    }
    for (int to = 0; to < kDTypes; ++to) {
      Recorder r(1);
      r.finish(r.cast(r.input(0), static_cast<DType>(to)));
      const ScalarProgram p = r.typed(std::array{type});
      add(fmt::format("{} cast to {}", name_of(type), name_of(static_cast<DType>(to))), p,
          flat_form(p, all.size() % 2 == 0));
    }
  }
  for (int axes = 1; axes <= kMaxAxes; ++axes)
    for (const bool is_wide : {false, true}) {
      ProgramForm form = flat_form(mixed_program(), false, is_wide);
      form.is_flat = false, form.axes = axes, form.by_value[2] = true;
      add(fmt::format("{} axes", axes), mixed_program(), form);
    }
  for (const bool is_vectorized : {false, true})
    for (const bool is_wide : {false, true})
      for (const ScalarProgram& p : {mixed_program(), chain_program(), many_inputs(),
                                     all_constants(), silu_program(DType::bf16)})
        add("a program of several steps", p, flat_form(p, is_vectorized, is_wide));
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(nvrtc_compiles_a_sample) {
  if (!has_nvrtc()) return;
  constexpr std::uint64_t kShares = 40;
  const std::vector<Sample> all = all_samples();
  const bool is_whole = std::getenv("TROUPE_WHOLE") != nullptr;
  Folder folder;
  ProgramCache cache({.folder = folder.path(), .architecture = 90});
  const auto start = std::chrono::steady_clock::now();
  std::size_t compiled = 0, bytes = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!is_whole && (i + rotation()) % kShares != 0) continue;
    try {
      const auto image = cache.get(all[i].printed.text, all[i].printed.name);
      BOOST_TEST(image->compare(0, 4,
                                "\x7f"
                                "ELF") == 0,
                 all[i].what);
      BOOST_TEST(image->find(all[i].printed.name) != std::string::npos, all[i].what);
      ++compiled, bytes += image->size();
    } catch (const Error& e) { BOOST_ERROR(all[i].what << ": " << e.what()); }
  }
  BOOST_TEST_MESSAGE(
      "NVRTC compiles "
      << compiled << " of " << all.size() << " programs in "
      << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s, "
      << bytes << " bytes");
  BOOST_TEST(compiled > 0);
  BOOST_TEST(cache.problem() == "");
}

BOOST_AUTO_TEST_SUITE_END()
