// Instances of one SPMD plan: the program that all devices run stays one program, is compiled once,
// and each device runs an instance of it. See Note [Instances] in ../NOTES.md.
//
//   const std::string why = why_not_instances(program, mesh);   // empty: it can run by instances
//   Program one = by_instances(program, mesh);               // its size is the mesh's for no mesh
//
// Nodes that all devices run are on kInstances. Nodes that run once stay where they are. A value
// crosses between the two, and between instances, in an `Exchange` alone (actors/plan/): kInstances
// has no cut edges, so an instance has the same tables with other kernels where coordinates differ.
//
// Invariants: 1. values, and the order in which members are combined, are those of `expand`, bit
// for bit; 2. a node that reads coordinates, pieces of variables or an exchange is told its device
// by its kernel, all else is shared.
#pragma once

#include <string>
#include <utility>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::mesh::detail {

/// The device of the nodes that each instance runs.
inline constexpr const char* kInstances = "mesh:0";

/// The mesh, for the kernels of the nodes that carry it as `instances`.
class MeshAttr final : public troupe::detail::AttrObject {
 public:
  explicit MeshAttr(Mesh m) : mesh(std::move(m)) {}
  std::string text() const override { return text_of(mesh.axes()); }
  const Mesh mesh;
};

/// Says why a program, as passes left it after `one_program`, cannot run by instances; empty: it
/// can.
std::string why_not_instances(const troupe::detail::Program& program);
/// Makes the program of all instances and of the nodes that run once.
troupe::detail::Program by_instances(const troupe::detail::Program& program, const Mesh& mesh);

/// The number of nodes that devices of the mesh name.
int nodes_of(const Mesh& mesh);
/// The mesh of a program that `by_instances` made; null for any other one.
const Mesh* mesh_of_instances(const Graph& program);
/// True for a node whose kernel differs by instance (actors/plan/exchange.hpp makes it).
bool meets_others(const troupe::detail::Node& node);
/// The piece of a device, of a state that a node of kInstances names; other states as they are.
troupe::detail::StateSpec piece_of_instance(troupe::detail::StateSpec state, const Mesh& mesh,
                                            int instance);

}  // namespace troupe::mesh::detail
