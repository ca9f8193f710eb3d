#include <troupe/devices/scalar/scalar_code.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/devices/scalar/element_cursor.hpp>
#include <troupe/devices/scalar/scalar_step.hpp>

namespace troupe::detail {

namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

static_assert(sizeof(ElementCursor) <= sizeof(ScalarRegister));

// The two return false, with nothing done, if the cursor has no room or no element.
template <class T>
bool push_at(std::byte* cursor, const std::byte* value) {
  auto* const next = load<std::byte*>(cursor + offsetof(ElementCursor, next));
  if (next == load<std::byte*>(cursor + offsetof(ElementCursor, end))) return false;
  store(next, load<T>(value));
  store(cursor + offsetof(ElementCursor, next), next + sizeof(T));
  return true;
}
template <class T>
bool pop_at(std::byte* cursor, std::byte* to) {
  auto* const next = load<std::byte*>(cursor + offsetof(ElementCursor, next));
  if (next == load<std::byte*>(cursor + offsetof(ElementCursor, begin))) return false;
  store(to, load<T>(next - sizeof(T)));
  store(cursor + offsetof(ElementCursor, next), next - sizeof(T));
  return true;
}
// An element of `count` values: where its first one is, or goes; null: as above. The cursor is
// behind the element afterwards, or before it.
std::byte* pass_wide(std::byte* cursor, std::size_t bytes, bool pushes) {
  auto* const next = load<std::byte*>(cursor + offsetof(ElementCursor, next));
  const std::size_t bound = pushes ? offsetof(ElementCursor, end) : offsetof(ElementCursor, begin);
  if (next == load<std::byte*>(cursor + bound)) return nullptr;
  std::byte* const after = pushes ? next + bytes : next - bytes;
  store(cursor + offsetof(ElementCursor, next), after);
  return pushes ? next : after;
}

// Integers wrap, as the tile evaluator's do.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}
template <class T>
T negated(T x) {
  if constexpr (std::is_integral_v<T>)
    return wrapping(T{0}, x, [](auto a, auto b) { return a - b; });
  else return -x;
}

}  // namespace

bool ScalarCode::is_compare(Kind kind) {
  switch (kind) {
#define X(name, T)      \
  case Kind::lt_##name: \
  case Kind::le_##name: \
  case Kind::gt_##name: \
  case Kind::ge_##name:
    TROUPE_CODE_TYPES(X)
#undef X
    return true;
    default: return false;
  }
}

bool ScalarCode::uses_cursor(Kind kind) { return kind >= Kind::push_1 && kind <= Kind::pop_wide; }
bool ScalarCode::is_wide(Kind kind) { return kind == Kind::push_wide || kind == Kind::pop_wide; }

// Reads its operands before it writes its one result, and does nothing else.
bool ScalarCode::is_computation(Kind kind) {
  switch (kind) {
#define X(name, T)            \
  case Kind::again_lt_##name: \
  case Kind::again_le_##name: \
  case Kind::again_gt_##name: \
  case Kind::again_ge_##name:
    TROUPE_CODE_TYPES(X)
#undef X
    return false;
    default: return kind >= Kind::function || kind == Kind::copy;
  }
}

ScalarCode::Step& ScalarCode::append(Kind kind, Register to, Register a, Register b, Register c) {
  steps_.push_back({kind, to * kRegister, a * kRegister, b * kRegister, c * kRegister});
  return steps_.back();
}

ScalarCode::Register ScalarCode::add_register() {
  registers_.push_back({});
  return static_cast<Register>(registers_.size() - 1);
}

ScalarCode::Register ScalarCode::add_constant(const Tensor& scalar) {
  const Register made = add_register();
  std::memcpy(registers_.back().bytes, scalar.raw(), size_of(scalar.dtype()));
  return made;
}

