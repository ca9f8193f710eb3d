// A scalar program on host scalars: what the engine runs for loop counters, predicates and shapes.
#pragma once

#include <span>

#include <troupe/devices/scalar_program.hpp>
#include <troupe/devices/tensor.hpp>

namespace troupe {

/// Runs `program`, which has one result, on inline scalars of its input dtypes; `out` becomes an
/// inline scalar (it may be one of `inputs`). The bits are those of the CPU device's pointwise. Any
/// thread; after a program's first run nothing is allocated or locked.
void evaluate_scalars(const ScalarProgram& program, std::span<const Value> inputs, Value& out);

}  // namespace troupe
