// The tile evaluator against the double-precision reference, and against itself.
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <limits>
#include <thread>

#include <sys/mman.h>

#include <troupe/devices/cpu/elements/pointwise.hpp>
#include <troupe/devices/cpu/level.hpp>
#include <troupe/devices/scalar/scalar_eval.hpp>
#include <troupe/devices/threads/worker_pool.hpp>
#include <troupe/test/support/numbers.hpp>
#include <troupe/test/support/scalar_programs.hpp>

using namespace troupe;
using namespace troupe::test;

BOOST_AUTO_TEST_SUITE(cpu_pointwise)

namespace {

Tensor run(const ScalarProgram& p, const std::vector<Tensor>& in, const Shape& shape,
           WorkerPool* pool = nullptr) {
  Tensor out = Tensor::empty(p.result_type(0), shape);
  std::vector<ConstView> views(in.begin(), in.end());
  View to(out);
  cpu::TileProgram::of(p).run(pool, views, {&to, 1});
  return out;
}

std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> all;
  for (CpuLevel l : {CpuLevel::portable, CpuLevel::v2, CpuLevel::v3, CpuLevel::v4})
    if (is_built(l) && l <= cpu_level()) all.push_back(l);
  return all;
}

std::vector<double> special_values() {
  std::vector<double> v = {
      0.0,   -0.0,       1,         -1,          0.5,   -0.5,      2,         -2,        3,
      10,    -10,        88.7,      -87.4,       88.8,  100,       -100,      -103.9,    104,
      127.9, 1e-3,       -1e-3,     1e-5,        -1e-5, 1e-10,     -1e-10,    1.17e-38,  -1.17e-38,
      1e-40, -1e-40,     1.4e-45,   1e30,        -1e30, 3.4e38,    -3.4e38,   INFINITY,  -INFINITY,
      NAN,   0.99999994, 1.0000001, -0.99999994, 1e4,   -1e4,      1e7,       123456.7,  1e15,
      9.01,  -9.01,      8.9,       0.3,         0.7,   0.6931472, 1.5707964, 3.1415927, 6.2831855,
      20,    -20,        17.3,      4.5,         3.9,   4.1};
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-44, 38), near(-12, 12), sign(-1, 1);
  for (int i = 0; i < 3000; ++i) {
    v.push_back(std::copysign(std::pow(10, exponent(random)), sign(random)));
    v.push_back(near(random));
    v.push_back(near(random) * 8);
  }
  for (double& x : v) x = static_cast<float>(x);
  return v;
}

// Units in the last place an operation may be off. mod of very unlike operands is exact here and
// is not in the reference's formula, so that pair is tested on small values below.
double tolerance(ScalarOp op, DType type) {
  using enum ScalarOp;
  switch (op) {
    case exp:
    case expm1:
    case log:
    case log1p:
    case sin:
    case cos:
    case tan:
    case asin:
    case acos:
    case atan:
    case sinh:
    case cosh:
    case tanh:
    case asinh:
    case acosh:
    case atanh:
    case erf:
    case erfc:
    case sigmoid:
    case pow:
    case atan2: return type == DType::f32 ? 4 : 4;
    case rsqrt: return 2;
    case gelu:
    case gelu_slope: return type == DType::f32 ? 1 : 6;
    default: return 0.500001;
  }
}

}  // namespace

