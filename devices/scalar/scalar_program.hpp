// Scalar programs: the function that a pointwise operation applies to one element, recorded once.
//
// An op's author writes one generic lambda; it is instantiated on `double` (the reference) and on
// `Symbol`, which records a tape. Typed for its inputs, the tape is a `ScalarProgram`: the CPU
// device runs it tile by tile over L1-sized pieces, fused over whole chains; a GPU prints it as
// source.
//
//   auto silu = [](auto x) { return x / (1.0 + exp(-x)); };
//   silu(2.0);                                       // the reference
//   Recorder r(1);  r.finish(silu(r.input(0)));      // the tape
//   ScalarProgram p = r.typed({DType::f32});
//
// Invariants: 1. instructions are in an order in which operands come first; 2. operands of one
// arithmetic instruction have one dtype; comparisons and logic yield bool; 3. f16 and bf16 appear
// only as operand or result of `cast`: arithmetic on them happens in f32 and is rounded after
// every op, so that fused and unfused agree bit for bit.
#pragma once

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <troupe/devices/base/dtype.hpp>
#include <troupe/devices/scalar/scalar_op.hpp>

namespace troupe::detail {

struct ScalarInstruction {
  ScalarOp op;
  DType type;  // dtype of the result
  // earlier instructions; input: operand[0] is the input's index
  std::array<std::int16_t, 3> operand{};
  double constant = 0;  // integers beyond 2^53 are not needed as constants
  friend bool operator==(const ScalarInstruction&, const ScalarInstruction&) = default;
};

/// A device's preparation of a program, made on the first run and kept beside it.
class PreparedProgram {
 public:
  virtual ~PreparedProgram() = default;
};

/// Prepared forms of a program: a slot for each kind of device. A slot is written once, by the
/// first thread that prepares; read without a lock. Copies of a program start empty.
class PreparedSlots {
 public:
  static constexpr int kSlots = 4;
  static constexpr int kCpu = 0;
  /// A slot for one more kind of device, which claims it once a process. Throws resource_exhausted
  /// if all are taken.
  static int claim();

  PreparedSlots() = default;
  PreparedSlots(const PreparedSlots&) {}
  PreparedSlots(PreparedSlots&& o) noexcept { swap_with(o); }
  PreparedSlots& operator=(PreparedSlots o) noexcept {
    swap_with(o);
    return *this;
  }
  ~PreparedSlots() {
    for (auto& slot : prepared_) delete slot.load(std::memory_order_relaxed);
  }

  /// Null if nothing was prepared for the slot's kind.
  const PreparedProgram* get(int slot) const {
    return prepared_[static_cast<std::size_t>(slot)].load(std::memory_order_acquire);
  }
  /// Keeps `made` unless another thread was first; returns the one that stays.
  const PreparedProgram* publish(int slot, std::unique_ptr<PreparedProgram> made) const {
    PreparedProgram* none = nullptr;
    if (!prepared_[static_cast<std::size_t>(slot)].compare_exchange_strong(
            none, made.get(), std::memory_order_acq_rel))
      return none;
    return made.release();
  }

 private:
  void swap_with(PreparedSlots& o) noexcept {  // no other thread holds either program
    for (std::size_t i = 0; i < prepared_.size(); ++i)
      prepared_[i].store(o.prepared_[i].exchange(prepared_[i].load(std::memory_order_relaxed),
                                                 std::memory_order_relaxed),
                         std::memory_order_relaxed);
  }

  // each publishes a whole prepared program
  mutable std::array<std::atomic<PreparedProgram*>, kSlots> prepared_{};
};

/// A typed tape with one or more results. A value; immutable once built.
struct ScalarProgram {
  std::vector<DType> inputs;
  std::vector<ScalarInstruction> code;
  std::vector<std::int16_t> results;  // instructions whose values are the outputs
  PreparedSlots prepared;             // by devices

  DType result_type(int i) const { return code[results[i]].type; }
  /// Runs on doubles (bool is 0 or 1, integers and f32 are rounded as their dtype would): the
  /// reference.
  std::vector<double> evaluate(std::span<const double> arguments) const;
  /// One instruction a line, for people.
  std::string text() const;
};

class Recorder;

/// The recording scalar: arithmetic on it writes the tape. Literals become constants of the other
/// operand's type.
class Symbol {
 public:
  Symbol(double literal) : literal_(literal) {}  // NOLINT: literals are meant to convert
  Symbol(Recorder* recorder, std::int16_t id) : recorder_(recorder), id_(id) {}
  Recorder* recorder() const { return recorder_; }
  std::int16_t id() const { return id_; }
  double literal() const { return literal_; }

