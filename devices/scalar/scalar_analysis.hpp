// The facts that a translator needs before it emits instructions: meanings of steps, types of
// registers, targets of jumps, and innermost loops with the registers that they use most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <troupe/devices/scalar/scalar_step.hpp>

namespace troupe::detail {

class ScalarAnalysis {
 public:
  using Kind = ScalarCode::Kind;
  using Step = ScalarCode::Step;
  enum class Type : std::uint8_t { unknown, u8, i32, i64, f32, f64, mixed };
  enum class Op : std::uint8_t {
    halt,
    call,
    copy,
    set_zero,
    jump,
    jump_unless,
    choose,
    count,
    again_if,
    push,
    push_wide,
    pop,
    pop_wide,
    function,
    logical_not,
    logical_and,
    logical_or,
    select,
    cast,
    add,
    sub,
    mul,
    div,
    neg,
    abs,
    sqrt,
    multiply_add,
    lt,
    le,
    gt,
    ge,
    eq,
    ne,
    again_lt,
    again_le,
    again_gt,
    again_ge,
  };
  struct Meaning {
    Op op;
    Type operand = Type::unknown, result = Type::unknown;
  };
  /// A selection, a push and a pop have operands of the right size, not the right type.
  static Meaning meaning(Kind kind);

  static bool is_binary(Op op) {
    return (op >= Op::add && op <= Op::div) || (op >= Op::lt && op <= Op::again_ge) ||
           op == Op::logical_and || op == Op::logical_or;
  }
  static bool is_again(Op op) { return op == Op::again_if || op >= Op::again_lt; }
  static bool is_floating(Type t) { return t == Type::f32 || t == Type::f64; }
  static bool is_known(Type t) { return t != Type::unknown && t != Type::mixed; }
  /// Bytes of a known type.
  static int width(Type t) { return t == Type::u8 ? 1 : t == Type::i32 || t == Type::f32 ? 4 : 8; }
  /// The register at so many bytes from the first one.
  static std::size_t number(std::int32_t at) {
    return static_cast<std::size_t>(at / ScalarCode::kRegister);
  }

  /// A loop without a loop in it; `first` and `last` are steps. `floating` and `general` are the
  /// registers that it uses, as bytes from the first one, the most used first.
  struct Loop {
    std::int32_t first = 0, last = 0;
    std::vector<std::int32_t> floating = {}, general = {};
  };
  /// `bare`: a call comes before the step.
  enum Mark : std::uint8_t { kTarget = 1, kEntry = 2, kBare = 4 };

  explicit ScalarAnalysis(const ScalarCode& code);

  const std::vector<Step>& steps() const { return steps_; }
  std::size_t registers() const { return types_.size(); }
  Type type(std::int32_t at) const { return types_[number(at)]; }
  const std::vector<Type>& types() const { return types_; }
  std::uint8_t marks(std::size_t step) const { return marks_[step]; }
  /// -1: the step is in no innermost loop.
  std::int32_t loop_of(std::size_t step) const { return loop_of_[step]; }
  const std::vector<Loop>& loops() const { return loops_; }
  /// The values of a step that has several.
  const ScalarCode::Wide& wide_of(const Step& step) const { return code_.wide_of(step); }
  std::int32_t branch(const Step& choose, std::int32_t index) const {
    return branches_[static_cast<std::size_t>(choose.target + index)];
  }

 private:
  template <class F>
  void each_operand(const Step& step, F f) const;
  void infer_types();
  void mark_steps();
  void mark(std::int32_t step, int marks) {
    marks_[static_cast<std::size_t>(step)] |= static_cast<std::uint8_t>(marks);
  }
  void find_loops();
  void rank_registers(Loop& loop) const;

  const ScalarCode& code_;
  const std::vector<Step>& steps_;
  const std::vector<std::int32_t>& branches_;
  std::vector<Type> types_;          // by register
  std::vector<std::uint8_t> marks_;  // by step
  std::vector<std::int32_t> loop_of_;
  std::vector<Loop> loops_;
};

}  // namespace troupe::detail
