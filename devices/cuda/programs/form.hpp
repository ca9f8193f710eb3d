// How the operands of one launch of a scalar program lie, and how its arguments lie in memory: the
// agreement of the printed kernel and its launcher.
//
// A kernel takes one argument, a struct by value. Its text is printed for the program's numbers of
// inputs and results; ProgramArguments writes the same bytes.
//
//   flat:    n | Input[inputs]        | void*[results]
//   strided: n | extent[kMaxAxes] | StridedInput[inputs] | StridedResult[results]
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include <troupe/devices/scalar/scalar_program.hpp>

namespace troupe::cuda {

inline constexpr int kMaxAxes = 8;

/// The form of a launch: a program is compiled once for each that it meets.
struct ProgramForm {
  /// All operands have one element a result, one behind the other, or are passed by value. Else
  /// each has strides.
  bool is_flat = true;
  /// Flat, all pointers aligned to 16 bytes: four elements a thread at a time.
  bool is_vectorized = false;
  /// More than 2^31 elements, or bytes between two: 64-bit index arithmetic.
  bool is_wide = false;
  /// Strided: axes, 1 to kMaxAxes.
  int axes = 1;
  /// Input i is one element, passed by value.
  std::vector<bool> by_value;

  friend bool operator==(const ProgramForm&, const ProgramForm&) = default;
};

struct ProgramInput {
  const void* data = nullptr;    // by elements
  unsigned char value[16] = {};  // by value: an element of the input's dtype, its bytes first
};
struct StridedProgramInput {
  const void* data = nullptr;
  unsigned char value[16] = {};
  std::int64_t stride[kMaxAxes] = {};  // elements from one to the next along each axis
};
struct StridedProgramResult {
  void* data = nullptr;
  std::int64_t stride[kMaxAxes] = {};
};

/// The argument of a launch, as bytes.
class ProgramArguments {
 public:
  ProgramArguments() = default;
  /// Makes room for a program with so many inputs and results.
  ProgramArguments(const ProgramForm& form, std::size_t inputs, std::size_t results) {
    reset(form, inputs, results);
  }
  /// As a new one, in the memory of this one.
  void reset(const ProgramForm& form, std::size_t inputs, std::size_t results) {
    inputs_ = inputs;
    is_flat_ = form.is_flat;
    bytes_.resize(offset_of_results() + results * result_bytes());
  }
  /// As another one whose bytes these are.
  void reset(const unsigned char* bytes, std::size_t size, std::size_t inputs, bool is_flat) {
    inputs_ = inputs;
    is_flat_ = is_flat;
    bytes_.assign(bytes, bytes + size);
  }
  void set_elements(std::int64_t n) { put(0, n); }
  /// Strided: the extents of its axes, outermost first.
  void set_extent(int axis, std::int64_t extent) {
    put(8 + 8 * static_cast<std::size_t>(axis), extent);
  }
  void set_input(std::size_t i, const StridedProgramInput& input) {
    std::memcpy(bytes_.data() + offset_of_inputs() + i * input_bytes(), &input, input_bytes());
  }
  void set_result(std::size_t i, const StridedProgramResult& result) {
    std::memcpy(bytes_.data() + offset_of_results() + i * result_bytes(), &result, result_bytes());
  }
  /// As they were set, for a run of the program on the CPU.
  std::int64_t elements() const { return get<std::int64_t>(0); }
  std::int64_t extent(int axis) const {
    return get<std::int64_t>(8 + 8 * static_cast<std::size_t>(axis));
  }
  StridedProgramInput input(std::size_t i) const {
    StridedProgramInput input;
    std::memcpy(&input, bytes_.data() + offset_of_inputs() + i * input_bytes(), input_bytes());
    return input;
  }
  StridedProgramResult result(std::size_t i) const {
    StridedProgramResult result;
    std::memcpy(&result, bytes_.data() + offset_of_results() + i * result_bytes(), result_bytes());
    return result;
  }
  const void* data() const { return bytes_.data(); }
  void* data() { return bytes_.data(); }
  std::size_t bytes() const { return bytes_.size(); }

 private:
  std::size_t offset_of_inputs() const { return is_flat_ ? 8 : 8 + 8 * kMaxAxes; }
  std::size_t input_bytes() const {
    return is_flat_ ? sizeof(ProgramInput) : sizeof(StridedProgramInput);
  }
  std::size_t offset_of_results() const { return offset_of_inputs() + inputs_ * input_bytes(); }
  std::size_t result_bytes() const {
    return is_flat_ ? sizeof(void*) : sizeof(StridedProgramResult);
  }
  template <class T>
  void put(std::size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  template <class T>
  T get(std::size_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  std::size_t inputs_ = 0;
  bool is_flat_ = true;
  std::vector<unsigned char> bytes_;
};

static_assert(sizeof(ProgramInput) == 24 && sizeof(StridedProgramInput) == 88 &&
              sizeof(StridedProgramResult) == 72);

}  // namespace troupe::cuda
