#include <troupe/devices/scalar/scalar_analysis.hpp>

#include <algorithm>

namespace troupe::detail {

ScalarAnalysis::ScalarAnalysis(const ScalarCode& code)
    : code_(code), steps_(code.steps_), branches_(code.branches_),
      types_(code.registers_.size(), Type::unknown), marks_(code.steps_.size()),
      loop_of_(code.steps_.size(), -1) {
  infer_types();
  mark_steps();
  find_loops();
}

ScalarAnalysis::Meaning ScalarAnalysis::meaning(Kind kind) {
  switch (kind) {
    case Kind::halt: return {Op::halt};
    case Kind::call: return {Op::call};
    case Kind::copy: return {Op::copy};
    case Kind::set_zero: return {Op::set_zero};
    case Kind::jump: return {Op::jump};
    case Kind::jump_unless: return {Op::jump_unless};
    case Kind::choose_bool: return {Op::choose, Type::u8};
    case Kind::choose_i32: return {Op::choose, Type::i32};
    case Kind::choose_i64: return {Op::choose, Type::i64};
    case Kind::count: return {Op::count};
    case Kind::again_if: return {Op::again_if};
    case Kind::push_1: return {Op::push, Type::u8};
    case Kind::push_4: return {Op::push, Type::i32};
    case Kind::push_8: return {Op::push, Type::i64};
    case Kind::push_wide: return {Op::push_wide};
    case Kind::pop_1: return {Op::pop, Type::u8};
    case Kind::pop_4: return {Op::pop, Type::i32};
    case Kind::pop_8: return {Op::pop, Type::i64};
    case Kind::pop_wide: return {Op::pop_wide};
    case Kind::function: return {Op::function};
    case Kind::logical_not: return {Op::logical_not, Type::u8, Type::u8};
    case Kind::logical_and: return {Op::logical_and, Type::u8, Type::u8};
    case Kind::logical_or: return {Op::logical_or, Type::u8, Type::u8};
    case Kind::select_1: return {Op::select, Type::u8, Type::u8};
    case Kind::select_4: return {Op::select, Type::i32, Type::i32};
    case Kind::select_8: return {Op::select, Type::i64, Type::i64};
    case Kind::i32_to_i64: return {Op::cast, Type::i32, Type::i64};
    case Kind::i32_to_f32: return {Op::cast, Type::i32, Type::f32};
    case Kind::i32_to_f64: return {Op::cast, Type::i32, Type::f64};
    case Kind::i64_to_f32: return {Op::cast, Type::i64, Type::f32};
    case Kind::i64_to_f64: return {Op::cast, Type::i64, Type::f64};
    case Kind::f32_to_f64: return {Op::cast, Type::f32, Type::f64};
    case Kind::f64_to_f32: return {Op::cast, Type::f64, Type::f32};
#define X(name, T)                                                 \
  case Kind::add_##name: return {Op::add, Type::name, Type::name}; \
  case Kind::sub_##name: return {Op::sub, Type::name, Type::name}; \
  case Kind::mul_##name: return {Op::mul, Type::name, Type::name}; \
  case Kind::neg_##name: return {Op::neg, Type::name, Type::name}; \
  case Kind::lt_##name: return {Op::lt, Type::name, Type::u8};     \
  case Kind::le_##name: return {Op::le, Type::name, Type::u8};     \
  case Kind::gt_##name: return {Op::gt, Type::name, Type::u8};     \
  case Kind::ge_##name: return {Op::ge, Type::name, Type::u8};     \
  case Kind::eq_##name: return {Op::eq, Type::name, Type::u8};     \
  case Kind::ne_##name: return {Op::ne, Type::name, Type::u8};     \
  case Kind::again_lt_##name: return {Op::again_lt, Type::name};   \
  case Kind::again_le_##name: return {Op::again_le, Type::name};   \
  case Kind::again_gt_##name: return {Op::again_gt, Type::name};   \
  case Kind::again_ge_##name: return {Op::again_ge, Type::name};
      TROUPE_CODE_TYPES(X)
#undef X
    case Kind::div_f32: return {Op::div, Type::f32, Type::f32};
    case Kind::div_f64: return {Op::div, Type::f64, Type::f64};
    case Kind::abs_f32: return {Op::abs, Type::f32, Type::f32};
    case Kind::abs_f64: return {Op::abs, Type::f64, Type::f64};
    case Kind::sqrt_f32: return {Op::sqrt, Type::f32, Type::f32};
    case Kind::sqrt_f64: return {Op::sqrt, Type::f64, Type::f64};
    case Kind::multiply_add_f32: return {Op::multiply_add, Type::f32, Type::f32};
    case Kind::multiply_add_f64: return {Op::multiply_add, Type::f64, Type::f64};
  }
  return {Op::halt};
}

// Calls f(register, type) for the registers of a step that a machine register may hold. Types of
// copied and selected values follow from other steps.
template <class F>
void ScalarAnalysis::each_operand(const Step& s, F f) const {
  const Meaning m = meaning(s.kind);
  switch (m.op) {
    case Op::halt:
    case Op::call:
    case Op::jump:
    case Op::function: return;
    case Op::set_zero:
    case Op::pop: return f(s.to, Type::unknown);
    case Op::push: return f(s.a, Type::unknown);
    case Op::push_wide:
    case Op::pop_wide:
      for (const std::int32_t at : wide_of(s).at) f(at, Type::unknown);
      return;
    case Op::copy: return f(s.to, Type::unknown), f(s.a, Type::unknown);
    case Op::count: return f(s.to, Type::i64);
    case Op::jump_unless: return f(s.a, Type::u8);
    case Op::choose: return f(s.a, m.operand);
    case Op::select: {
      const Type t = m.operand == Type::u8 ? Type::u8 : Type::unknown;
      return f(s.a, Type::u8), f(s.to, t), f(s.b, t), f(s.c, t);
    }
    default: break;
  }
  f(s.a, m.op == Op::again_if ? Type::u8 : m.operand);
  if (is_binary(m.op) || m.op == Op::multiply_add) f(s.b, m.operand);
  if (m.op == Op::multiply_add) f(s.c, m.operand);
  if (!is_again(m.op)) f(s.to, m.result);
  else if (s.c >= 0) f(s.c, Type::i64);
}

namespace {

// True if something changed.
bool meet(ScalarAnalysis::Type& a, ScalarAnalysis::Type b) {
  using Type = ScalarAnalysis::Type;
  if (b == Type::unknown || a == b || a == Type::mixed) return false;
  a = a == Type::unknown ? b : Type::mixed;
  return true;
}

}  // namespace

void ScalarAnalysis::infer_types() {
  for (const Step& s : steps_)
    each_operand(s, [&](std::int32_t at, Type t) { meet(types_[number(at)], t); });
  for (bool changes = true; changes;) {
    changes = false;
    const auto equal = [&](std::int32_t x, std::int32_t y) {
      changes |= meet(types_[number(x)], type(y));
      changes |= meet(types_[number(y)], type(x));
    };
    for (const Step& s : steps_) {
      const Op op = meaning(s.kind).op;
      if (op == Op::copy) equal(s.to, s.a);
      if (op == Op::select) equal(s.to, s.b), equal(s.to, s.c);
    }
  }
}

void ScalarAnalysis::mark_steps() {
  mark(0, kTarget | kEntry);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    const Op op = meaning(s.kind).op;
    const auto here = static_cast<std::int32_t>(i);
    if (op == Op::call) mark(here + 1, kTarget | kEntry | kBare);
    if (op == Op::halt) mark(here, kTarget | kEntry);
    if (op == Op::jump || op == Op::jump_unless) mark(s.target, kTarget);
    if (is_again(op)) mark(s.target, kTarget | kEntry);
    if (op == Op::choose)
      for (std::int32_t b = 0; b < s.b; ++b) mark(branch(s, b), kTarget);
  }
}

