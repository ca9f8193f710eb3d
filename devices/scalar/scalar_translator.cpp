#include <troupe/devices/scalar/scalar_translator.hpp>

#include <troupe/devices/scalar/element_cursor.hpp>

#ifdef TROUPE_HAS_XBYAK

#include <cstddef>
#include <deque>
#include <span>
#include <utility>

#include <troupe/devices/scalar/pinned_registers.hpp>

namespace troupe::detail {

// See Note [Machine code] in devices/NOTES.md.
class ScalarTranslator::Emitter : private PinnedRegisters {
  using Step = Analysis::Step;
  using Op = Analysis::Op;
  using Meaning = Analysis::Meaning;

 public:
  Emitter(const ScalarCode& code, Call on_call, std::span<std::uint8_t> buffer)
      : PinnedRegisters(code, buffer), call_(on_call), steps_(code_.steps()),
        labels_(steps_.size()) {}

  TranslatedCode emit() {
    emit_entry();
    bool falls = true;  // the step before may go on here
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      begin_step(i, falls);
      falls = emit_step(i);
    }
    for (std::size_t k = 0; k < apart_.size(); ++k) emit_apart(k);
    for (Instead& call : instead_) emit_instead(call);
    emit_exits();
    TranslatedCode made{{}, std::vector<std::int32_t>(steps_.size(), -1)};
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (code_.marks(i) & Analysis::kEntry) made.entries[i] = emit_entry_of(i);
    made.bytes.assign(getCode(), getCode() + getSize());
    return made;
  }

 private:
  void begin_step(std::size_t i, bool falls) {
    enter_loop(code_.loop_of(i));
    if (!(code_.marks(i) & Analysis::kTarget)) return;
    if (code_.marks(i) & Analysis::kBare) lose_all();
    else if (falls) load_all();
    L(labels_[i]);
    if (code_.marks(i) & Analysis::kBare) return;
    for (const std::int32_t at : pinned_) of(at).is_here = true;
  }

  // Code that is seldom run, or that only one way needs, after all steps.
  struct Apart {
    Xbyak::Label label;
    std::int32_t target;
    bool is_pause;
  };
  // True if what runs here, with all pins loaded, may run on at the target.
  bool is_ready_for(std::int32_t target) const {
    const auto t = static_cast<std::size_t>(target);
    return (code_.marks(t) & Analysis::kBare) || code_.loop_of(t) < 0 || code_.loop_of(t) == loop_;
  }
  Xbyak::Label& way_to(std::int32_t target) {
    if (is_ready_for(target)) return labels_[static_cast<std::size_t>(target)];
    return apart_.emplace_back(Apart{{}, target, false}).label;
  }
  Xbyak::Label& pause_at(std::int32_t target) {
    return apart_.emplace_back(Apart{{}, target, true}).label;
  }
  void emit_apart(std::size_t k) {
    L(apart_[k].label);
    const std::int32_t target = apart_[k].target;
    if (apart_[k].is_pause) {
      mov(ecx, static_cast<std::uint32_t>(target));
      mov(eax, static_cast<std::uint32_t>(ScalarCode::kPaused));
      jmp(stopped_, T_NEAR);
    } else {
      go_in(static_cast<std::size_t>(target));
    }
  }
  void go_in(std::size_t target) {
    enter_loop(-1);
    enter_loop(code_.loop_of(target));
    if (!(code_.marks(target) & Analysis::kBare)) load_all();
    jmp(labels_[target], T_NEAR);
    enter_loop(-1);
  }

  void emit_entry() {
    for (const Xbyak::Reg64& r : {rbx, rbp, r12, r13, r14, r15}) push(r);
    sub(rsp, 8);  // rsp is a multiple of 16 from here on
    mov(qword[rsp], rdx);
    mov(rbx, rdi);
    mov(r12, rsi);
    jmp(rcx);
  }
  std::int32_t emit_entry_of(std::size_t step) {
    const auto at = static_cast<std::int32_t>(getSize());
    go_in(step);
    return at;
  }
  // eax: the result; ecx: the step that a later run goes on from.
  void emit_exits() {
    L(stopped_);
    mov(rdx, qword[rsp]);
    mov(dword[rdx + offsetof(MachineRun, place)], ecx);
    L(leave_);
    add(rsp, 8);
    for (const Xbyak::Reg64& r : {r15, r14, r13, r12, rbp, rbx}) pop(r);
    ret();
  }

  // ---- steps

