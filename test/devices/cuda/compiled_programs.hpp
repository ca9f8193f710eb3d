// Scalar programs that suites print, compile with g++ and run on the CPU, and how far their results
// are from the CPU device's.
//
//   const Printed& p = Compiled::all().at("casts of f32");
//   const auto [units, where] = farthest(run_flat(p, in, n)[0], run_on_cpu(p.program, in, {n})[0]);
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <complex>
#include <cstdlib>
#include <limits>
#include <map>

#include <dlfcn.h>

#include <fmt/format.h>

#include <troupe/test/devices/cuda/programs.hpp>
#include <troupe/test/support/scalar_programs.hpp>
#include <troupe/test/support/temp_directory.hpp>

namespace troupe::test {

inline std::vector<ScalarOp> operations_of(DType type) {
  std::vector<ScalarOp> ops;
  for (int o = kFirstOp; o < kScalarOps; ++o) {
    ScalarProgram p;
    if (make_program(static_cast<ScalarOp>(o), type, p)) ops.push_back(static_cast<ScalarOp>(o));
  }
  return ops;
}

// All operations of a dtype as one program: inputs x, y and a condition.
inline ScalarProgram all_operations(DType type) {
  Recorder r(3);
  const Symbol x = r.input(0), y = r.input(1), condition = r.input(2);
  for (const ScalarOp op : operations_of(type))
    r.finish(arity(op) == 1   ? r.record(op, {x})
             : arity(op) == 2 ? r.record(op, {x, y})
                              : r.record(op, {condition, x, y}));
  return r.typed(std::array{type, type, DType::boolean});
}

inline ScalarProgram all_casts(DType from) {
  Recorder r(1);
  const Symbol x = r.input(0);
  for (int t = 0; t < kDTypes; ++t) r.finish(r.cast(x, static_cast<DType>(t)));
  return r.typed(std::array{from});
}

// Constants of every dtype, among them some that have to be rounded.
inline ScalarProgram all_constants() {
  Recorder r(1);
  for (int t = 0; t < kDTypes; ++t)
    for (const double c : {0.0, 1.0, 0.1, 3.7, 65504.0})
      r.finish(r.cast(Symbol(c), static_cast<DType>(t)));
  r.finish(r.input(0) * 0.1 + 1e-45);
  return r.typed(std::array{DType::f32});
}

// x * tanh(y) + 1 > z ? exp(-y) : x
inline ScalarProgram chain_program() {
  Recorder r(3);
  const Symbol x = r.input(0), y = r.input(1), z = r.input(2);
  r.finish(select(x * tanh(y) + 1.0 > z, exp(-y), x));
  return r.typed(std::array{DType::f32, DType::f32, DType::f32});
}

// Elements of every size, results that are inputs, one that is not read.
inline constexpr std::array kMixed{DType::f32,  DType::bf16,    DType::i8, DType::f64,
                                   DType::c128, DType::boolean, DType::u16};
inline ScalarProgram mixed_program() {
  Recorder r(static_cast<int>(kMixed.size()));
  const Symbol f = r.input(0), b = r.input(1), i = r.input(2), d = r.input(3), c = r.input(4),
               condition = r.input(5);
  const Symbol sum = f * b + r.cast(i, DType::f32);
  r.finish(sum);
  r.finish(r.cast(sum, DType::bf16));
  r.finish(r.cast(d, DType::i8));
  r.finish(select(condition, d, r.cast(i, DType::f64)));
  r.finish(c * c + r.cast(d, DType::c128));
  r.finish(sum > 0.0);
  r.finish(c);
  return r.typed(kMixed);
}

inline ScalarProgram handed_through() {
  Recorder r(2);
  const Symbol x = r.input(0), y = r.input(1);
  r.finish(y);
  r.finish(x);
  return r.typed(std::array{DType::f32, DType::f32});
}

inline ScalarProgram many_inputs() {
  constexpr int kInputs = 60;
  Recorder r(kInputs);
  Symbol total = r.input(0);
  for (int i = 1; i < kInputs; ++i) total = total + r.input(i) * 2.0;
  r.finish(total);
  return r.typed(std::vector<DType>(kInputs, DType::f32));
}

// silu of what is stored in few bits, as attention's gate.
inline ScalarProgram silu_program(DType type) {
  Recorder r(2);
  const Symbol x = r.input(0);
  r.finish(x * sigmoid(x) * r.input(1));
  return r.typed(std::array{type, type});
}

// ---- Compiled by g++, run on the CPU

struct Printed {
  ScalarProgram program;
  ProgramForm form;
  void (*kernel)(const void* arguments) = nullptr;
};

// All programs that run here, in one shared object.
class Compiled {
 public:
  static const Compiled& all() {
    static const Compiled compiled;
    return compiled;
  }
  const Printed& at(const std::string& name) const { return programs_.at(name); }
  /// A thread of the grid after the other.
  void launch(const Printed& p, const void* arguments, unsigned blocks, unsigned threads) const {
    for (unsigned b = 0; b < blocks; ++b)
      for (unsigned t = 0; t < threads; ++t) {
        place_(b, t, blocks, threads);
        p.kernel(arguments);
      }
  }