 private:
  Recorder* recorder_ = nullptr;
  std::int16_t id_ = -1;
  double literal_ = 0;
};

/// Writes one tape; symbols refer to it and must not outlive it.
class Recorder {
 public:
  explicit Recorder(int inputs) : inputs_(inputs) {}
  Symbol input(int i);
  Symbol record(ScalarOp op, std::initializer_list<Symbol> operands);
  /// A conversion to `type`, rounding as the dtype does.
  Symbol cast(Symbol x, DType type);
  void finish(Symbol result) { results_.push_back(intern(result)); }
  void finish(bool constant) { finish(Symbol(constant ? 1.0 : 0.0)); }

  /// The tape for these input dtypes. Throws invalid_argument, saying which instruction, if the
  /// dtypes cannot meet (f32 with i32) or have no such operation (sin of an integer).
  ScalarProgram typed(std::span<const DType> inputs) const;

 private:
  struct Entry {
    ScalarOp op;
    std::array<std::int16_t, 3> operand{};
    double constant = 0;
    DType cast_to = DType::f32;
  };
  std::int16_t intern(Symbol s);

  int inputs_;
  std::vector<Entry> code_;
  std::vector<std::int16_t> results_;
};

// ---- The functions a lambda may call, on `double` and on `Symbol` alike.

inline Symbol record2(ScalarOp op, Symbol a, Symbol b) {
  Recorder* r = a.recorder() ? a.recorder() : b.recorder();
  return r->record(op, {a, b});
}
inline Symbol record1(ScalarOp op, Symbol a) { return a.recorder()->record(op, {a}); }

namespace reference_scalar {
/// With the sign of y.
inline double floor_remainder(double x, double y) {
  const double r = std::fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
/// The floor of the quotient itself: x / y may have been rounded up to an integer. The remainder
/// shows that by its sign, which is exact.
inline double floor_quotient(double x, double y) {
  const double q = std::floor(x / y), left = std::isinf(y) ? x : std::fma(-q, y, x);
  return std::fabs(q) < 0x1p53 && left != 0 && (left < 0) != (y < 0) ? q - 1 : q;
}
/// x or the nearest number in [-60, 60], beyond which the normal distribution is 0 or 1.
inline long double within_tails(double x) { return x < -60 ? -60 : x > 60 ? 60 : x; }
/// The normal distribution below x, with digits to spare for the root of 1/2.
inline long double normal_below(long double x) {
  return std::erfc(x * -0.707106781186547524400844362104849L) / 2;
}
inline double gelu_of(double x) {
  const long double tail = within_tails(x);
  return x > 60 ? x : static_cast<double>(tail * normal_below(tail));
}
inline double gelu_slope_of(double x) {
  const long double tail = within_tails(x),
                    density = std::exp(tail * tail / -2) * 0.398942280401432677939946059934382L;
  return static_cast<double>(normal_below(tail) + tail * density);
}
}  // namespace reference_scalar

#define TROUPE_SCALAR_UNARY(name, reference)                          \
  inline Symbol name(Symbol x) { return record1(ScalarOp::name, x); } \
  namespace reference_scalar {                                        \
  inline double name(double x) { return reference; }                  \
  }
#define TROUPE_SCALAR_BINARY(name, reference)                                      \
  inline Symbol name(Symbol x, Symbol y) { return record2(ScalarOp::name, x, y); } \
  namespace reference_scalar {                                                     \
  inline double name(double x, double y) { return reference; }                     \
  }
TROUPE_SCALAR_UNARY(abs, std::fabs(x))
TROUPE_SCALAR_UNARY(sign, std::isnan(x) ? x : double((x > 0) - (x < 0)))
TROUPE_SCALAR_UNARY(sqrt, std::sqrt(x))
TROUPE_SCALAR_UNARY(rsqrt, 1 / std::sqrt(x))
TROUPE_SCALAR_UNARY(reciprocal, 1 / x)
TROUPE_SCALAR_UNARY(square, x* x)
TROUPE_SCALAR_UNARY(exp, std::exp(x))
TROUPE_SCALAR_UNARY(expm1, std::expm1(x))
TROUPE_SCALAR_UNARY(log, std::log(x))
TROUPE_SCALAR_UNARY(log1p, std::log1p(x))
TROUPE_SCALAR_UNARY(sin, std::sin(x))
TROUPE_SCALAR_UNARY(cos, std::cos(x))
TROUPE_SCALAR_UNARY(tan, std::tan(x))
TROUPE_SCALAR_UNARY(asin, std::asin(x))
TROUPE_SCALAR_UNARY(acos, std::acos(x))
TROUPE_SCALAR_UNARY(atan, std::atan(x))
TROUPE_SCALAR_UNARY(sinh, std::sinh(x))
TROUPE_SCALAR_UNARY(cosh, std::cosh(x))
TROUPE_SCALAR_UNARY(tanh, std::tanh(x))
TROUPE_SCALAR_UNARY(asinh, std::asinh(x))
TROUPE_SCALAR_UNARY(acosh, std::acosh(x))
TROUPE_SCALAR_UNARY(atanh, std::atanh(x))
TROUPE_SCALAR_UNARY(erf, std::erf(x))
TROUPE_SCALAR_UNARY(erfc, std::erfc(x))
TROUPE_SCALAR_UNARY(gelu, gelu_of(x))
TROUPE_SCALAR_UNARY(gelu_slope, gelu_slope_of(x))
TROUPE_SCALAR_UNARY(sigmoid, 1 / (1 + std::exp(-x)))
TROUPE_SCALAR_UNARY(floor, std::floor(x))
TROUPE_SCALAR_UNARY(ceil, std::ceil(x))
TROUPE_SCALAR_UNARY(round, std::nearbyint(x))
TROUPE_SCALAR_UNARY(trunc, std::trunc(x))
TROUPE_SCALAR_UNARY(is_nan, std::isnan(x))
TROUPE_SCALAR_UNARY(is_inf, std::isinf(x))
TROUPE_SCALAR_UNARY(is_finite, std::isfinite(x))
TROUPE_SCALAR_UNARY(bit_not, double(~std::int64_t(x)))
TROUPE_SCALAR_BINARY(floor_div, floor_quotient(x, y))
TROUPE_SCALAR_BINARY(mod, floor_remainder(x, y))
TROUPE_SCALAR_BINARY(pow, std::pow(x, y))
TROUPE_SCALAR_BINARY(atan2, std::atan2(x, y))
TROUPE_SCALAR_BINARY(min, std::isnan(x) || std::isnan(y) ? std::nan("") : std::fmin(x, y))
TROUPE_SCALAR_BINARY(max, std::isnan(x) || std::isnan(y) ? std::nan("") : std::fmax(x, y))
TROUPE_SCALAR_BINARY(bit_and, double(std::int64_t(x) & std::int64_t(y)))
TROUPE_SCALAR_BINARY(bit_or, double(std::int64_t(x) | std::int64_t(y)))
TROUPE_SCALAR_BINARY(bit_xor, double(std::int64_t(x) ^ std::int64_t(y)))
TROUPE_SCALAR_BINARY(shift_left, std::ldexp(x, int(y)))
TROUPE_SCALAR_BINARY(shift_right, std::floor(std::ldexp(x, -int(y))))
TROUPE_SCALAR_BINARY(logical_xor, double((x != 0) != (y != 0)))
#undef TROUPE_SCALAR_UNARY
#undef TROUPE_SCALAR_BINARY
namespace reference_scalar {
inline double select(bool condition, double yes, double no) { return condition ? yes : no; }
inline double logical_and(double x, double y) { return x != 0 && y != 0; }
inline double logical_or(double x, double y) { return x != 0 || y != 0; }
inline double logical_not(double x) { return x == 0; }
}  // namespace reference_scalar

inline Symbol operator+(Symbol x, Symbol y) { return record2(ScalarOp::add, x, y); }
inline Symbol operator-(Symbol x, Symbol y) { return record2(ScalarOp::sub, x, y); }
inline Symbol operator*(Symbol x, Symbol y) { return record2(ScalarOp::mul, x, y); }
inline Symbol operator/(Symbol x, Symbol y) { return record2(ScalarOp::div, x, y); }
inline Symbol operator-(Symbol x) { return record1(ScalarOp::neg, x); }
inline Symbol operator==(Symbol x, Symbol y) { return record2(ScalarOp::eq, x, y); }
inline Symbol operator!=(Symbol x, Symbol y) { return record2(ScalarOp::ne, x, y); }
inline Symbol operator<(Symbol x, Symbol y) { return record2(ScalarOp::lt, x, y); }
inline Symbol operator<=(Symbol x, Symbol y) { return record2(ScalarOp::le, x, y); }
inline Symbol operator>(Symbol x, Symbol y) { return record2(ScalarOp::gt, x, y); }
inline Symbol operator>=(Symbol x, Symbol y) { return record2(ScalarOp::ge, x, y); }
inline Symbol logical_and(Symbol x, Symbol y) { return record2(ScalarOp::logical_and, x, y); }
inline Symbol logical_or(Symbol x, Symbol y) { return record2(ScalarOp::logical_or, x, y); }
inline Symbol logical_not(Symbol x) { return record1(ScalarOp::logical_not, x); }
inline Symbol select(Symbol condition, Symbol yes, Symbol no) {
  Recorder* r = condition.recorder() ? condition.recorder()
                : yes.recorder()     ? yes.recorder()
                                     : no.recorder();
  return r->record(ScalarOp::select, {condition, yes, no});
}

}  // namespace troupe::detail
