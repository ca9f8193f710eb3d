// A scalar program on single elements of the host: what the engine runs for loop counters,
// predicates, shapes and small tensors.
#pragma once

#include <span>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/scalar/scalar_program.hpp>
#include <troupe/devices/tensor/tensor.hpp>

namespace troupe {

/// Runs `program`, which has one result, on inline scalars of its input dtypes; `out` becomes an
/// inline scalar (it may be one of `inputs`). The bits are those of the CPU device's pointwise. Any
/// thread; after a program's first run nothing is allocated or locked.
void evaluate_scalars(const ScalarProgram& program, std::span<const Value> inputs, Value& out);

/// As above on host tensors of one element each, scalars among them or not. `out` becomes a tensor
/// of the broadcast shape; it reuses an input with no other holder. Returns false, with nothing
/// done, if the inputs are anything else, or too many.
bool evaluate_elements(const ScalarProgram& program, std::span<Value> inputs, Value& out);

}  // namespace troupe
