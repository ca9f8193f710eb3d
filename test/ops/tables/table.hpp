// One table of operations: what each is tried with and what it must give. Every registered op has a
// row here (in one of the ..._rows.hpp) or an entry in `elsewhere()` (elsewhere.hpp);
// op_table_test.cpp holds each row to values, gradients, refusals and non-finite inputs, on every
// place it knows.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/attr.hpp>
#include <troupe/test/ops/tables/array.hpp>
#include <troupe/test/support/callable.hpp>

namespace troupe::test {

/// The kind of an input: a value takes the dtype under test, the others have their own.
enum class Role { value, index, truth };

struct Sample {
  Array array;
  Role role = Role::value;
};

struct Case {
  std::vector<Sample> inputs;
  Attrs attrs;
  int order = 2;  // at most the row's
};

/// All outputs, from the inputs as doubles.
using Reference = Callable<std::vector<Array>(const std::vector<Array>&, const Attrs&)>;

using Arrays = std::vector<Array>;

struct Row {
  std::string op;
  std::vector<DType> dtypes;  // others must be refused, naming op and line
  std::vector<Case> cases;
  Reference reference;  // none: OpDef::reference, broadcast
  int order = 2;        // up to which derivatives are checked; 0: it has none
  double slack = 1;     // times the tolerance of the dtype
  /// Values from another library, against mistakes that kernel and reference share.
  std::vector<std::pair<std::vector<double>, double>> known = {};
  bool refuses_others = true;  // false: what it makes of other dtypes is not said here
};

// first in a row: the last of a row is one that its reference knows
inline const std::vector<DType> kComplex{DType::c64, DType::c128};
inline const std::vector<DType> kFloats{DType::f16, DType::bf16, DType::f32, DType::f64};
inline const std::vector<DType> kInts{DType::i8, DType::i16, DType::i32, DType::i64,
                                      DType::u8, DType::u16, DType::u32, DType::u64};
inline const std::vector<DType> kSignedInts{DType::i8, DType::i16, DType::i32, DType::i64};
inline const std::vector<DType> kBool{DType::boolean};

inline std::vector<DType> operator+(std::vector<DType> a, const std::vector<DType>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline const std::vector<DType> kReals = kFloats + kInts;
inline const std::vector<DType> kReals_and_bool = kReals + kBool;

/// Reproducible numbers in [low, high].
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  double between(double low, double high) {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return low + (high - low) * static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  Sample values(const Shape& shape, double low = -2, double high = 2) {
    return {tabulate(shape, [&](const Index&) { return between(low, high); }), Role::value};
  }
  Sample indices(const Shape& shape, std::int64_t extent) {
    return {
        tabulate(shape,
                 [&](const Index&) { return std::floor(between(0, static_cast<double>(extent))); }),
        Role::index};
  }
  Sample truths(const Shape& shape) {
    return {tabulate(shape, [&](const Index&) { return between(0, 1) < 0.5 ? 0.0 : 1.0; }),
            Role::truth};
  }

 private:
  std::uint64_t state_;
};

}  // namespace troupe::test
