// Scalar code: steps on registers of one element each, with jumps. The interpreter runs the
// counters, predicates and scalar arithmetic of a loop that stays whole, and calls out for
// everything else.
//
//   ScalarCode code;
//   int x = code.add_register(), one = code.add_constant(Tensor::scalar(1.f));
//   code.add(ScalarOp::add, DType::f32, DType::f32, x, x, one);
//   code.halt();
//   ScalarFrame frame(code);
//   code.run(frame, 1'000, calls);          // kHalted
//
// Threads: code that is complete may run on any number of threads, a `ScalarFrame` on one at a
// time. Invariants: 1. the bits are those of the CPU device's pointwise; 2. a run stops after
// `budget` jumps back at most, between two iterations, and goes on from there; 3. a run allocates
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <troupe/devices/scalar/scalar_op.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe::detail {

/// A function of single elements: to = f(a, b, c), n = 1. It may write 64 bytes.
using ScalarFunction = void (*)(void* to, const void* a, const void* b, const void* c,
                                std::int64_t n);
/// The CPU's function of an instruction with this result and these operands; null: there is none.
ScalarFunction scalar_function(ScalarOp op, DType result, DType operand);

/// A register: one element, and room for a function that writes more.
struct alignas(64) ScalarRegister {
  std::byte bytes[64];
};

class ScalarFrame;

/// The target of steps that are no scalar operations.
class ScalarCalls {
 public:
  /// Returns 0 if the code goes on, else the result of `ScalarCode::run`. Then it touches neither
  /// the code nor the `ScalarFrame` any more.
  virtual int call(std::int32_t number) = 0;

 protected:
  ~ScalarCalls() = default;
};

class ScalarCode {
 public:
  using Register = std::int32_t;
  using Label = std::int32_t;

  Register add_register();
  /// A register that holds a scalar from the start; code must not write to it.
  Register add_constant(const Tensor& scalar);

  /// Appends an instruction. Throws unimplemented if the CPU has none for these dtypes.
  void add(ScalarOp op, DType result, DType operand, Register to, Register a, Register b = 0,
           Register c = 0);
  /// Appends to = a b + c, rounded once, of f32 or f64.
  void multiply_add(DType type, Register to, Register a, Register b, Register c);
  void copy(Register to, Register from);
  void set_zero(Register to);
  void call(std::int32_t number);
  /// True if values of so many bytes can be pushed and popped.
  static bool has_cursors_of(std::size_t bytes) { return bytes == 1 || bytes == 4 || bytes == 8; }
  enum class Move : std::uint8_t { push, pop };
  /// Has the last call of `number` from the step `from` on push an element, which is `values`, or
  /// pop one into these, at a cursor: a register with an `ElementCursor`. `bytes`: each value's.
  /// The call is made where the cursor has no room, or no element.
  void move_by(Move move, Label from, std::int32_t number, Register cursor,
               std::span<const Register> values, std::size_t bytes);
  void halt();
  /// Appends a jump; `bind` sets its target.
  Label jump();
  Label jump_unless(Register condition);
  /// Jumps to branch `index` of as many as `bind_branch` names, to the last where it names none.
  Label choose(Register index, DType type, std::int32_t branches);
  void bind(Label jump);
  void bind_branch(Label choose, std::int32_t branch);
  /// The index of the next step.
  Label here() const { return static_cast<Label>(steps_.size()); }
  /// Adds 1 to an iteration counter, which is i64.
  void count(Register counter);
  /// Jumps back to `to` if the condition holds. The counter, if there is one, then counts.
  void again_if(Register condition, Label to, Register counter = -1);
  /// Has the value of `result`, which only a copy into `to` reads from the step `from` on, written
  /// to `to` at once if no later step reads `to`. True: the copy is not needed.
  bool redirect(Label from, Register result, Register to);

  static constexpr int kHalted = -1, kPaused = -2;
  /// Runs from where the `ScalarFrame` stands. Returns kHalted after `halt`, kPaused after `budget`
  /// jumps back, else the result of a call. An exception of a call passes through; the frame then
  /// stands behind that call.
  int run(ScalarFrame& frame, std::int64_t budget, ScalarCalls& calls) const;

  std::size_t registers() const { return registers_.size(); }

 private:
  friend class ScalarFrame;
  friend class ScalarAnalysis;
  enum class Kind : std::uint16_t;
  struct Step {
    Kind kind;
    std::int32_t to, a, b, c;  // registers, as bytes from the first one
    std::int32_t target = 0;   // a jump's step, a choice's first branch, a call's number
    ScalarFunction f = nullptr;
  };
  static constexpr std::int32_t kRegister = sizeof(ScalarRegister);
  // An element of several values, one behind the other, for a step `push_wide` or `pop_wide`.
  struct Wide {
    std::size_t bytes;             // each value's
    std::vector<std::int32_t> at;  // registers, as bytes from the first one
  };
  // In place of a register, which is no number below 0; again_if has -1 for no counter.
  static std::int32_t wide_number(std::size_t index) {
    return -2 - static_cast<std::int32_t>(index);
  }
  const Wide& wide_of(const Step& step) const {
    return wide_[static_cast<std::size_t>(-2 - step.c)];
  }

  static bool is_compare(Kind kind);
  static bool is_computation(Kind kind);
  static bool uses_cursor(Kind kind);
  static bool is_wide(Kind kind);
  bool has_wide(const Step& step, std::int32_t at) const;
  Step& last_call(Label from, std::int32_t number);
  Step& append(Kind kind, Register to = 0, Register a = 0, Register b = 0, Register c = 0);

  std::vector<Step> steps_;
  std::vector<ScalarRegister> registers_;  // as they are at first
  std::vector<std::int32_t> branches_;     // steps, by choice
  std::vector<Wide> wide_;
};

/// Registers of one run of some code, and where it stands.
class ScalarFrame {
 public:
  explicit ScalarFrame(const ScalarCode& code) { start(code); }
  ScalarFrame() = default;
  /// Back to the first step; all registers as they are at first.
  void start(const ScalarCode& code);
  std::byte* at(ScalarCode::Register r) { return registers_[static_cast<std::size_t>(r)].bytes; }
  const std::byte* at(ScalarCode::Register r) const {
    return registers_[static_cast<std::size_t>(r)].bytes;
  }
  /// The step that it stands at.
  ScalarCode::Label place() const { return place_; }

 private:
  friend class ScalarCode;
  friend class MachineCode;
  std::vector<ScalarRegister> registers_;
  ScalarCode::Label place_ = 0;
};

}  // namespace troupe::detail
