// Machine code of scalar code: its steps, translated for the processor when a plan is made.
//
//   auto machine = MachineCode::of(code);            // null: interpret
//   machine->run(frame, 1'000, calls);               // as ScalarCode::run
//
// Threads: any number may run it. Invariants: 1. results, stops and errors are those of
// `ScalarCode::run`, bit for bit; which NaN an operation on two of them yields is open, as in IEEE
// 754; 2. the frame holds every register's value whenever code outside of the machine code runs, so
// that a run may go on in either form; 3. its memory is never writable and executable at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/devices/scalar/scalar_code.hpp>

namespace troupe::detail {

class MachineCode {
 public:
  /// Empty if this process can translate and run code; else the reason. Any thread; the first call
  /// maps a page to find out.
  static const std::string& why_not();
  /// Null where `why_not` has a reason, or where this code's memory cannot be mapped.
  static std::unique_ptr<const MachineCode> of(const ScalarCode& code);

  ~MachineCode();
  MachineCode(const MachineCode&) = delete;
  MachineCode& operator=(const MachineCode&) = delete;

  /// As `ScalarCode::run` of the code that it was made of.
  int run(ScalarFrame& frame, std::int64_t budget, ScalarCalls& calls) const;
  /// Bytes of instructions.
  std::size_t size() const { return size_; }

 private:
  MachineCode(const ScalarCode& code, void* pages, std::size_t mapped, std::size_t size,
              std::vector<std::int32_t> entries)
      : code_(code), pages_(pages), mapped_(mapped), size_(size), entries_(std::move(entries)) {}

  const ScalarCode& code_;
  void* const pages_;
  const std::size_t mapped_, size_;
  // by step: where a run enters, as bytes from the first; -1: the interpreter goes on from there
  const std::vector<std::int32_t> entries_;
};

}  // namespace troupe::detail
