// The processor's registers that hold registers of scalar code while its innermost loops run.
// For the translator, in builds that have xbyak. See Note [Machine code] in devices/NOTES.md.
#pragma once

#ifdef TROUPE_HAS_XBYAK

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <troupe/devices/scalar/scalar_analysis.hpp>

#include <xbyak/xbyak.h>

namespace troupe::detail {

class PinnedRegisters : protected Xbyak::CodeGenerator {
 protected:
  using Analysis = ScalarAnalysis;
  using Type = Analysis::Type;

  PinnedRegisters(const ScalarCode& code, std::span<std::uint8_t> buffer)
      : CodeGenerator(buffer.size(), buffer.data()), code_(code) {
    for (const Type t : code_.types()) registers_.push_back({t});
  }

  // In an innermost loop the registers that it uses most have machine registers of their own.
  struct Pinned {
    Type type = Type::unknown;
    std::int8_t pin = -1;  // in the loop being emitted; -1: none
    bool is_here = false;  // the machine register has the value
  };
  Pinned& of(std::int32_t at) { return registers_[ScalarAnalysis::number(at)]; }
  static constexpr int kFirstXmm = 3, kXmms = 13;  // xmm0 to xmm2 are scratch
  static constexpr int kGeneral = 10, kKept = 4;   // calls of functions keep the first 4

  // rbx: the frame's registers; r12: the budget; [rsp]: the MachineRun; rax, rcx, rdx: scratch
  Xbyak::Address memory(std::int32_t at, Type t) {
    switch (Analysis::width(t)) {
      case 1: return byte[rbx + at];
      case 4: return dword[rbx + at];
      default: return qword[rbx + at];
    }
  }
  Xbyak::Xmm xmm_of(std::int8_t pin) const { return Xbyak::Xmm(kFirstXmm + pin); }
  // As wide as the integer; a bool is zero-extended to 32 bits.
  Xbyak::Reg general_of(std::int8_t pin, Type t) const {
    constexpr std::array<int, kGeneral> index{13, 14, 15, 5 /* rbp */, 6 /* rsi */,
                                              7,  8,  9,  10,          11};
    return sized(index[static_cast<std::size_t>(pin)], t);
  }
  static Xbyak::Reg sized(int index, Type t) {
    if (Analysis::width(t) == 8) return Xbyak::Reg64(index);
    return Xbyak::Reg32(index);
  }
  static Xbyak::Reg8 low_byte(const Xbyak::Reg& r) {
    return Xbyak::Reg8(r.getIdx(), r.getIdx() >= 4 && r.getIdx() < 8);
  }
  static constexpr int kRax = 0, kRcx = 1, kRdx = 2;

  void load_xmm(const Xbyak::Xmm& to, std::int32_t at, Type t) {
    if (t == Type::f32) movss(to, memory(at, t));
    else movsd(to, memory(at, t));
  }
  void load_general(const Xbyak::Reg& to, std::int32_t at, Type t) {
    if (t == Type::u8) movzx(to, memory(at, t));
    else mov(to, memory(at, t));
  }
  void load_pin(std::int32_t at) {
    Pinned& r = of(at);
    if (r.is_here) return;
    if (Analysis::is_floating(r.type)) load_xmm(xmm_of(r.pin), at, r.type);
    else load_general(general_of(r.pin, r.type), at, r.type);
    r.is_here = true;
  }
  bool is_pinned(std::int32_t at) { return of(at).pin >= 0; }
  // The pin, or `scratch` with the value.
  Xbyak::Xmm read_xmm(std::int32_t at, Type t, int scratch) {
    if (is_pinned(at)) return load_pin(at), xmm_of(of(at).pin);
    load_xmm(Xbyak::Xmm(scratch), at, t);
    return Xbyak::Xmm(scratch);
  }
  Xbyak::Reg read_general(std::int32_t at, Type t, int scratch) {
    if (is_pinned(at)) return load_pin(at), general_of(of(at).pin, t);
    load_general(sized(scratch, t), at, t);
    return sized(scratch, t);
  }
  // Every write reaches memory at once, so that a stop has nothing to do. Nothing waits for it.
  void write_xmm(std::int32_t at, Type t, const Xbyak::Xmm& from) {
    if (t == Type::f32) movss(memory(at, t), from);
    else movsd(memory(at, t), from);
    if (!is_pinned(at)) return;
    if (const Xbyak::Xmm pin = xmm_of(of(at).pin); pin != from) movaps(pin, from);
    of(at).is_here = true;
  }
  void write_general(std::int32_t at, Type t, const Xbyak::Reg& from) {
    if (t == Type::u8) mov(memory(at, t), low_byte(from));
    else mov(memory(at, t), from);
    if (!is_pinned(at)) return;
    if (const Xbyak::Reg pin = general_of(of(at).pin, t); pin != from) mov(pin, from);
    of(at).is_here = true;
  }

  // ---- the state between steps

  void enter_loop(std::int32_t loop) {
    if (loop == loop_) return;
    for (const std::int32_t at : pinned_) of(at).pin = -1;
    pinned_.clear();
    loop_ = loop;
    if (loop_ < 0) return;
    const Analysis::Loop& entered = code_.loops()[static_cast<std::size_t>(loop_)];
    pin(entered.floating, kXmms);
    pin(entered.general, kGeneral);
  }
  void pin(const std::vector<std::int32_t>& ranked, int most) {
    std::int8_t next = 0;
    for (const std::int32_t at : ranked) {
      if (next == most) return;
      pinned_.push_back(at);
      of(at).pin = next++;
      of(at).is_here = false;
    }
  }
  void load_all() {
    for (const std::int32_t at : pinned_) load_pin(at);
  }
  void lose_all() {
    for (const std::int32_t at : pinned_) of(at).is_here = false;
  }
  // The pins that a function may change.
  void lose_called() {
    for (const std::int32_t at : pinned_)
      if (Analysis::is_floating(of(at).type) || of(at).pin >= kKept) of(at).is_here = false;
  }

  const Analysis code_;
  std::vector<Pinned> registers_;
  std::vector<std::int32_t> pinned_;  // registers, as bytes from the first
  std::int32_t loop_ = -1;            // whose pins are in use; -1: none
};

}  // namespace troupe::detail

#endif
