// Kernels that run on the host because their device lacks a primitive that they call.
//
//   if (runs_on_host(op, device, dtype)) return make_host_kernel(op, setup);   // op.cpp
//
// The inputs come to the host behind the work that makes them, the CPU's kernel computes, and the
// outputs go back to the device. No thread waits for a stream meanwhile.
#pragma once

#include <memory>

#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/kernel.hpp>

namespace troupe {

namespace detail {

struct OpDef;

}  // namespace detail

/// True if the device lacks a primitive that the op's kernel calls (OpDef::primitives) on elements
/// of `dtype`, its first output's.
bool runs_on_host(const OpDef& op, const Device& device, DType dtype);

/// The op's kernel of the CPU for a node on another device. Its inputs are tensors, no lists.
std::unique_ptr<Kernel> make_host_kernel(const OpDef& op, const KernelSetup& setup);

}  // namespace troupe
