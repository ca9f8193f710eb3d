// Scalar programs on inline scalars: the engine's hottest path, on the host whatever the device.
#pragma once

#include <span>

#include <troupe/devices/scalar_program.hpp>
#include <troupe/devices/value.hpp>

namespace troupe {

/// Runs a program of one result on inline scalars, with the same instruction functions as the
/// tiles, so that the bits agree with the vector path. Never allocates after the program's first use.
void evaluate_scalars(const ScalarProgram& program, std::span<const Value> inputs, Value& out);

}  // namespace troupe