 private:
  void add(const std::string& name, const ScalarProgram& program, ProgramForm form) {
    programs_[name] = {program, std::move(form), nullptr};
  }
  Compiled() {
    for (int t = 0; t < kDTypes; ++t) {
      const auto type = static_cast<DType>(t);
      const std::string name(name_of(type));
      if (type != DType::f16 && type != DType::bf16) {
        const ScalarProgram ops = all_operations(type);
        add("operations of " + name, ops, flat_form(ops));
      }
      const ScalarProgram casts = all_casts(type);
      add("casts of " + name, casts, flat_form(casts));
    }
    for (DType type : {DType::f16, DType::bf16, DType::f32}) {
      const ScalarProgram silu = silu_program(type);
      add("silu of " + std::string(name_of(type)), silu, flat_form(silu, true));
    }
    add("constants", all_constants(), flat_form(all_constants()));
    add("handed through", handed_through(), flat_form(handed_through(), true));
    add("many inputs", many_inputs(), flat_form(many_inputs(), true));
    for (const bool is_wide : {false, true}) {
      const std::string width = is_wide ? ", wide" : "";
      add("chain" + width, chain_program(), flat_form(chain_program(), false, is_wide));
      for (const bool is_vectorized : {false, true})
        for (const int by_value : {0, 1}) {
          ProgramForm form = flat_form(mixed_program(), is_vectorized, is_wide);
          if (by_value)
            for (std::size_t i = 0; i < kMixed.size(); i += 2) form.by_value[i] = true;
          add(fmt::format("mixed{}{}{}", width, is_vectorized ? ", vectorized" : "",
                          by_value ? ", values" : ""),
              mixed_program(), form);
        }
      for (int axes = 1; axes <= kMaxAxes; ++axes) {
        ProgramForm form = flat_form(mixed_program(), false, is_wide);
        form.is_flat = false;
        form.axes = axes;
        if (axes % 2) form.by_value[static_cast<std::size_t>(axes % 6)] = true;
        add(fmt::format("strided {}{}", axes, width), mixed_program(), form);
      }
    }
    std::string text{prelude()};
    std::map<std::string, std::string> name_of_kernel;
    for (const auto& [name, p] : programs_) {
      const PrintedProgram printed = print_program(p.program, p.form);
      BOOST_TEST_REQUIRE(printed.text.find(printed.name) != std::string::npos);
      text += printed.text;
      name_of_kernel[name] = printed.name;
    }
    write_file(folder_ / "programs.cpp", text);
    const std::string object = folder_ / "programs.so";
    const auto start = std::chrono::steady_clock::now();
    const int failed = std::system(fmt::format("g++ -std=c++17 -O0 -w -ffp-contract=off -shared "
                                               "-fPIC -o {} {}",
                                               object, folder_ / "programs.cpp")
                                       .c_str());
    BOOST_TEST_MESSAGE(
        "g++ compiles "
        << programs_.size() << " programs of " << text.size() << " characters in "
        << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s");
    BOOST_TEST_REQUIRE(failed == 0);
    void* const library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
    BOOST_TEST_REQUIRE(library != nullptr, dlerror());
    for (auto& [name, p] : programs_) {
      p.kernel =
          reinterpret_cast<void (*)(const void*)>(dlsym(library, name_of_kernel[name].c_str()));
      BOOST_TEST_REQUIRE(p.kernel != nullptr, name);
    }
    place_ = reinterpret_cast<decltype(place_)>(dlsym(library, "troupe_place"));
  }

  Folder folder_;
  std::map<std::string, Printed> programs_;
  void (*place_)(unsigned, unsigned, unsigned, unsigned) = nullptr;
};

// Flat, with all inputs dense unless they have one element.
inline std::vector<Tensor> run_flat(const Printed& p, const std::vector<Tensor>& in, std::int64_t n,
                                    unsigned blocks = 2, unsigned threads = 3) {
  ProgramArguments arguments(p.form, in.size(), p.program.results.size());
  arguments.set_elements(n);
  for (std::size_t i = 0; i < in.size(); ++i) {
    StridedProgramInput input;
    if (p.form.by_value[i]) std::memcpy(input.value, in[i].raw(), size_of(in[i].dtype()));
    else input.data = in[i].raw();
    arguments.set_input(i, input);
  }
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < p.program.results.size(); ++i) {
    out.push_back(Tensor::empty(p.program.result_type(static_cast<int>(i)), Shape{n}));
    StridedProgramResult result;
    result.data = out.back().raw_mutable();
    arguments.set_result(i, result);
  }
  Compiled::all().launch(p, arguments.data(), blocks, threads);
  return out;
}

inline std::vector<Tensor> run_on_cpu(const ScalarProgram& p, const std::vector<Tensor>& in,
                                      const Shape& shape) {
  static const std::unique_ptr<Device> device = make_cpu_device();
  static const std::unique_ptr<Stream> stream = device->make_stream();
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < p.results.size(); ++i)
    out.push_back(Tensor::empty(p.result_type(static_cast<int>(i)), shape));
  const std::vector<ConstView> from(in.begin(), in.end());
  const std::vector<View> to(out.begin(), out.end());
  device->primitives().pointwise(*stream, p, from, to);
  return out;
}

