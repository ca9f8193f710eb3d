// From a program for whole tensors to one that every device of a mesh runs on its pieces, and from
// that to a program over all devices.
//
//   Program ─► to_spmd ─► SpmdProgram: local shapes, Mesh* nodes ─► expand ─► Program over devices
//
// The SPMD program has one node for all devices, however many they are. `expand` copies its nodes
// to each device and makes collectives (ops/collectives) of its Mesh* nodes.
//
// Nodes that run once: inputs, reads and updates of states, branches, loops and calls, users'
// actors, nodes that a user constrained to a device, nodes of unknown shapes, and nodes that depend
// on these alone and are not split. Their values are whole. Other nodes run on all devices.
//
// Sums along a dimension that is split stay partial: each device holds a summand. They are added
// and scaled as they are, and all-reduced once, where a node needs the sum.
#pragma once

#include <string>
#include <vector>

#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::mesh::detail {

struct SpmdProgram {
  troupe::detail::Program program;
  std::vector<char> is_once;  // for each node
  // a line for each collective: of which node, how many bytes, and why; then rules without a use
  std::vector<std::string> told;
  // a line for each node of the program for whole tensors: its dimensions, layout and local shape
  std::vector<std::string> layouts;
};

/// Throws invalid_argument, naming node, line, dimension and axis, for a layout that a tensor of
/// the program does not fit.
SpmdProgram to_spmd(const troupe::detail::Program& program, const Partitioning& partitioning);

/// Copies each node to each device. Throws only the errors of collectives.
troupe::detail::Program expand(const SpmdProgram& spmd, const Mesh& mesh);

}  // namespace troupe::mesh::detail
