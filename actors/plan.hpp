// Plans: what never changes between runs. A plan is a program cut into partitions, one a device,
// each flattened into arrays, so that delivering a token is two array indexings.
//
// Matching: every input of every node has a slot in the partition's record of values and every
// node a count of tokens still awaited; both are found by index. A run owns a record; the plan
// holds what the record starts from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <troupe/devices/kernel.hpp>
#include <troupe/ops/program.hpp>

namespace troupe {

/// Where an output's token goes.
struct Target {
  static constexpr std::int32_t kFetch = -1;
  static constexpr std::int32_t kRemote = -2;  // and below: slot names the send
  static constexpr std::int32_t kControl = -1; // slot of a control edge

  std::int32_t node = 0;  // of this partition, or kFetch, or kRemote
  std::int32_t slot = 0;  // value slot, kControl, fetch index, or index into sends
};

/// A cut edge's far end.
struct RemoteTarget {
  std::int32_t partition = 0;
  Target target;
};

struct PlanNode {
  Kernel* kernel = nullptr;
  std::int32_t first_input = 0;  // slot
  std::int32_t inputs = 0;
  std::int32_t outputs = 0;
  std::int32_t first_output = 0;  // into `output_targets`; controls follow the outputs
  std::int32_t awaited = 0;       // tokens, control ones included
  std::int32_t source = 0;        // node of the program, for errors
};

struct PartitionPlan {
  Device* device = nullptr;
  std::vector<PlanNode> nodes;
  std::vector<std::int32_t> output_targets;  // output o of node n: targets [x, y) with x at first_output + o
  std::vector<Target> targets;
  std::vector<std::int32_t> awaited;  // a run's counts start as a copy of this
  std::vector<std::int32_t> roots;    // nodes that await nothing
  std::vector<RemoteTarget> sends;
  struct Feed {
    std::int32_t index;  // among the caller's feeds
    std::vector<Target> targets;
  };
  std::vector<Feed> feeds;
  std::int32_t slots = 0;
  std::int32_t max_outputs = 0;
  std::vector<std::unique_ptr<Kernel>> kernels;
};

struct Plan {
  Program program;
  std::vector<PartitionPlan> partitions;
  std::vector<ValueSpec> feeds;
  std::vector<std::string> feed_names;
  std::int32_t fetches = 0;
};

/// Finds devices by name; throws not_found.
class DeviceFinder {
 public:
  virtual Device& find(const std::string& name) = 0;

 protected:
  ~DeviceFinder() = default;
};

/// Places every node (its constraint, its state's device, else the default), cuts the program and
/// makes the kernels. Throws what making a kernel throws, naming node and line.
Plan make_plan(Program program, DeviceFinder& devices, const std::string& default_device, StateStore& states);

}  // namespace troupe