  // Returns false if the next step is not reached from this one.
  bool emit_step(std::size_t i) {
    const Step& s = steps_[i];
    const Meaning m = Analysis::meaning(s.kind);
    const auto here = static_cast<std::int32_t>(i);
    switch (m.op) {
      case Op::halt:
        mov(ecx, static_cast<std::uint32_t>(here));
        mov(eax, static_cast<std::uint32_t>(ScalarCode::kHalted));
        jmp(stopped_, T_NEAR);
        return false;
      case Op::call: return emit_call(s, here), lose_all(), true;
      case Op::jump:
        load_all();
        jmp(way_to(s.target), T_NEAR);
        return false;
      case Op::jump_unless:
        load_all();
        test_flag(s.a);
        jz(way_to(s.target), T_NEAR);
        return true;
      case Op::choose: return emit_choose(s, m.operand), false;
      case Op::push:
      case Op::push_wide:
      case Op::pop:
      case Op::pop_wide: return emit_by_cursor(s, m, here), true;
      case Op::function: return emit_function(s), true;
      case Op::copy: return emit_copy(s), true;
      case Op::set_zero: return emit_zero(s.to), true;
      case Op::count: return emit_count(s.to), true;
      case Op::logical_not:
      case Op::logical_and:
      case Op::logical_or: return emit_logic(s, m.op), true;
      case Op::select: return emit_select(s, m.operand), true;
      case Op::cast: return emit_cast(s, m), true;
      case Op::neg:
      case Op::abs:
      case Op::sqrt: return emit_unary(s, m), true;
      case Op::multiply_add: return emit_multiply_add(s, m.operand), true;
      case Op::add:
      case Op::sub:
      case Op::mul:
      case Op::div: return emit_binary(s, m), true;
      case Op::lt:
      case Op::le:
      case Op::gt:
      case Op::ge:
      case Op::eq:
      case Op::ne: return emit_compare(s, m), true;
      default: return emit_again(s, m), true;
    }
  }

  void emit_call(const Step& s, std::int32_t here) {
    mov(rdi, qword[rsp]);
    mov(esi, static_cast<std::uint32_t>(s.target));
    mov(edx, static_cast<std::uint32_t>(here + 1));
    mov(rax, reinterpret_cast<std::size_t>(call_));
    call(rax);
    test(eax, eax);
    jnz(leave_, T_NEAR);
  }

  // A call that is made where a cursor has no room or no element, after all steps; then the pins
  // that had their values have them again.
  struct Instead {
    Xbyak::Label label, back;
    const Step* step;
    std::int32_t here, loop;
    std::vector<std::int32_t> pins;
  };
  void emit_by_cursor(const Step& s, const Meaning& m, std::int32_t here) {
    const bool pushes = m.op == Op::push || m.op == Op::push_wide;
    std::vector<std::int32_t> values{pushes ? s.a : s.to};
    Type type = m.operand;
    if (m.op == Op::push_wide || m.op == Op::pop_wide) {
      const auto& wide = code_.wide_of(s);
      values = wide.at;
      type = wide.bytes == 1 ? Type::u8 : wide.bytes == 4 ? Type::i32 : Type::i64;
    }
    const int bytes = Analysis::width(type), all = bytes * static_cast<int>(values.size());
    const auto field = [&](std::size_t offset) {
      return qword[rbx + s.b + static_cast<std::int32_t>(offset)];
    };
    Instead& call = instead_.emplace_back();
    call.step = &s;
    call.here = here;
    call.loop = loop_;
    for (const std::int32_t at : values)
      if (pushes && is_pinned(at)) load_pin(at);
    mov(rax, field(offsetof(ElementCursor, next)));
    cmp(rax, field(pushes ? offsetof(ElementCursor, end) : offsetof(ElementCursor, begin)));
    je(call.label, T_NEAR);
    if (!pushes) sub(rax, all);
    int offset = 0;
    for (const std::int32_t at : values) {
      // a pin's own type, which is as wide
      const Type t = is_pinned(at) ? of(at).type : type;
      if (pushes) emit_push(at, t, offset);
      else emit_pop(at, t, offset);
      offset += bytes;
    }
    if (pushes) add(rax, all);
    mov(field(offsetof(ElementCursor, next)), rax);
    for (const std::int32_t pin : pinned_)
      if (of(pin).is_here) call.pins.push_back(pin);
    L(call.back);
  }
  // The element is so many bytes from rax on.
  Xbyak::Address element(int offset, Type t) {
    switch (Analysis::width(t)) {
      case 1: return byte[rax + offset];
      case 4: return dword[rax + offset];
      default: return qword[rax + offset];
    }
  }
  void emit_push(std::int32_t at, Type t, int offset) {
    if (Analysis::is_floating(t)) {
      if (t == Type::f32) movss(element(offset, t), xmm_of(of(at).pin));
      else movsd(element(offset, t), xmm_of(of(at).pin));
      return;
    }
    const Xbyak::Reg from = read_general(at, t, kRcx);
    if (t == Type::u8) mov(element(offset, t), low_byte(from));
    else mov(element(offset, t), from);
  }
  void emit_pop(std::int32_t at, Type t, int offset) {
    if (Analysis::is_floating(t)) {
      const Xbyak::Xmm to = xmm_of(of(at).pin);
      if (t == Type::f32) movss(to, element(offset, t));
      else movsd(to, element(offset, t));
      return write_xmm(at, t, to);
    }
    const Xbyak::Reg to = is_pinned(at) ? general_of(of(at).pin, t) : sized(kRcx, t);
    if (t == Type::u8) movzx(to, element(offset, t));
    else mov(to, element(offset, t));
    write_general(at, t, to);
  }
  void emit_instead(Instead& call) {
    enter_loop(call.loop);
    lose_all();
    L(call.label);
    emit_call(*call.step, call.here);
    for (const std::int32_t pin : call.pins) load_pin(pin);
    jmp(call.back, T_NEAR);
  }

