// Instances of the SPMD part of a plan over a mesh (ops/mesh/instances.hpp).
//
//   auto once = std::make_shared<const Plan>(make_plan(...));   // compiled: one program, one part
//   if (has_instances(*once)) Plan all = make_instances(once, devices, states);
//
// The compiled plan has one partition for all devices, whose kernels are those of the host. An
// instance is a partition on its device with the tables of that one. Kernels are shared, but for
// those that know the device: pieces of variables, coordinates, exchanges, and all on a device
// with streams of its own. Each node of a cluster makes the instances on its own devices.
//
// Ownership: the plan of all instances keeps the compiled one, whose kernels it shares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <troupe/actors/plan/plan.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::detail {

/// True for a plan whose partition of all devices has no instances yet.
bool has_instances(const Plan& plan);
/// True if this device's name stands for all devices of the plan's mesh.
bool is_of_instances(std::string_view device);
/// True if all devices of the mesh run this node of the program, each in an instance of the plan.
bool is_of_instances(const Plan& plan, std::int32_t node);
/// True if some devices of the mesh are on other nodes than `here`.
bool spans_nodes(const mesh::Mesh& mesh, const std::string& here);

/// True if no edge leads from or to the nodes of all devices, but from feeds and constants. False:
/// placement put a node of a loop or branch elsewhere, and nodes must be copied to the devices.
bool are_instances_closed(const Placed& placed);

/// Makes the plan that runs: its time is the number of this node's devices times the size of the
/// tables. Throws not_found for a device that is not there, and the errors of making a kernel,
/// naming node and line.
Plan make_instances(const std::shared_ptr<const Plan>& compiled, DeviceFinder& devices,
                    StateStore& states);
/// Calls `use` for each operation on a state: its number in the program, the index in Plan::nodes
/// of the cluster node where the state lives, and the state. For instances: each device's piece.
void each_state(
    const Plan& plan,
    const std::function<void(std::int32_t id, std::int32_t on, const StateSpec& state)>& use);
/// True if devices of a node, an index into Plan::nodes, run instances.
bool has_instances_on(const Plan& plan, std::int32_t node);
/// Fails all that the instances of a plan wait for in a run that has failed; nothing for others.
void cancel_exchanges(const Plan& plan, std::uint64_t run);

}  // namespace troupe::detail
