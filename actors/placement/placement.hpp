// Placement: which device each node of a lowered program runs on.
//
// Devices have names such as `cpu:0`, on whatever node the name is said, and in full
// `/node:NAME/cpu:0` (constraint.hpp). An engine that is no node of a cluster knows the short ones
// only; for one that is, placement writes all names in full.
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
  std::vector<std::string> device;  // of each node
  std::string default_device;       // where a program of no nodes is
  // the strings that sites of a program from another node refer to
  std::shared_ptr<const void> keep;
  std::uint64_t edge_bytes = EdgeOptions{}.bytes;
  std::int32_t edge_ahead = EdgeOptions{}.ahead;
  std::shared_ptr<const PlanPart> part = nullptr;  // null: it is the whole program
};

}  // namespace detail

/// What is done to a state is done where that lives. Any other node goes to the device that its
/// constraint names; of several, to the default device, else to the first of the caller's node,
/// else of the node that is first by name. Without a constraint it goes to the default device or,
/// with `automatic`, where choose_devices.hpp says, which then chooses among several too. What only
/// moves tokens goes with what it serves: a Switch and an Exit with their producer; a loop variable
/// (Enter, Merge, NextIteration) where its next value is made; a constant Enter to every device
/// that uses it, so that the value crosses once an instance and not once an iteration. A function
/// that is not replaced by its body is called on one device; what its body constrains goes where
/// that says.
struct PlacementOptions {
  std::string default_device;
  // the caller's node in a cluster, whose names are then in full; empty: there is none
  std::string here = {};
  // what has no constraint goes to one of these instead, drawn from the seed
  std::vector<std::string> scatter = {};
  std::uint64_t seed = 0;
  Placement policy = Placement::constraints;
  std::vector<NodeLabels> nodes = {};  // of the cluster, with the caller's
  // to choose from; empty: the default device and cpu:0 of every node
  std::vector<std::string> devices = {};
  CostOptions costs = {};
  Measured measured = {};
  EdgeOptions edges = {};
  /// States that have a home already, by name: what their constraint allowed when they were first
  /// used.
  std::map<std::string, std::string> homes = {};
};

/// The devices to choose from, in full: the default device first.
std::vector<std::string> devices_to_choose_from(const PlacementOptions& options);
/// Where a state lives. Throws as `place` does.
std::string home_of(const StateSpec& state, const PlacementOptions& options);
/// Throws failed_precondition for a variable that lived on a node that is gone, where its
/// constraint would have it made on another: its value is lost, and its initial one is not to be
/// taken for it.
void check_not_lost(const StateSpec& state, const PlacementOptions& options);

/// Throws invalid_argument for a constraint that means nothing, that no device satisfies or that
/// contradicts one it is colocated with, naming the node and the user's line; resource_exhausted as
/// `choose_devices` does.
Placed place(Program program, const PlacementOptions& options);

}  // namespace troupe