// Slices of wider rows give the bits that copies of them give, wherever blocks and tiles end.
BOOST_AUTO_TEST_CASE(slices_of_rows) {
  WorkerPool pool(2);
  for (const std::int64_t rows : {1, 7, 300})
    for (const std::int64_t columns : {16, 50, 256, 3000}) {
      Recorder r(4);
      Symbol x = r.record(ScalarOp::tanh, {r.input(0)}),
             y = r.record(ScalarOp::mul, {x, r.input(1)}),
             z = r.record(ScalarOp::add, {r.input(2), r.input(3)});
      r.finish(y);
      r.finish(r.record(ScalarOp::sigmoid, {r.record(ScalarOp::sub, {y, z})}));
      r.finish(r.input(0));  // an output that is an input
      const DType types[4] = {DType::f32, DType::f32, DType::f32, DType::f32};
      const ScalarProgram p = r.typed(types);
      auto numbers = [](const Shape& shape, int seed) {
        std::vector<float> v(static_cast<std::size_t>(shape.elements()));
        std::mt19937 random(static_cast<unsigned>(seed));
        for (float& f : v) f = std::uniform_real_distribution<float>(-3, 3)(random);
        return Tensor::of(v, shape);
      };
      const Tensor wide = numbers({rows, 3 * columns}, 1), whole = numbers({rows, columns}, 2),
                   row = numbers({2 * columns}, 3), one = Tensor::scalar(0.25f);
      auto copied = [&](std::int64_t start) {
        Tensor out = Tensor::empty(DType::f32, {rows, columns});
        for (std::int64_t i = 0; i < rows; ++i)
          std::copy_n(wide.data<float>() + i * 3 * columns + start, columns,
                      out.mutable_data<float>() + i * columns);
        return out;
      };
      const Tensor bias = Tensor::of(
          std::vector<float>(row.data<float>() + columns, row.data<float>() + 2 * columns),
          {columns});
      Tensor expected[3], narrow[2] = {Tensor::empty(DType::f32, {rows, 2 * columns}),
                                       Tensor::empty(DType::f32, {rows, columns})};
      std::vector<View> views;
      for (Tensor& t : expected) views.emplace_back(t = Tensor::empty(DType::f32, {rows, columns}));
      const Tensor slice = copied(columns);
      const ConstView in[4] = {slice, whole, bias, one};
      cpu::TileProgram::of(p).run(nullptr, in, views);
      const View joined(narrow[0]), alone(narrow[1]);
      const ConstRowsView sliced[4] = {
          {wide, columns, 3 * columns}, {whole, 0, columns}, {row, columns, 0}, {one, 0, 0}};
      const RowsView out[3] = {
          {joined, columns, 2 * columns}, {alone, 0, columns}, {joined, 0, 2 * columns}};
      cpu::TileProgram::of(p).run_rows(&pool, rows, columns, sliced, out);
      BOOST_TEST(identical(narrow[1], expected[1]));
      bool is_same = true;
      for (std::int64_t i = 0; i < rows; ++i) {
        const float* to = narrow[0].data<float>() + i * 2 * columns;
        is_same = is_same && std::equal(to, to + columns, expected[2].data<float>() + i * columns);
        is_same = is_same && std::equal(to + columns, to + 2 * columns,
                                        expected[0].data<float>() + i * columns);
      }
      BOOST_TEST(is_same, rows << " rows of " << columns);
    }
}

