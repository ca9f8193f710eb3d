// Translates scalar code into x86-64 instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include <troupe/devices/scalar/scalar_code.hpp>

namespace troupe::detail {

/// One run of machine code, which reads and writes it.
struct MachineRun {
  std::int32_t place = -1;  // the step that it stopped at; -1: a call stopped it
  ScalarFrame* frame = nullptr;
  ScalarCalls* calls = nullptr;
  std::exception_ptr thrown = nullptr;
};

struct TranslatedCode {
  /// The bytes may be anywhere. They begin with a function
  /// int (std::byte* registers, std::int64_t budget, MachineRun*, const void* entry).
  std::vector<std::uint8_t> bytes;
  std::vector<std::int32_t> entries;  // by step, as bytes from the first; -1: none
};

class ScalarTranslator {
 public:
  /// Makes call `number`, with the frame at step `next`; returns 0 if the run goes on.
  using Call = int (*)(MachineRun* run, std::int32_t number, std::int32_t next) noexcept;

  static bool is_built_in();
  /// Nothing if the build has no translator, or if the code is too long.
  static std::optional<TranslatedCode> translate(const ScalarCode& code, Call call);

 private:
  class Emitter;
};

}  // namespace troupe::detail