  // Sets the zero flag if a bool is false.
  void test_flag(std::int32_t at) {
    if (is_pinned(at)) {
      const Xbyak::Reg8 r = low_byte(read_general(at, Type::u8, kRax));
      test(r, r);
    } else {
      cmp(memory(at, Type::u8), 0);
    }
  }

  void emit_choose(const Step& s, Type t) {
    load_all();
    const Xbyak::Reg index = read_general(s.a, t, kRax);
    for (std::int32_t b = 0; b + 1 < s.b; ++b) {
      cmp(index, static_cast<std::uint32_t>(b));
      je(way_to(code_.branch(s, b)), T_NEAR);
    }
    jmp(way_to(code_.branch(s, s.b - 1)), T_NEAR);
  }

  // It has its operands in memory, where all registers are.
  void emit_function(const Step& s) {
    lea(rdi, ptr[rbx + s.to]);
    lea(rsi, ptr[rbx + s.a]);
    lea(rdx, ptr[rbx + s.b]);
    lea(rcx, ptr[rbx + s.c]);
    mov(r8d, 1);
    mov(rax, reinterpret_cast<std::size_t>(s.f));
    call(rax);
    lose_called();
    if (is_pinned(s.to)) of(s.to).is_here = false;
  }

  void emit_copy(const Step& s) {
    const Type t = of(s.to).type;
    if (t == Type::unknown || t == Type::mixed || of(s.a).type != t) {
      movups(xmm0, ptr[rbx + s.a]);
      movups(ptr[rbx + s.to], xmm0);
      if (is_pinned(s.to)) of(s.to).is_here = false;
    } else if (Analysis::is_floating(t)) {
      write_xmm(s.to, t, read_xmm(s.a, t, 0));
    } else {
      write_general(s.to, t, read_general(s.a, t, kRax));
    }
  }

  void emit_zero(std::int32_t at) {
    xorps(xmm0, xmm0);
    movups(ptr[rbx + at], xmm0);
    if (is_pinned(at)) of(at).is_here = false;
  }

  void emit_count(std::int32_t at) {
    const Xbyak::Reg counter = read_general(at, Type::i64, kRax);
    inc(counter);
    write_general(at, Type::i64, counter);
  }

  void emit_logic(const Step& s, Op op) {
    test_flag(s.a);
    if (op == Op::logical_not) {
      setz(al);
    } else {
      setnz(al);
      test_flag(s.b);
      setnz(dl);
      if (op == Op::logical_and) and_(al, dl);
      else or_(al, dl);
    }
    movzx(eax, al);
    write_general(s.to, Type::u8, eax);
  }

  // `size` has the number of bytes, the register's type the kind of machine register.
  void emit_select(const Step& s, Type size) {
    const Type t = of(s.to).type;
    const bool is_float = Analysis::is_floating(t) && of(s.b).type == t && of(s.c).type == t;
    if (!is_float) {
      const Type of_size =
          Analysis::is_floating(t) || t == Type::mixed || t == Type::unknown ? size : t;
      const Xbyak::Reg no = read_general(s.c, of_size, kRax);
      const Xbyak::Reg yes = read_general(s.b, of_size, kRcx);
      const Xbyak::Reg chosen = sized(kRdx, of_size);
      mov(chosen, no);
      test_flag(s.a);
      cmovnz(chosen, yes);
      write_general(s.to, of_size, chosen);
      return;
    }
    // all bits of a lane, or none
    xor_(eax, eax);
    test_flag(s.a);
    setnz(al);
    neg(rax);
    movq(xmm0, rax);
    if (is_pinned(s.b)) movaps(xmm1, read_xmm(s.b, t, 1));
    else load_xmm(xmm1, s.b, t);
    andps(xmm1, xmm0);
    andnps(xmm0, read_xmm(s.c, t, 2));
    orps(xmm0, xmm1);
    write_xmm(s.to, t, xmm0);
  }