void ScalarAnalysis::find_loops() {
  std::vector<Loop> all;
  for (std::size_t i = 0; i < steps_.size(); ++i)
    if (is_again(meaning(steps_[i].kind).op) && steps_[i].target <= static_cast<int>(i))
      all.push_back({steps_[i].target, static_cast<std::int32_t>(i)});
  for (const Loop& l : all) {
    const bool holds_another = std::any_of(all.begin(), all.end(), [&](const Loop& o) {
      return &o != &l && o.first <= l.last && l.first <= o.last &&
             (o.last < l.last || (o.last == l.last && o.first > l.first));
    });
    if (holds_another) continue;
    const auto index = static_cast<std::int32_t>(loops_.size());
    for (std::int32_t i = l.first; i <= l.last; ++i) loop_of_[static_cast<std::size_t>(i)] = index;
    loops_.push_back(l);
    rank_registers(loops_.back());
  }
}

void ScalarAnalysis::rank_registers(Loop& loop) const {
  std::vector<int> uses(types_.size(), 0);
  for (std::int32_t i = loop.first; i <= loop.last; ++i)
    each_operand(steps_[static_cast<std::size_t>(i)],
                 [&](std::int32_t at, Type) { ++uses[number(at)]; });
  for (std::size_t r = 0; r < uses.size(); ++r)
    if (uses[r] > 0 && is_known(types_[r]))
      (is_floating(types_[r]) ? loop.floating : loop.general)
          .push_back(static_cast<std::int32_t>(r) * ScalarCode::kRegister);
  for (auto* ranked : {&loop.floating, &loop.general})
    std::stable_sort(ranked->begin(), ranked->end(), [&](std::int32_t x, std::int32_t y) {
      return uses[number(x)] > uses[number(y)];
    });
}

}  // namespace troupe::detail