void ScalarCode::add(ScalarOp op, DType result, DType operand, Register to, Register a, Register b,
                     Register c) {
  Kind kind = Kind::function;
  const auto of_type = [&](Kind i32, Kind i64, Kind f32, Kind f64) {
    switch (operand) {
      case DType::i32: kind = i32; break;
      case DType::i64: kind = i64; break;
      case DType::f32: kind = f32; break;
      case DType::f64: kind = f64; break;
      default: break;
    }
  };
  switch (op) {
#define OF(name)                                                                     \
  case ScalarOp::name:                                                               \
    of_type(Kind::name##_i32, Kind::name##_i64, Kind::name##_f32, Kind::name##_f64); \
    break;
    OF(add)
    OF(sub)
    OF(mul)
    OF(lt)
    OF(le)
    OF(gt)
    OF(ge)
    OF(eq)
    OF(ne)
    OF(neg)
#undef OF
    case ScalarOp::square:  // a product has kinds of its own
      of_type(Kind::mul_i32, Kind::mul_i64, Kind::mul_f32, Kind::mul_f64);
      b = a;
      break;
    case ScalarOp::abs:
      of_type(Kind::function, Kind::function, Kind::abs_f32, Kind::abs_f64);
      break;
    case ScalarOp::sqrt:
      of_type(Kind::function, Kind::function, Kind::sqrt_f32, Kind::sqrt_f64);
      break;
    case ScalarOp::div:
      of_type(Kind::function, Kind::function, Kind::div_f32, Kind::div_f64);
      break;
    case ScalarOp::logical_not: kind = Kind::logical_not; break;
    case ScalarOp::logical_and: kind = Kind::logical_and; break;
    case ScalarOp::logical_or: kind = Kind::logical_or; break;
    case ScalarOp::select:
      if (size_of(result) == 1) kind = Kind::select_1;
      if (size_of(result) == 4) kind = Kind::select_4;
      if (size_of(result) == 8) kind = Kind::select_8;
      break;
    case ScalarOp::cast:
      if (operand == DType::i32 && result == DType::i64) kind = Kind::i32_to_i64;
      if (operand == DType::i32 && result == DType::f32) kind = Kind::i32_to_f32;
      if (operand == DType::i32 && result == DType::f64) kind = Kind::i32_to_f64;
      if (operand == DType::i64 && result == DType::f32) kind = Kind::i64_to_f32;
      if (operand == DType::i64 && result == DType::f64) kind = Kind::i64_to_f64;
      if (operand == DType::f32 && result == DType::f64) kind = Kind::f32_to_f64;
      if (operand == DType::f64 && result == DType::f32) kind = Kind::f64_to_f32;
      break;
    default: break;
  }
  const ScalarFunction f = kind == Kind::function ? scalar_function(op, result, operand) : nullptr;
  if (kind == Kind::function && !f)
    throw Error(Code::unimplemented, fmt::format("{} of {} is not implemented on the CPU",
                                                 name_of(op), troupe::name_of(operand)));
  append(kind, to, a, b, c).f = f;
}

void ScalarCode::multiply_add(DType type, Register to, Register a, Register b, Register c) {
  append(type == DType::f32 ? Kind::multiply_add_f32 : Kind::multiply_add_f64, to, a, b, c);
}

void ScalarCode::copy(Register to, Register from) { append(Kind::copy, to, from); }
void ScalarCode::set_zero(Register to) { append(Kind::set_zero, to); }
void ScalarCode::call(std::int32_t number) { append(Kind::call).target = number; }
ScalarCode::Step& ScalarCode::last_call(Label from, std::int32_t number) {
  for (std::size_t i = steps_.size(); i-- > static_cast<std::size_t>(from);)
    if (steps_[i].kind == Kind::call && steps_[i].target == number) return steps_[i];
  throw Error(Code::internal, fmt::format("scalar code has no call {}", number));
}
bool ScalarCode::has_wide(const Step& step, std::int32_t at) const {
  if (!is_wide(step.kind)) return false;
  const std::vector<std::int32_t>& all = wide_of(step).at;
  return std::find(all.begin(), all.end(), at) != all.end();
}
void ScalarCode::move_by(Move move, Label from, std::int32_t number, Register cursor,
                         std::span<const Register> values, std::size_t bytes) {
  const bool pushes = move == Move::push;
  Step& step = last_call(from, number);
  step.b = cursor * kRegister;
  if (values.size() == 1) {
    step.kind = bytes == 1   ? (pushes ? Kind::push_1 : Kind::pop_1)
                : bytes == 4 ? (pushes ? Kind::push_4 : Kind::pop_4)
                             : (pushes ? Kind::push_8 : Kind::pop_8);
    (pushes ? step.a : step.to) = values[0] * kRegister;
    return;
  }
  step.kind = pushes ? Kind::push_wide : Kind::pop_wide;
  step.c = wide_number(wide_.size());
  Wide& wide = wide_.emplace_back(Wide{bytes, {}});
  for (const Register r : values) wide.at.push_back(r * kRegister);
}
void ScalarCode::halt() { append(Kind::halt); }
void ScalarCode::count(Register counter) { append(Kind::count, counter); }

ScalarCode::Label ScalarCode::jump() {
  append(Kind::jump);
  return here() - 1;
}

ScalarCode::Label ScalarCode::jump_unless(Register condition) {
  append(Kind::jump_unless, 0, condition);
  return here() - 1;
}

ScalarCode::Label ScalarCode::choose(Register index, DType type, std::int32_t branches) {
  Step& step = append(type == DType::boolean ? Kind::choose_bool
                      : type == DType::i32   ? Kind::choose_i32
                                             : Kind::choose_i64,
                      0, index);
  step.target = static_cast<std::int32_t>(branches_.size());
  step.b = branches;
  branches_.resize(branches_.size() + static_cast<std::size_t>(branches));
  return here() - 1;
}

void ScalarCode::bind(Label jump) { steps_[static_cast<std::size_t>(jump)].target = here(); }

void ScalarCode::bind_branch(Label choose, std::int32_t branch) {
  const std::int32_t first = steps_[static_cast<std::size_t>(choose)].target;
  branches_[static_cast<std::size_t>(first + branch)] = here();
}

// A comparison that only the jump reads becomes part of it.
void ScalarCode::again_if(Register condition, Label to, Register counter) {
  const std::int32_t c = counter < 0 ? -1 : counter * kRegister;
  if (!steps_.empty() && steps_.back().to == condition * kRegister && counter >= 0 &&
      is_compare(steps_.back().kind) && here() > to) {
    Step& step = steps_.back();
    switch (step.kind) {
#define X(name, T)                                                \
  case Kind::lt_##name: step.kind = Kind::again_lt_##name; break; \
  case Kind::le_##name: step.kind = Kind::again_le_##name; break; \
  case Kind::gt_##name: step.kind = Kind::again_gt_##name; break; \
  case Kind::ge_##name: step.kind = Kind::again_ge_##name; break;
      TROUPE_CODE_TYPES(X)
#undef X
      default: break;
    }
    step.c = c;
    step.target = to;
    return;
  }
  Step& step = append(Kind::again_if, 0, condition);
  step.c = c;
  step.target = to;
}

bool ScalarCode::redirect(Label from, Register result, Register to) {
  const std::int32_t was = result * kRegister, is = to * kRegister;
  std::size_t maker = steps_.size();
  for (std::size_t i = static_cast<std::size_t>(from); i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    if (uses_cursor(s.kind)) {  // a call may take its place, which reads or writes the register
      if (s.a == was || s.to == was || has_wide(s, was)) return false;
      continue;
    }
    if (!is_computation(s.kind)) return false;
    if (s.to == was) {
      if (maker != steps_.size()) return false;
      maker = i;
    }
  }
  if (maker == steps_.size()) return false;
  for (std::size_t i = maker + 1; i < steps_.size(); ++i)
    if (steps_[i].a == is || steps_[i].b == is || steps_[i].c == is || steps_[i].to == is ||
        has_wide(steps_[i], is))
      return false;
  steps_[maker].to = is;
  for (std::size_t i = maker + 1; i < steps_.size(); ++i)
    for (std::int32_t* operand : {&steps_[i].a, &steps_[i].b, &steps_[i].c})
      if (*operand == was) *operand = is;
  return true;
}

void ScalarFrame::start(const ScalarCode& code) {
  registers_.assign(code.registers_.begin(), code.registers_.end());
  place_ = 0;
}

int ScalarCode::run(ScalarFrame& frame, std::int64_t budget, ScalarCalls& calls) const {
  std::byte* const r = frame.registers_.data()->bytes;
  const Step* const first = steps_.data();
  const Step* s = first + frame.place_;
  const auto again = [&](const Step& from) {
    if (from.c >= 0) store(r + from.c, load<std::int64_t>(r + from.c) + 1);
    s = first + from.target;
    return --budget > 0;
  };
  const auto choose = [&](const Step& from, std::int64_t index) {
    if (index < 0 || index >= from.b) index = from.b - 1;
    s = first + branches_[static_cast<std::size_t>(from.target + index)];
  };
  for (;;) {
    switch (s->kind) {
      case Kind::halt: frame.place_ = static_cast<Label>(s - first); return kHalted;
      case Kind::call: {
        const std::int32_t number = s->target;
        frame.place_ = static_cast<Label>(++s - first);
        if (const int stopped = calls.call(number)) return stopped;
        break;
      }
#define BY_CURSOR(kind, advances)                               \
  case Kind::kind: {                                            \
    if (advances) {                                             \
      ++s;                                                      \
      break;                                                    \
    }                                                           \
    const std::int32_t number = s->target;                      \
    frame.place_ = static_cast<Label>(++s - first);             \
    if (const int stopped = calls.call(number)) return stopped; \
    break;                                                      \
  }
        BY_CURSOR(push_1, push_at<std::uint8_t>(r + s->b, r + s->a))
        BY_CURSOR(push_4, push_at<std::uint32_t>(r + s->b, r + s->a))
        BY_CURSOR(push_8, push_at<std::uint64_t>(r + s->b, r + s->a))
        BY_CURSOR(pop_1, pop_at<std::uint8_t>(r + s->b, r + s->to))
        BY_CURSOR(pop_4, pop_at<std::uint32_t>(r + s->b, r + s->to))
        BY_CURSOR(pop_8, pop_at<std::uint64_t>(r + s->b, r + s->to))
#undef BY_CURSOR
      case Kind::push_wide:
      case Kind::pop_wide: {
        const Wide& wide = wide_of(*s);
        const bool pushes = s->kind == Kind::push_wide;
        if (std::byte* at = pass_wide(r + s->b, wide.bytes * wide.at.size(), pushes)) {
          for (const std::int32_t value : wide.at) {
            if (pushes) std::memcpy(at, r + value, wide.bytes);
            else std::memcpy(r + value, at, wide.bytes);
            at += wide.bytes;
          }
          ++s;
          break;
        }
        const std::int32_t number = s->target;
        frame.place_ = static_cast<Label>(++s - first);
        if (const int stopped = calls.call(number)) return stopped;
        break;
      }
      case Kind::copy:
        std::memcpy(r + s->to, r + s->a, 16);
        ++s;
        break;
      case Kind::set_zero:
        std::memset(r + s->to, 0, 16);
        ++s;
        break;
      case Kind::jump: s = first + s->target; break;
      case Kind::jump_unless:
        s = load<std::uint8_t>(r + s->a) != 0 ? s + 1 : first + s->target;
        break;
      case Kind::choose_bool: choose(*s, load<std::uint8_t>(r + s->a)); break;
      case Kind::choose_i32: choose(*s, load<std::int32_t>(r + s->a)); break;
      case Kind::choose_i64: choose(*s, load<std::int64_t>(r + s->a)); break;
      case Kind::count:
        store(r + s->to, load<std::int64_t>(r + s->to) + 1);
        ++s;
        break;
      case Kind::again_if:
        if (load<std::uint8_t>(r + s->a) == 0) {
          ++s;
        } else if (!again(*s)) {
          frame.place_ = static_cast<Label>(s - first);
          return kPaused;
        }
        break;
      case Kind::function:
        s->f(r + s->to, r + s->a, r + s->b, r + s->c, 1);
        ++s;
        break;
      case Kind::logical_not:
        store(r + s->to, static_cast<std::uint8_t>(load<std::uint8_t>(r + s->a) == 0));
        ++s;
        break;
      case Kind::logical_and:
        store(r + s->to, static_cast<std::uint8_t>((load<std::uint8_t>(r + s->a) != 0) &
                                                   (load<std::uint8_t>(r + s->b) != 0)));
        ++s;
        break;
      case Kind::logical_or:
        store(r + s->to, static_cast<std::uint8_t>((load<std::uint8_t>(r + s->a) != 0) |
                                                   (load<std::uint8_t>(r + s->b) != 0)));
        ++s;
        break;
#define SELECT(kind, T)                                                               \
  case Kind::kind:                                                                    \
    store(r + s->to, load<T>(r + (load<std::uint8_t>(r + s->a) != 0 ? s->b : s->c))); \
    ++s;                                                                              \
    break;
        SELECT(select_1, std::uint8_t)
        SELECT(select_4, std::uint32_t)
        SELECT(select_8, std::uint64_t)
#undef SELECT
#define CAST(kind, From, To)                                 \
  case Kind::kind:                                           \
    store(r + s->to, static_cast<To>(load<From>(r + s->a))); \
    ++s;                                                     \
    break;
        CAST(i32_to_i64, std::int32_t, std::int64_t)
        CAST(i32_to_f32, std::int32_t, float)
        CAST(i32_to_f64, std::int32_t, double)
        CAST(i64_to_f32, std::int64_t, float)
        CAST(i64_to_f64, std::int64_t, double)
        CAST(f32_to_f64, float, double)
        CAST(f64_to_f32, double, float)
#undef CAST
#define ARITHMETIC(kind, T, symbol)                                        \
  case Kind::kind:                                                         \
    store(r + s->to, wrapping(load<T>(r + s->a), load<T>(r + s->b),        \
                              [](auto x, auto y) { return x symbol y; })); \
    ++s;                                                                   \
    break;
#define COMPARE(kind, T, symbol)                                                             \
  case Kind::kind:                                                                           \
    store(r + s->to, static_cast<std::uint8_t>(load<T>(r + s->a) symbol load<T>(r + s->b))); \
    ++s;                                                                                     \
    break;
#define AGAIN(kind, T, symbol)                           \
  case Kind::kind:                                       \
    if (!(load<T>(r + s->a) symbol load<T>(r + s->b))) { \
      ++s;                                               \
    } else if (!again(*s)) {                             \
      frame.place_ = static_cast<Label>(s - first);      \
      return kPaused;                                    \
    }                                                    \
    break;
#define X(name, T)              \
  ARITHMETIC(add_##name, T, +)  \
  ARITHMETIC(sub_##name, T, -)  \
  ARITHMETIC(mul_##name, T, *)  \
  COMPARE(lt_##name, T, <)      \
  COMPARE(le_##name, T, <=)     \
  COMPARE(gt_##name, T, >)      \
  COMPARE(ge_##name, T, >=)     \
  COMPARE(eq_##name, T, ==)     \
  COMPARE(ne_##name, T, !=)     \
  AGAIN(again_lt_##name, T, <)  \
  AGAIN(again_le_##name, T, <=) \
  AGAIN(again_gt_##name, T, >)  \
  AGAIN(again_ge_##name, T, >=)
        TROUPE_CODE_TYPES(X)
#undef X
      case Kind::div_f32:
        store(r + s->to, load<float>(r + s->a) / load<float>(r + s->b));
        ++s;
        break;
      case Kind::div_f64:
        store(r + s->to, load<double>(r + s->a) / load<double>(r + s->b));
        ++s;
        break;
#define UNARY(kind, T, f)                   \
  case Kind::kind:                          \
    store(r + s->to, f(load<T>(r + s->a))); \
    ++s;                                    \
    break;
        // std::fma rounds once, with or without the processor's instruction
      case Kind::multiply_add_f32:
        store(r + s->to,
              std::fma(load<float>(r + s->a), load<float>(r + s->b), load<float>(r + s->c)));
        ++s;
        break;
      case Kind::multiply_add_f64:
        store(r + s->to,
              std::fma(load<double>(r + s->a), load<double>(r + s->b), load<double>(r + s->c)));
        ++s;
        break;
        UNARY(neg_i32, std::int32_t, negated)
        UNARY(neg_i64, std::int64_t, negated)
        UNARY(neg_f32, float, negated)
        UNARY(neg_f64, double, negated)
        UNARY(abs_f32, float, std::fabs)
        UNARY(abs_f64, double, std::fabs)
        UNARY(sqrt_f32, float, std::sqrt)
        UNARY(sqrt_f64, double, std::sqrt)
#undef UNARY
#undef ARITHMETIC
#undef COMPARE
#undef AGAIN
    }
  }
}

}  // namespace troupe::detail
