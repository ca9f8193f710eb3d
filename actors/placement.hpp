// Placement: which device each node of a lowered program runs on.
//
// Devices have names such as `cpu:0`, on whatever node the name is said, and in full `/node:NAME/cpu:0`. An engine
// that is no node of a cluster knows the short ones only; for one that is, placement writes all names in full.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/ops/program.hpp>

namespace troupe {

/// `worker1` of `/node:worker1/cpu:0`; empty where no node is named.
std::string_view node_of(std::string_view device);
/// `cpu:0` of it, and of `/node:worker1` alone.
std::string_view short_name(std::string_view device);
/// The name in full, for somebody on `node`; as it is where `node` is empty, or the name.
std::string full_name(std::string_view device, std::string_view node);

struct Placed {
  Program program;
  std::vector<std::string> device;  // of each node
  std::string default_device;       // where a program of no nodes is
  std::shared_ptr<const void> keep; // the strings that sites of a program from another node refer to
};

/// A node goes where its constraint says, else where its state lives, else to the default device. What
/// only moves tokens goes with what it serves: a Switch and an Exit with their producer; a loop
/// variable (Enter, Merge, NextIteration) where its next value is made; a constant Enter to every
/// device that uses it, so that the value crosses once an instance and not once an iteration.
struct PlacementOptions {
  std::string default_device;
  std::string here = {};                  // the caller's node in a cluster, whose names are then in full; empty: there is none
  std::vector<std::string> scatter = {};  // what has no constraint goes to one of these instead, drawn from the seed
  std::uint64_t seed = 0;
};

/// Throws invalid_argument if constraint and state contradict.
Placed place(Program program, const PlacementOptions& options);

}  // namespace troupe