  void emit_cast(const Step& s, const Meaning& m) {
    if (m.result == Type::i64) {
      movsxd(rax, read_general(s.a, Type::i32, kRax).cvt32());
      return write_general(s.to, Type::i64, rax);
    }
    const Xbyak::Xmm to = is_pinned(s.to) ? xmm_of(of(s.to).pin) : xmm0;
    if (Analysis::is_floating(m.operand)) {
      const Xbyak::Xmm from = read_xmm(s.a, m.operand, 1);
      if (m.result == Type::f64) cvtss2sd(to, from);
      else cvtsd2ss(to, from);
    } else {
      const Xbyak::Reg from = read_general(s.a, m.operand, kRax);
      xorps(to, to);  // the result waits for no earlier value
      if (m.result == Type::f32) cvtsi2ss(to, from);
      else cvtsi2sd(to, from);
    }
    write_xmm(s.to, m.result, to);
  }

  void emit_unary(const Step& s, const Meaning& m) {
    const Type t = m.operand;
    if (!Analysis::is_floating(t)) {
      const Xbyak::Reg from = read_general(s.a, t, kRax), to = sized(kRax, t);
      if (from != to) mov(to, from);
      neg(to);
      return write_general(s.to, t, to);
    }
    const Xbyak::Xmm from = read_xmm(s.a, t, 0);
    if (m.op == Op::sqrt) {
      if (t == Type::f32) sqrtss(xmm0, from);
      else sqrtsd(xmm0, from);
      return write_xmm(s.to, t, xmm0);
    }
    const std::uint64_t sign = t == Type::f32 ? 0x80000000u : 0x8000000000000000u;
    mov(rax, m.op == Op::neg ? sign : sign - 1);
    movq(xmm1, rax);
    if (from != xmm0) movaps(xmm0, from);
    if (m.op == Op::neg) xorps(xmm0, xmm1);
    else andps(xmm0, xmm1);
    write_xmm(s.to, t, xmm0);
  }

  void emit_binary(const Step& s, const Meaning& m) {
    const Type t = m.operand;
    // in place unless the second operand lies there
    const bool in_place = is_pinned(s.to) && (s.to != s.b || s.to == s.a);
    if (!Analysis::is_floating(t)) {
      const Xbyak::Reg to = in_place ? general_of(of(s.to).pin, t) : sized(kRax, t);
      const Xbyak::Reg a = read_general(s.a, t, kRax);
      if (is_pinned(s.b)) load_pin(s.b);
      if (to != a) mov(to, a);
      const auto apply = [&](const Xbyak::Operand& b) {
        if (m.op == Op::add) add(to, b);
        else if (m.op == Op::sub) sub(to, b);
        else imul(to, b);
      };
      if (is_pinned(s.b)) apply(general_of(of(s.b).pin, t));
      else apply(memory(s.b, t));
      return write_general(s.to, t, to);
    }
    const Xbyak::Xmm to = in_place ? xmm_of(of(s.to).pin) : xmm0;
    const Xbyak::Xmm a = read_xmm(s.a, t, 0);
    if (is_pinned(s.b)) load_pin(s.b);
    if (to != a) movaps(to, a);
    const auto apply = [&](const Xbyak::Operand& b) {
      const bool is_single = t == Type::f32;
      switch (m.op) {
        case Op::add: return is_single ? addss(to, b) : addsd(to, b);
        case Op::sub: return is_single ? subss(to, b) : subsd(to, b);
        case Op::mul: return is_single ? mulss(to, b) : mulsd(to, b);
        default: return is_single ? divss(to, b) : divsd(to, b);
      }
    };
    if (is_pinned(s.b)) apply(xmm_of(of(s.b).pin));
    else apply(memory(s.b, t));
    write_xmm(s.to, t, to);
  }

