// The cost model of layouts: the time of each node of an SPMD program on one device, and the bytes
// that live there. `automatic_layout` chooses by it, and `Function::explain` prints it.
#pragma once

#include <string>
#include <vector>

#include <troupe/ops/mesh/automatic.hpp>
#include <troupe/ops/mesh/spmd.hpp>

namespace troupe::mesh::detail {

/// ns of a node that is no collective; of nodes that only pass values on: 0.
double kernel_ns(const Graph& g, const troupe::detail::Node& n, const LayoutOptions& o);

/// The collective of a node, as users know it: "all-reduce", ...; null: it is none.
const char* collective_name(const troupe::detail::Node& n);
/// Bytes that a collective sends from one device: of an all-reduce of n bytes over k devices
/// 2n(k-1)/k, of an all-gather n(k-1), of a reduce-scatter or an all-to-all n(k-1)/k, of a shift n,
/// of an export to one place what it lacks there.
double sent_bytes(const Graph& g, const troupe::detail::Node& n, const Mesh& mesh);

LayoutCost cost_of(const SpmdProgram& spmd, const Mesh& mesh, const LayoutOptions& options);

/// Lines for reports: the predicted step; then each kernel and collective, in the order in which a
/// device runs them: its time, what lives on the device while it runs, its value's layout and local
/// shape, and of a collective the bytes that it sends, and why it is there.
std::vector<std::string> explained(const SpmdProgram& spmd, const Partitioning& partitioning,
                                   const LayoutOptions& options = {});

}  // namespace troupe::mesh::detail
