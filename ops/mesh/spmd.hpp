// From a program for whole tensors to one that every device of a mesh runs on its pieces, and from
// that to a program over all devices.
//
//   Program ─► to_spmd ─► SpmdProgram: local shapes, Mesh* nodes ─► expand ─► Program over devices
//
// The SPMD program has one node for all devices, however many they are. `expand` copies its nodes
// to each device and makes collectives (ops/collectives) of its Mesh* nodes.
//
// Nodes that run once: inputs, branches, loops and calls, users' actors, states that are not
// stored in pieces, nodes that a user constrained to a device, nodes of unknown shapes, and nodes
// that depend on these alone and are not split. Their values are whole. Other nodes run on all
// devices.
//
// Sums along a dimension that is split stay partial: each device holds a summand. They are added
// and scaled as they are, and all-reduced once, where a node needs the sum.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/mesh/mesh.hpp>
#include <troupe/ops/mesh/variables.hpp>

namespace troupe::mesh::detail {

struct SpmdFlow;

struct SpmdProgram {
  troupe::detail::Program program;
  std::vector<char> is_once;  // for each node
  // by the number of a variable's state: the states of its pieces, one a device
  std::map<std::int32_t, std::vector<std::int32_t>> pieces;
  std::map<std::int32_t, SpmdFlow> flows;  // by node: loops and branches whose sub-graphs are cut
  // for each node: the layout and local shape of its value, or why a collective is there; empty: it
  // serves the nodes beside it
  std::vector<std::string> notes;
  // a line for each collective: of which node, how many bytes, and why; then rules without a use
  std::vector<std::string> told;
  // a line for each node of the program for whole tensors: its dimensions, layout and local shape
  std::vector<std::string> layouts;
};

/// Throws invalid_argument, naming node, line, dimension and axis, for a layout that a tensor of
/// the program does not fit.
/// A loop or a branch: an argument of a sub-graph is on all devices if its Input node is.
struct SpmdFlow {
  std::vector<std::shared_ptr<const SpmdProgram>> subs;
  std::vector<char> is_once = {};  // for each output
};

/// `homes`: where an engine keeps variables; null: nowhere. Variables that get pieces are added to
/// it.
SpmdProgram to_spmd(const troupe::detail::Program& program, const Partitioning& partitioning,
                    VariableHomes* homes = nullptr);

/// Copies each node to each device. Throws only the errors of collectives.
troupe::detail::Program expand(const SpmdProgram& spmd, const Mesh& mesh);

}  // namespace troupe::mesh::detail