  void emit_multiply_add(const Step& s, Type t) {
    const Xbyak::Xmm a = read_xmm(s.a, t, 1);
    if (is_pinned(s.b)) load_pin(s.b);
    load_sum(s.c, t);
    const auto apply = [&](const Xbyak::Operand& b) {
      if (t == Type::f32) vfmadd231ss(xmm0, a, b);
      else vfmadd231sd(xmm0, a, b);
    };
    if (is_pinned(s.b)) apply(xmm_of(of(s.b).pin));
    else apply(memory(s.b, t));
    write_xmm(s.to, t, xmm0);
  }
  void load_sum(std::int32_t at, Type t) {
    if (is_pinned(at)) movaps(xmm0, read_xmm(at, t, 0));
    else load_xmm(xmm0, at, t);
  }

  // Compares a with b: flags as of unsigned integers for floats, where NaN sets carry, zero and
  // parity; so that a < b is asked as b > a.
  void compare(std::int32_t a, std::int32_t b, Type t) {
    if (Analysis::is_floating(t)) {
      const Xbyak::Xmm x = read_xmm(a, t, 0);
      const auto apply = [&](const Xbyak::Operand& y) {
        if (t == Type::f32) ucomiss(x, y);
        else ucomisd(x, y);
      };
      if (is_pinned(b)) apply(read_xmm(b, t, 1));
      else apply(memory(b, t));
      return;
    }
    const Xbyak::Reg x = read_general(a, t, kRax);
    if (is_pinned(b)) cmp(x, read_general(b, t, kRdx));
    else cmp(x, memory(b, t));
  }

  void emit_compare(const Step& s, const Meaning& m) {
    const bool is_float = Analysis::is_floating(m.operand);
    const bool turns = is_float && (m.op == Op::lt || m.op == Op::le);
    compare(turns ? s.b : s.a, turns ? s.a : s.b, m.operand);
    switch (m.op) {
      case Op::lt: is_float ? seta(al) : setl(al); break;
      case Op::le: is_float ? setae(al) : setle(al); break;
      case Op::gt: is_float ? seta(al) : setg(al); break;
      case Op::ge: is_float ? setae(al) : setge(al); break;
      case Op::eq:
        sete(al);
        if (is_float) setnp(dl), and_(al, dl);
        break;
      default:
        setne(al);
        if (is_float) setp(dl), or_(al, dl);
    }
    movzx(eax, al);
    write_general(s.to, Type::u8, eax);
  }

  void emit_again(const Step& s, const Meaning& m) {
    load_all();
    Xbyak::Label next;
    if (m.op == Op::again_if) {
      test_flag(s.a);
      jz(next, T_NEAR);
    } else {
      const bool is_float = Analysis::is_floating(m.operand);
      const bool turns = is_float && (m.op == Op::again_lt || m.op == Op::again_le);
      compare(turns ? s.b : s.a, turns ? s.a : s.b, m.operand);
      switch (m.op) {
        case Op::again_lt: is_float ? jbe(next, T_NEAR) : jge(next, T_NEAR); break;
        case Op::again_le: is_float ? jb(next, T_NEAR) : jg(next, T_NEAR); break;
        case Op::again_gt: is_float ? jbe(next, T_NEAR) : jle(next, T_NEAR); break;
        default: is_float ? jb(next, T_NEAR) : jl(next, T_NEAR);
      }
    }
    if (s.c >= 0) emit_count(s.c);
    dec(r12);
    jg(way_to(s.target), T_NEAR);
    jmp(pause_at(s.target), T_NEAR);
    L(next);
  }

  const Call call_;
  const std::vector<Step>& steps_;
  std::vector<Xbyak::Label> labels_;  // by step
  std::deque<Apart> apart_;
  std::deque<Instead> instead_;
  Xbyak::Label stopped_, leave_;
};

bool ScalarTranslator::is_built_in() { return true; }

std::optional<TranslatedCode> ScalarTranslator::translate(const ScalarCode& code, Call call) {
  constexpr std::size_t kLongest = std::size_t{16} << 20;
  // a step takes some 20 bytes, and, by the loads of its loop's pins, some hundreds at most
  std::size_t room = 4096 + static_cast<std::size_t>(code.here()) * 256;
  for (; room <= kLongest; room *= 2) {
    std::vector<std::uint8_t> buffer(room);
    try {
      return Emitter(code, call, buffer).emit();
    } catch (const Xbyak::Error& e) {
      if (static_cast<int>(e) != Xbyak::ERR_CODE_IS_TOO_BIG) return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace troupe::detail

#else

namespace troupe::detail {

bool ScalarTranslator::is_built_in() { return false; }

std::optional<TranslatedCode> ScalarTranslator::translate(const ScalarCode&, Call) {
  return std::nullopt;
}

}  // namespace troupe::detail

#endif