// ---- Comparison

template <class T>
double unit_at(T x) {
  if (!(std::fabs(x) > std::numeric_limits<T>::min())) return std::numeric_limits<T>::denorm_min();
  return static_cast<double>(std::nextafter(std::fabs(x), std::numeric_limits<T>::infinity()) -
                             std::fabs(x));
}

// Units in the last place between two; infinite where one is NaN, or infinite, or another zero.
template <class T>
double distance(T got, T expected) {
  if (std::isnan(got) || std::isnan(expected))
    return std::isnan(got) && std::isnan(expected) ? 0 : INFINITY;
  if (got == expected) return std::signbit(got) == std::signbit(expected) ? 0 : INFINITY;
  if (std::isinf(got) || std::isinf(expected)) {
    const T other = std::isinf(got) ? expected : got;
    return std::signbit(got) == std::signbit(expected) &&
                   std::fabs(other) > std::numeric_limits<T>::max() * T(0.999999)
               ? 1
               : INFINITY;
  }
  return std::fabs(static_cast<double>(got) - static_cast<double>(expected)) / unit_at(expected);
}
// For complex numbers: units of the larger part.
template <class T>
double distance(std::complex<T> got, std::complex<T> expected) {
  const auto is_special = [](T x) { return x == 0 || !std::isfinite(x); };
  double worst = 0;
  const T size = std::max(std::isfinite(expected.real()) ? std::fabs(expected.real()) : 0,
                          std::isfinite(expected.imag()) ? std::fabs(expected.imag()) : 0);
  for (const auto& [g, e] :
       {std::pair{got.real(), expected.real()}, std::pair{got.imag(), expected.imag()}}) {
    if (is_special(e) && is_special(g)) worst = std::max(worst, distance(g, e));
    else if (std::isfinite(e) && std::isfinite(g))
      worst = std::max(worst,
                       std::fabs(static_cast<double>(g) - static_cast<double>(e)) / unit_at(size));
    else worst = std::max(worst, distance(g, e));
  }
  return worst;
}

inline double distance_at(const Tensor& got, const Tensor& expected, std::int64_t i) {
  return visit_dtype(got.dtype(), [&]<class T>(type_tag<T>) -> double {
    T g, e;
    std::memcpy(&g, static_cast<const std::byte*>(got.raw()) + i * sizeof(T), sizeof(T));
    std::memcpy(&e, static_cast<const std::byte*>(expected.raw()) + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
      const float a(g), b(e);
      return (std::isnan(a) && std::isnan(b)) || g.bits == e.bits ? 0 : INFINITY;
    } else if constexpr (std::is_integral_v<T>) {
      return g == e ? 0 : INFINITY;
    } else {
      return distance(g, e);
    }
  });
}

inline std::string element_text(const Tensor& t, std::int64_t i) {
  if (!is_complex(t.dtype())) return fmt::format("{}", t.at(i));
  const std::complex<double> z = t.dtype() == DType::c64
                                     ? std::complex<double>(t.data<std::complex<float>>()[i])
                                     : t.data<std::complex<double>>()[i];
  return fmt::format("({}, {})", z.real(), z.imag());
}

// The worst of all elements, and where.
inline std::pair<double, std::int64_t> farthest(const Tensor& got, const Tensor& expected) {
  std::pair<double, std::int64_t> worst{-1, 0};
  for (std::int64_t i = 0; i < got.elements(); ++i)
    if (const double off = distance_at(got, expected, i); off > worst.first) worst = {off, i};
  return worst;
}

}  // namespace troupe::test
