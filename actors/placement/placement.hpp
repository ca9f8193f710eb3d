// Placement: which device each node of a lowered program runs on.
//
// A device has a short name such as `cpu:0`, on the node that uses the name, and a full one,
// `/node:NAME/cpu:0` (constraint.hpp). Without a cluster an engine has short names only. In a
// cluster placement writes all names in full.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <troupe/actors/placement/constraint.hpp>
#include <troupe/actors/placement/cost_model.hpp>
#include <troupe/ops/graph/program.hpp>

namespace troupe {

struct PlanPart;

namespace detail {

struct Placed {
  Program program;
  std::vector<std::string> device;  // by node
  std::string default_device;       // the device of a program without nodes
  // the strings that sites of a program from another node refer to
  std::shared_ptr<const void> keep;
  std::uint64_t edge_bytes = EdgeOptions{}.bytes;
  std::int32_t edge_ahead = EdgeOptions{}.ahead;
  std::shared_ptr<const PlanPart> part = nullptr;  // null: it is the whole program
};

}  // namespace detail

/// Options of `place`, which follows these rules:
/// - An operation on a state goes to the state's device.
/// - Any other node goes to the device that its constraint allows. If there are several, these are
///   preferred in order: the default device, the first on the caller's node, the first on the node
///   whose name is first.
/// - A node without a constraint goes to the default device. With `automatic`, choose_devices.hpp
///   chooses its device, and also among several allowed devices.
/// - A node that only moves tokens goes with the node that it serves: a Switch and an Exit with
///   their producer; a loop variable (Enter, Merge, NextIteration) to the device that makes its
///   next value; a constant Enter to every device that uses it, so that the value crosses once an
///   instance and not once an iteration.
/// - A function that is not inlined is called on one device. Nodes of its body with constraints go
///   to the devices that these allow.
struct PlacementOptions {
  std::string default_device;
  // the caller's node; device names are then in full. Empty: there is no cluster
  std::string here = {};
  // a node without a constraint goes to one of these instead, drawn from the seed
  std::vector<std::string> scatter = {};
  std::uint64_t seed = 0;
  Placement policy = Placement::constraints;
  std::vector<NodeLabels> nodes = {};  // the cluster's nodes, with the caller's
  // the devices to choose from; empty: the default device and cpu:0 of every node
  std::vector<std::string> devices = {};
  CostOptions costs = {};
  Measured measured = {};
  EdgeOptions edges = {};
  /// Homes of states that have been used before, by name. Their constraints allowed these then.
  std::map<std::string, std::string> homes = {};
};

/// Returns the full names of the devices to choose from, the default device first.
std::vector<std::string> devices_to_choose_from(const PlacementOptions& options);
/// Returns the device of a state. Throws the errors of `place`.
std::string home_of(const StateSpec& state, const PlacementOptions& options);
/// Throws failed_precondition if the variable was on a node that is gone, and its constraint allows
/// another node: its value is lost, and must not be replaced by the initial value silently.
void check_not_lost(const StateSpec& state, const PlacementOptions& options);

/// Places a program. Throws invalid_argument, naming the node and the user's line, for a constraint
/// that is invalid, that no device satisfies, or that contradicts the constraint of a colocated
/// node. Throws resource_exhausted like `choose_devices`.
Placed place(Program program, const PlacementOptions& options);

}  // namespace troupe
