// Single scalar operations as programs, for tests that try all of them.
#pragma once

#include <vector>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>

namespace troupe::test {

inline constexpr int kFirstOp = static_cast<int>(ScalarOp::neg);

// The operation alone as a program, or false if the dtype has no such operation.
inline bool make_program(ScalarOp op, DType type, ScalarProgram& program) {
  Recorder r(arity(op));
  std::vector<DType> types(static_cast<std::size_t>(arity(op)), type);
  if (op == ScalarOp::select) types[0] = DType::boolean;
  if (arity(op) == 1) r.finish(r.record(op, {r.input(0)}));
  else if (arity(op) == 2) r.finish(r.record(op, {r.input(0), r.input(1)}));
  else r.finish(r.record(op, {r.input(0), r.input(1), r.input(2)}));
  try {
    program = r.typed(types);
  } catch (const Error&) { return false; }
  return true;
}

}  // namespace troupe::test
