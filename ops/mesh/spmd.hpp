// From a program for whole tensors to one that every device of a mesh runs on its pieces, and from
// that to a program over all devices.
//
//   Program ─► to_spmd ─► SpmdProgram: local shapes, Mesh* nodes ─► joined ─► one_program ─► passes
//           ─► expand ─► Program over devices
//
// The SPMD program has one node for all devices, however many they are, and so have the passes
// between. `expand` copies nodes to each device and makes collectives (ops/collectives) of Mesh*
// nodes.
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
  // by the number of a variable's state: the state that stands for its pieces (piece_pattern)
  std::map<std::int32_t, std::int32_t> pieces;
  std::map<std::int32_t, SpmdFlow> flows;  // by node: loops and branches whose sub-graphs are cut
  // for each node: the layout and local shape of its value, or why a collective is there; empty: it
  // serves the nodes beside it
  std::vector<std::string> notes;
  // a line for each collective: of which node, how many bytes, and why
  std::vector<std::string> told;
  std::vector<std::string> warnings;  // rules for dimensions that no tensor has
  // a line for each node of the program for whole tensors: its dimensions, layout and local shape
  std::vector<std::string> layouts;
};

/// A loop or a branch: an argument of a sub-graph is on all devices if its Input node is.
struct SpmdFlow {
  std::vector<std::shared_ptr<const SpmdProgram>> subs;
  std::vector<char> is_once = {};  // for each output
};

/// `homes`: where an engine keeps variables; null: nowhere. Variables that get pieces are added to
/// it. Throws invalid_argument, naming node, line, dimension and axis, for a layout that a tensor
/// of the program does not fit.
SpmdProgram to_spmd(const troupe::detail::Program& program, const Partitioning& partitioning,
                    VariableHomes* homes = nullptr);

/// The device of nodes that all devices of a mesh run.
inline constexpr const char* kEveryDevice = "mesh:every";

/// The state that stands for all pieces of a variable, on kEveryDevice; piece i has the name
/// `piece_name(pattern.name, i)`.
troupe::detail::StateSpec piece_pattern(const LaidVariable& variable);
std::string piece_name(const std::string& pattern, int device);

/// The SPMD program as an ordinary one, for passes: nodes that all devices run are on
/// kEveryDevice, and loops and branches hold their sub-graphs as they are cut.
troupe::detail::Program one_program(SpmdProgram spmd);

/// Copies each node of `one_program`, as passes left it, to each device. A node without a device
/// that takes a value of all devices runs on all, too: passes put nodes between others. Throws only
/// the errors of collectives.
troupe::detail::Program expand(const troupe::detail::Program& program, const Mesh& mesh);

}  // namespace troupe::mesh::detail