BOOST_AUTO_TEST_CASE(every_floating_operation_agrees_with_the_reference) {
  std::vector<double> values = special_values();
  std::int64_t n = static_cast<std::int64_t>(values.size());
  for (DType type : {DType::f32, DType::f64}) {
    for (int o = kFirstOp; o < kScalarOps; ++o) {
      ScalarOp op = static_cast<ScalarOp>(o);
      ScalarProgram p;
      if (op == ScalarOp::mod || op == ScalarOp::floor_div || op == ScalarOp::select) continue;
      if (!make_program(op, type, p)) continue;
      std::vector<Tensor> in;
      std::vector<std::vector<double>> numbers;
      for (int k = 0; k < arity(op); ++k) {
        std::vector<double> v = values;
        std::shuffle(v.begin() + (k ? 0 : n), v.end(), std::mt19937_64(3));
        numbers.push_back(v);
        in.push_back(from_doubles(type, Shape{n}, v));
      }
      Tensor out = run(p, in, Shape{n});
      double worst = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<double> arguments;
        for (auto& v : numbers) arguments.push_back(v[static_cast<std::size_t>(i)]);
        double expected = p.evaluate(arguments)[0];
        double error = p.result_type(0) == DType::boolean ? double(out.at(i) != expected)
                                                          : ulps(type, out.at(i), expected);
        // Next to the root the slope is a difference of two that are a fifth.
        if (op == ScalarOp::gelu_slope && std::fabs(expected) < 0.1 && arguments[0] > -2)
          error *= std::fabs(expected) / 0.2;
        if (error > worst) worst = error;
        BOOST_TEST(error <= tolerance(op, type),
                   name_of(op) << ":" << name_of(type) << "(" << arguments[0]
                               << (arguments.size() > 1 ? ", " : "")
                               << (arguments.size() > 1 ? std::to_string(arguments[1]) : "")
                               << ") = " << out.at(i) << ", not " << expected << ": " << error
                               << " ulp");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_integer_operation_agrees_with_the_reference) {
  std::mt19937_64 random(1);
  for (int t = static_cast<int>(DType::i8); t <= static_cast<int>(DType::u64); ++t) {
    DType type = static_cast<DType>(t);
    for (int o = kFirstOp; o < kScalarOps; ++o) {
      ScalarOp op = static_cast<ScalarOp>(o);
      ScalarProgram p;
      if (!make_program(op, type, p)) continue;
      bool shift = op == ScalarOp::shift_left || op == ScalarOp::shift_right;
      std::vector<Tensor> in;
      for (int k = 0; k < arity(op); ++k)
        in.push_back(op == ScalarOp::select && k == 0
                         ? random_tensor(random, DType::boolean, Shape{200})
                     : (shift || op == ScalarOp::pow) && k == 1
                         ? random_tensor(random, type, Shape{200}, 0, 2.9)
                         : random_tensor(random, type, Shape{200}, -9, 9));
      Tensor out = run(p, in, Shape{200});
      for (std::int64_t i = 0; i < 200; ++i) {
        std::vector<double> arguments;
        for (auto& v : in) arguments.push_back(v.at(i));
        // The reference rounds through i64, so negative results of u64 compare modulo 2^64.
        double expected = p.evaluate(arguments)[0];
        if (type == DType::u64 && out.at(i) > 1e15) continue;
        BOOST_TEST(out.at(i) == expected, name_of(op)
                                              << ":" << name_of(type) << "(" << arguments[0] << ", "
                                              << (arguments.size() > 1 ? arguments[1] : 0)
                                              << ") = " << out.at(i) << ", not " << expected);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(integer_corners_wrap_and_never_trap) {
  auto both = [](ScalarOp op, std::int32_t x, std::int32_t y) {
    ScalarProgram p;
    make_program(op, DType::i32, p);
    return run(p, {Tensor::scalar(x), Tensor::scalar(y)}, Shape()).item<std::int32_t>();
  };
  constexpr std::int32_t low = INT32_MIN;
  BOOST_TEST(both(ScalarOp::div, 7, 0) == 0);
  BOOST_TEST(both(ScalarOp::mod, 7, 0) == 0);
  BOOST_TEST(both(ScalarOp::floor_div, 7, 0) == 0);
  BOOST_TEST(both(ScalarOp::div, low, -1) == low);
  BOOST_TEST(both(ScalarOp::mod, low, -1) == 0);
  BOOST_TEST(both(ScalarOp::floor_div, low, -1) == low);
  BOOST_TEST(both(ScalarOp::floor_div, -7, 2) == -4);
  BOOST_TEST(both(ScalarOp::mod, -7, 2) == 1);
  BOOST_TEST(both(ScalarOp::shift_left, 1, 33) == 2);
  BOOST_TEST(both(ScalarOp::shift_right, -8, 1) == -4);
  BOOST_TEST(both(ScalarOp::mul, low, 2) == 0);
  BOOST_TEST(both(ScalarOp::pow, 3, 5) == 243);
  BOOST_TEST(both(ScalarOp::pow, 2, -1) == 0);
  BOOST_TEST(both(ScalarOp::pow, -1, -3) == -1);
}

BOOST_AUTO_TEST_CASE(casts_round_saturate_and_wrap) {
  auto cast = [](Tensor x, DType to) {
    Recorder r(1);
    r.finish(r.cast(r.input(0), to));
    ScalarProgram p = r.typed(std::array{x.dtype()});
    return run(p, {x}, Shape());
  };
  BOOST_TEST(cast(Tensor::scalar(2.9f), DType::i32).item<std::int32_t>() == 2);
  BOOST_TEST(cast(Tensor::scalar(-2.9f), DType::i32).item<std::int32_t>() == -2);
  BOOST_TEST(cast(Tensor::scalar(1e20f), DType::i32).item<std::int32_t>() == INT32_MAX);
  BOOST_TEST(cast(Tensor::scalar(-1e20), DType::i64).item<std::int64_t>() == INT64_MIN);
  BOOST_TEST(cast(Tensor::scalar(-5.f), DType::u8).item<std::uint8_t>() == 0);
  BOOST_TEST(cast(Tensor::scalar(1e20), DType::u64).item<std::uint64_t>() == UINT64_MAX);
  BOOST_TEST(cast(Tensor::scalar(1.5e19), DType::u64).item<std::uint64_t>() ==
             15000000000000000000ull);
  BOOST_TEST(cast(Tensor::scalar(NAN), DType::i32).item<std::int32_t>() == 0);
  BOOST_TEST(cast(Tensor::scalar(std::int32_t(300)), DType::u8).item<std::uint8_t>() == 44);
  BOOST_TEST(cast(Tensor::scalar(NAN), DType::boolean).item<bool>());
  BOOST_TEST(cast(Tensor::scalar(0.25f), DType::boolean).item<bool>());
  BOOST_TEST(cast(Tensor::scalar(true), DType::f64).item<double>() == 1);
  BOOST_TEST(cast(Tensor::scalar(std::complex<float>(3, 4)), DType::f32).item<float>() == 3);
  // Every half, there and back; NaN stays NaN.
  Recorder up(1), down(1);
  up.finish(up.cast(up.input(0), DType::f32));
  down.finish(down.cast(down.input(0), DType::f16));
  ScalarProgram widen = up.typed(std::array{DType::f16}),
                narrow = down.typed(std::array{DType::f32});
  std::vector<half> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  Tensor halves = Tensor::of(all, Shape{65536});
  Tensor floats = run(widen, {halves}, Shape{65536});
  Tensor back = run(narrow, {floats}, Shape{65536});
  for (std::int64_t i = 0; i < 65536; ++i) {
    float f = floats.data<float>()[i];
    BOOST_TEST_REQUIRE(
        (std::isnan(f) ? std::isnan(float(back.data<half>()[i])) : back.data<half>()[i].bits == i));
  }
}

namespace {

// The nearest number of `digits` bits, ties to even; the last bit is worth 2^least at least.
long double rounded_once(long double v, int digits, int least, long double largest) {
  if (v == 0 || std::isinf(v)) return v;
  const int last = std::max(std::ilogb(v) - digits + 1, least);
  const long double r = std::ldexp(std::nearbyint(std::ldexp(v, -last)), last);
  return std::fabs(r) > largest ? std::copysign(std::numeric_limits<long double>::infinity(), v)
                                : r;
}

template <class Small, class T>
void rounds_once(T v) {
  constexpr DType to = dtype_of<Small>;
  const long double wanted =
      to == DType::f16 ? rounded_once(v, 11, -24, 65504) : rounded_once(v, 8, -133, 0x1.FEp127L);
  BOOST_TEST(float(Small(v)) == wanted);
  for (CpuLevel level : levels()) {
    T in[cpu::kPad];
    Small out[cpu::kPad];
    std::fill(std::begin(in), std::end(in), v);
    const auto cast = cpu::level_kernels(level).cast[int(to)][int(dtype_of<T>)];
    for (const std::int64_t n : {1, cpu::kPad}) {
      cast(out, in, nullptr, nullptr, n);
      BOOST_TEST(float(out[n - 1]) == wanted, name_of(to) << " of " << name_of(dtype_of<T>) << " "
                                                          << +v << " is " << float(out[n - 1]));
    }
  }
  if constexpr (std::is_floating_point_v<T>)
    BOOST_TEST(Tensor::scalar_as(to, v).at(0) == double(wanted));
}

template <class T>
void rounds_once_to_both(T v) {
  rounds_once<half>(v);
  rounds_once<bfloat16>(v);
}

}  // namespace

BOOST_AUTO_TEST_CASE(casts_to_few_bits_round_once) {  // F3
  // just above ties
  BOOST_TEST(float(half(1 + 0x1p-11 + 1e-12)) == 1.0009766f);
  BOOST_TEST(float(bfloat16(1 + 0x1p-8 + 1e-12)) == 1.0078125f);
  BOOST_TEST(float(bfloat16(std::int32_t(16842753))) == 16908288.f);
  std::mt19937_64 random(11);
  for (int i = 0; i < 2000; ++i) {
    // a tie, or next to one, on some side
    const double tie = 1 + double(random() % 4096) / 4096, next = int(random() % 3) - 1,
                 v = std::ldexp(tie + std::ldexp(next, -13 - int(random() % 40)),
                                int(random() % 280) - 150);
    rounds_once_to_both(v);
    rounds_once_to_both(-v);
    rounds_once_to_both(static_cast<float>(v));
    const int digits = int(random() % 52);
    const std::uint64_t whole = (((random() % 4096) << 52) + (random() % 3) - 1) >> digits;
    rounds_once_to_both(whole);
    rounds_once_to_both(static_cast<std::int64_t>(whole));
    rounds_once_to_both(static_cast<std::int32_t>(whole));
    rounds_once_to_both(static_cast<std::uint32_t>(whole));
  }
  rounds_once_to_both(INT64_MIN);
  rounds_once_to_both(INT64_MAX);
  rounds_once_to_both(UINT64_MAX);
  for (double v : {0.0, -0.0, 1e300, -1e300, 1e-300, 5e-324, double(INFINITY)})
    rounds_once_to_both(v);
  BOOST_TEST((std::isnan(float(half(double(NAN)))) && std::isnan(float(bfloat16(double(NAN))))));
}

// The reference, which fuses nothing, rounds as the kernels do.
BOOST_AUTO_TEST_CASE(the_reference_rounds_once) {
  for (DType to : {DType::f16, DType::bf16}) {
    Recorder r(1);
    r.finish(r.cast(r.input(0), to));
    const ScalarProgram p = r.typed(std::array{DType::f64});
    for (double v : {1 + 0x1p-11 + 1e-12, 1 + 0x1p-8 + 1e-12, -1 - 0x1p-8 - 1e-12})
      BOOST_TEST(p.evaluate(std::array{v})[0] == run(p, {Tensor::scalar(v)}, Shape()).at(0));
  }
}

BOOST_AUTO_TEST_CASE(f16_and_bf16_round_after_the_operation) {
  std::mt19937_64 random(5);
  for (DType type : {DType::f16, DType::bf16}) {
    ScalarProgram p;
    BOOST_TEST_REQUIRE(make_program(ScalarOp::mul, type, p));
    Tensor a = random_tensor(random, type, Shape{77}), b = random_tensor(random, type, Shape{77});
    Tensor out = run(p, {a, b}, Shape{77});
    for (std::int64_t i = 0; i < 77; ++i)
      BOOST_TEST(out.at(i) == Tensor::scalar_as(type, a.at(i) * b.at(i)).at(0));
  }
}

BOOST_AUTO_TEST_CASE(complex_arithmetic) {
  using C = std::complex<double>;
  auto both = [](ScalarOp op, C x, C y) {
    ScalarProgram p;
    BOOST_TEST_REQUIRE(make_program(op, DType::c128, p));
    std::vector<Tensor> in{Tensor::scalar(x)};
    if (arity(op) == 2) in.push_back(Tensor::scalar(y));
    return run(p, in, Shape());
  };
  C x(1, 2), y(3, -4);
  BOOST_TEST(std::abs(both(ScalarOp::add, x, y).item<C>() - (x + y)) < 1e-15);
  BOOST_TEST(std::abs(both(ScalarOp::mul, x, y).item<C>() - x * y) < 1e-15);
  BOOST_TEST(std::abs(both(ScalarOp::div, x, y).item<C>() - x / y) < 1e-15);
  BOOST_TEST(std::abs(both(ScalarOp::reciprocal, y, y).item<C>() - 1.0 / y) < 1e-15);
  BOOST_TEST(std::abs(both(ScalarOp::square, y, y).item<C>() - y * y) < 1e-14);
  BOOST_TEST(both(ScalarOp::eq, x, x).item<bool>());
  BOOST_TEST(both(ScalarOp::ne, x, y).item<bool>());
}

// Each product and each sum is rounded, at every level and whichever operand comes first.
BOOST_AUTO_TEST_CASE(complex_arithmetic_is_not_contracted) {
  auto check = []<class T>(T) {
    std::mt19937_64 random(9);
    std::uniform_real_distribution<T> part(-3, 3);
    std::vector<std::complex<T>> x, y, products;
    for (int i = 0; i < 333; ++i) {
      const T a = part(random), b = part(random), c = part(random), d = part(random);
      const volatile T ac = a * c, bd = b * d, ad = a * d, bc = b * c;
      x.emplace_back(a, b), y.emplace_back(c, d), products.emplace_back(ac - bd, ad + bc);
    }
    const Tensor one = Tensor::of(x, Shape{333}), other = Tensor::of(y, Shape{333}),
                 wanted = Tensor::of(products, Shape{333});
    auto at_level = [](CpuLevel level, ScalarOp op, const Tensor& left, const Tensor& right) {
      ScalarProgram p;
      BOOST_TEST_REQUIRE(make_program(op, left.dtype(), p));
      Tensor out = Tensor::empty(left.dtype(), left.shape());
      const std::vector<ConstView> views{ConstView(left), ConstView(right)};
      View to(out);
      cpu::TileProgram(p, cpu::level_kernels(level)).run(nullptr, views, {&to, 1});
      return out;
    };
    const Tensor quotients = at_level(levels()[0], ScalarOp::div, one, other);
    for (CpuLevel level : levels())
      BOOST_TEST((identical(at_level(level, ScalarOp::mul, one, other), wanted) &&
                  identical(at_level(level, ScalarOp::mul, other, one), wanted) &&
                  identical(at_level(level, ScalarOp::div, one, other), quotients)),
                 name_of(one.dtype()) << " at level " << name_of(level));
  };
  check(float{}), check(double{});
}

// The invariant everything rests on: an element's bits depend on its operands alone.
BOOST_AUTO_TEST_CASE(results_do_not_depend_on_position_length_or_scalar_path) {
  std::vector<double> values = special_values();
  values.resize(331);
  for (DType type : {DType::f32, DType::f64})
    for (int o = kFirstOp; o < kScalarOps; ++o) {
      ScalarOp op = static_cast<ScalarOp>(o);
      ScalarProgram p;
      if (op == ScalarOp::select || !make_program(op, type, p)) continue;
      std::int64_t n = static_cast<std::int64_t>(values.size());
      std::vector<Tensor> in;
      for (int k = 0; k < arity(op); ++k) {
        std::rotate(values.begin(), values.begin() + 17 * k, values.end());
        in.push_back(from_doubles(type, Shape{n}, values));
      }
      Tensor all = run(p, in, Shape{n});
      std::size_t out_bytes = size_of(p.result_type(0)), bytes = size_of(type);
      auto same = [&](const void* x, const void* y, std::size_t count) {
        return std::memcmp(x, y, count) == 0;
      };
      for (auto [begin, length] : {std::pair<int, int>{0, 1},
                                   {1, 15},
                                   {3, 16},
                                   {5, 17},
                                   {7, 64},
                                   {11, 100},
                                   {13, 318},
                                   {330, 1}}) {
        std::vector<Tensor> part;
        for (auto& t : in) part.push_back(t.rows(begin, begin + length));
        Tensor out = run(p, part, Shape{length});
        BOOST_TEST(same(out.raw(),
                        static_cast<const std::byte*>(all.raw()) +
                            static_cast<std::size_t>(begin) * out_bytes,
                        static_cast<std::size_t>(length) * out_bytes),
                   name_of(op) << ":" << name_of(type) << " from " << begin << ", " << length
                               << " elements");
      }
      for (std::int64_t i = 0; i < n; i += 3) {
        std::vector<Value> scalars;
        for (auto& t : in) {
          Tensor one = Tensor::empty(type, Shape());
          std::memcpy(one.raw_mutable(),
                      static_cast<const std::byte*>(t.raw()) + static_cast<std::size_t>(i) * bytes,
                      bytes);
          scalars.push_back(one);
        }
        Value out;
        evaluate_scalars(p, scalars, out);
        BOOST_TEST_REQUIRE(
            same(out.tensor().raw(),
                 static_cast<const std::byte*>(all.raw()) + static_cast<std::size_t>(i) * out_bytes,
                 out_bytes),
            name_of(op) << ":" << name_of(type) << " of scalars");
        // These elements as tensors: views whose last element ends a buffer, each with another
        // reference; then with a scalar among them.
        std::vector<Value> elements;
        for (auto& t : in) elements.push_back(t.rows(i, i + 1));
        for (int mixed = 0; mixed < std::min<int>(2, static_cast<int>(elements.size())); ++mixed) {
          if (mixed) elements[0] = scalars[0];
          Value made;
          BOOST_TEST_REQUIRE(evaluate_elements(p, elements, made));
          BOOST_TEST_REQUIRE(
              (made.tensor().shape() == Shape{1} && made.dtype() == p.result_type(0)));
          BOOST_TEST_REQUIRE(same(made.tensor().raw(), out.tensor().raw(), out_bytes),
                             name_of(op) << ":" << name_of(type) << " of tensors of one element");
        }
      }
    }
}

// The page behind the element is not readable.
BOOST_AUTO_TEST_CASE(kernel_reads_nothing_behind_a_single_element) {
  constexpr std::size_t kPage = 4096, kBytes = 64;
  struct Edge final : Allocator {
    std::byte* pages = static_cast<std::byte*>(
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Edge() { BOOST_REQUIRE(mprotect(pages + kPage, kPage, PROT_NONE) == 0); }
    ~Edge() override { munmap(pages, 2 * kPage); }
    void* allocate(std::size_t) override { return pages + kPage - kBytes; }
    void deallocate(void*, std::size_t) noexcept override {}
    bool has_room(std::size_t) const override { return true; }
    AllocatorCounters counters() const override { return {}; }
  };
  const auto stays_within = [](const ScalarProgram& p, DType type, int inputs) {
    std::vector<Edge> edges(static_cast<std::size_t>(inputs));
    std::vector<Value> in;
    for (Edge& e : edges)
      in.push_back(Tensor::on_buffer(Buffer::allocate(e, kBytes), kBytes - size_of(type), nullptr,
                                     type, Shape{1}));
    Value out;
    BOOST_TEST(evaluate_elements(p, in, out));
    in.clear();
  };
  constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64,
                              DType::i8,  DType::i32,  DType::i64, DType::c64};
  for (DType from : kTypes) {
    for (DType to : kTypes) {
      Recorder r(1);
      r.finish(r.cast(r.input(0), to));
      stays_within(r.typed(std::array{from}), from, 1);
    }
    for (int o = kFirstOp; o < kScalarOps; ++o) {
      ScalarProgram p;
      const auto op = static_cast<ScalarOp>(o);
      if (op != ScalarOp::select && make_program(op, from, p)) stays_within(p, from, arity(op));
    }
  }
}

BOOST_AUTO_TEST_CASE(one_element_takes_over_a_buffer_of_its_own) {
  Recorder r(2);
  r.finish(r.input(0) + r.input(1));
  const ScalarProgram p = r.typed(std::array{DType::f32, DType::f32});
  const Tensor held = Tensor::of<float>({1}, Shape{1});
  Value in[2] = {held, Tensor::of<float>({2}, Shape{1, 1})}, out;
  const void* place = in[1].tensor().raw();
  BOOST_TEST_REQUIRE(evaluate_elements(p, in, out));
  BOOST_TEST((out.tensor().shape() == Shape{1, 1}));  // the larger rank
  BOOST_TEST(out.tensor().raw() == place);
  BOOST_TEST(out.tensor().item<float>() == 3.f);
  BOOST_TEST(held.item<float>() == 1.f);
  Value shared[2] = {held, held};
  BOOST_TEST_REQUIRE(evaluate_elements(p, shared, out));
  BOOST_TEST(out.tensor().item<float>() == 2.f);
  BOOST_TEST(held.item<float>() == 1.f);
  Value several[2] = {held, Tensor::of<float>({1, 2})},
        none[2] = {held, Tensor::zeros(DType::f32, Shape{0})};
  BOOST_TEST(!evaluate_elements(p, several, out));
  BOOST_TEST(!evaluate_elements(p, none, out));
  BOOST_TEST(out.tensor().item<float>() == 2.f);  // nothing was done
}

BOOST_AUTO_TEST_CASE(levels_agree_bit_for_bit) {
  std::vector<double> values = special_values();
  std::int64_t n = static_cast<std::int64_t>(values.size());
  for (int t = 0; t < kDTypes; ++t)
    for (int o = kFirstOp; o < kScalarOps; ++o) {
      ScalarOp op = static_cast<ScalarOp>(o);
      DType type = static_cast<DType>(t);
      ScalarProgram p;
      if (op == ScalarOp::select || !make_program(op, type, p)) continue;
      std::vector<Tensor> in;
      for (int k = 0; k < arity(op); ++k) {
        std::rotate(values.begin(), values.begin() + 171 * k, values.end());
        std::vector<double> v = values;
        if (!is_floating(type))
          for (double& x : v) x = std::isfinite(x) ? std::fmod(x, 100) : 3;
        if (is_integer(type) && !is_signed_integer(type))
          for (double& x : v) x = std::fabs(x);
        in.push_back(from_doubles(type, Shape{n}, v));
      }
      std::vector<ConstView> views(in.begin(), in.end());
      std::vector<Tensor> results;
      for (CpuLevel level : levels()) {
        Tensor out = Tensor::empty(p.result_type(0), Shape{n});
        View to(out);
        cpu::TileProgram(p, cpu::level_kernels(level)).run(nullptr, views, {&to, 1});
        results.push_back(out);
      }
      for (std::size_t l = 1; l < results.size(); ++l)
        BOOST_TEST(identical(results[0], results[l]),
                   name_of(op) << ":" << name_of(type) << " at level " << name_of(levels()[l]));
    }
}

namespace {
// x * tanh(y) + 1 > z ? exp(-y) : x
ScalarProgram chain_program() {
  Recorder r(3);
  Symbol x = r.input(0), y = r.input(1), z = r.input(2);
  r.finish(select(x * tanh(y) + 1.0 > z, exp(-y), x));
  return r.typed(std::array{DType::f32, DType::f32, DType::f32});
}
}  // namespace

BOOST_AUTO_TEST_CASE(fused_chain_equals_its_steps) {
  std::mt19937_64 random(11);
  std::vector<Tensor> in;
  for (int i = 0; i < 3; ++i) in.push_back(random_tensor(random, DType::f32, Shape{5003}));
  Tensor fused = run(chain_program(), in, Shape{5003});
  auto step = [&](ScalarOp op, std::vector<Tensor> operands) {
    Recorder r(arity(op));
    std::vector<DType> types;
    for (auto& t : operands) types.push_back(t.dtype());
    if (arity(op) == 1) r.finish(r.record(op, {r.input(0)}));
    else if (arity(op) == 2) r.finish(r.record(op, {r.input(0), r.input(1)}));
    else r.finish(r.record(op, {r.input(0), r.input(1), r.input(2)}));
    return run(r.typed(types), operands, Shape{5003});
  };
  Tensor t = step(ScalarOp::mul, {in[0], step(ScalarOp::tanh, {in[1]})});
  Tensor condition = step(ScalarOp::gt, {step(ScalarOp::add, {t, Tensor::scalar(1.f)}), in[2]});
  Tensor e = step(ScalarOp::exp, {step(ScalarOp::neg, {in[1]})});
  BOOST_TEST(identical(fused, step(ScalarOp::select, {condition, e, in[0]})));
}

BOOST_AUTO_TEST_CASE(broadcast_inputs_of_every_kind) {
  std::mt19937_64 random(13);
  Recorder r(2);
  r.finish(r.input(0) - r.input(1));
  ScalarProgram p = r.typed(std::array{DType::f64, DType::f64});
  std::uniform_int_distribution<int> rank(0, 4), extent(0, 5), coin(0, 2);
  for (int round = 0; round < 400; ++round) {
    Shape out, a, b;
    int n = rank(random);
    for (int d = 0; d < n; ++d) {
      std::int64_t e = round % 7 ? extent(random) + 1 : extent(random);
      if (round % 50 == 3 && d == n - 1) e = 1500;
      out.push_back(e);
      a.push_back(coin(random) ? e : 1);
      b.push_back(coin(random) ? e : 1);
    }
    if (coin(random) == 0 && n > 1 && a[0] == 1) a = a.without(0);
    out = broadcast(a, b);
    Tensor x = random_tensor(random, DType::f64, a), y = random_tensor(random, DType::f64, b);
    Tensor got = run(p, {x, y}, out);
    for (std::int64_t i = 0; i < out.elements(); ++i) {
      auto at = [&](const Tensor& t) {
        std::int64_t rest = i, offset = 0, step = 1;
        for (int d = out.rank() - 1, s = t.rank() - 1; d >= 0; --d, --s) {
          std::int64_t c = rest % out[d];
          rest /= out[d];
          if (s < 0) continue;
          offset += t.shape()[s] == 1 ? 0 : c * step;
          step *= t.shape()[s];
        }
        return t.at(offset);
      };
      BOOST_TEST_REQUIRE(got.at(i) == at(x) - at(y), a.text() << " - " << b.text() << " at " << i);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_output_may_be_an_input) {
  std::mt19937_64 random(17);
  // Two results; the first is written into input 0, which the second still reads.
  Recorder r(2);
  Symbol x = r.input(0), y = r.input(1);
  Symbol sum = x + y;
  r.finish(sum);
  r.finish(x * y);
  ScalarProgram p = r.typed(std::array{DType::f32, DType::f32});
  for (std::int64_t n : {1, 16, 100, 5000, 100000}) {
    Tensor a = random_tensor(random, DType::f32, Shape{n}),
           b = random_tensor(random, DType::f32, Shape{n});
    Tensor keep_a = a.clone(), keep_b = b.clone();
    ConstView in[] = {a, b};
    View out[] = {View(a), View(b)};
    cpu::TileProgram::of(p).run(nullptr, in, out);
    for (std::int64_t i = 0; i < n; ++i) {
      BOOST_TEST_REQUIRE(a.data<float>()[i] == keep_a.data<float>()[i] + keep_b.data<float>()[i]);
      BOOST_TEST_REQUIRE(b.data<float>()[i] == keep_a.data<float>()[i] * keep_b.data<float>()[i]);
    }
  }
  // Inputs handed through, crosswise.
  Recorder s(2);
  Symbol u = s.input(0), v = s.input(1);
  s.finish(v);
  s.finish(u);
  ScalarProgram swap = s.typed(std::array{DType::f32, DType::f32});
  Tensor a = Tensor::of<float>({1, 2, 3}), b = Tensor::of<float>({4, 5, 6});
  ConstView in[] = {a, b};
  View out[] = {View(a), View(b)};
  cpu::TileProgram::of(swap).run(nullptr, in, out);
  BOOST_TEST(a.to_vector<float>() == (std::vector<float>{4, 5, 6}));
  BOOST_TEST(b.to_vector<float>() == (std::vector<float>{1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(pointwise_results_are_equal_on_any_number_of_workers) {
  std::mt19937_64 random(19);
  std::vector<Tensor> in;
  for (int i = 0; i < 3; ++i) in.push_back(random_tensor(random, DType::f32, Shape{200001}));
  ScalarProgram p = chain_program();
  Tensor alone = run(p, in, Shape{200001});
  for (int workers : {1, 2, 3}) {
    WorkerPool pool(workers);
    BOOST_TEST(identical(alone, run(p, in, Shape{200001}, &pool)));
  }
}

BOOST_AUTO_TEST_CASE(first_use_by_many_threads_at_once) {
  for (int round = 0; round < 20; ++round) {
    ScalarProgram p = chain_program();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        Value in[3] = {Tensor::scalar(1.f), Tensor::scalar(0.f), Tensor::scalar(2.f)}, out;
        evaluate_scalars(p, in, out);
        if (out.tensor().item<float>() != 1.f) ++wrong;
      });
    for (auto& t : threads) t.join();
    BOOST_TEST(wrong == 0);
  }
}

BOOST_AUTO_TEST_CASE(programs_of_many_registers_and_inputs) {
  constexpr int kInputs = 100;
  Recorder r(kInputs);
  std::vector<Symbol> x;
  for (int i = 0; i < kInputs; ++i) x.push_back(r.input(i));
  Symbol total = x[0];
  for (int i = 1; i < kInputs; ++i) total = total + x[static_cast<std::size_t>(i)] * 2.0;
  r.finish(total);
  ScalarProgram p = r.typed(std::vector<DType>(kInputs, DType::f32));
  std::vector<Tensor> in(kInputs, Tensor::of(std::vector<float>(300, 1.f), Shape{300}));
  Tensor out = run(p, in, Shape{300});
  for (std::int64_t i = 0; i < 300; ++i) BOOST_TEST_REQUIRE(out.at(i) == 1 + 2.0 * (kInputs - 1));
  std::vector<Value> scalars(kInputs, Tensor::scalar(1.f));
  Value sum;
  evaluate_scalars(p, scalars, sum);
  BOOST_TEST(sum.tensor().item<float>() == 1 + 2.f * (kInputs - 1));
}

BOOST_AUTO_TEST_SUITE_END()
