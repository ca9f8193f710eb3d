// Prints scalar programs as CUDA text, which NVRTC compiles (nvrtc.hpp).
//
//   const PrintedProgram printed = print_program(program, form);
//   printed.text;    // the kernel alone; prelude() is compiled in front of it
//   printed.name;    // `troupe_` and the hash of the text
//
// An element's result depends on the element's operands alone: neither on the form, nor on the
// fusion (compile without contraction: --fmad=false).
#pragma once

#include <string>
#include <string_view>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/cuda/programs/form.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>

namespace troupe::cuda {

struct PrintedProgram {
  std::string name;
  std::string text;
};

/// `form` has one entry of by_value for each input of the program.
PrintedProgram print_program(const ScalarProgram& program, const ProgramForm& form);

/// Returns the text of prelude.cuh and complex.cuh: each scalar operation on one element.
std::string_view prelude();

/// Elements that one thread of the printed kernel computes at a time, 4 or 1.
inline std::int64_t elements_a_thread(const ProgramForm& form) {
  return form.is_flat && form.is_vectorized ? 4 : 1;
}

}  // namespace troupe::cuda
