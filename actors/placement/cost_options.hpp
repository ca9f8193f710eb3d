// What the cost model takes for granted, and what users may say of edges between nodes. In
// nanoseconds and bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Who decides where a node goes that no constraint decides for: nobody (the default device), or
/// the cost model.
enum class Placement : std::uint8_t { constraints, automatic };

/// What a device takes. The defaults are a few cores of a server.
struct DeviceCost {
  double flops_per_ns = 50;        // of matrix products, all cores together
  double bytes_per_ns = 10;        // of everything else: of the memory's bandwidth
  double op_ns = 100;              // of each firing, whatever it computes
  std::uint64_t memory_bytes = 0;  // 0: no limit
};

struct LinkCost {
  double latency_ns = 50'000;
  double bytes_per_ns = 1;
};

/// A link between two nodes as it was seen, either way.
struct LinkBetween {
  std::string a, b;  // nodes
  LinkCost cost;
};

struct CostOptions {
  DeviceCost device = {};
  // of those that differ, by name: `sim:0`, or in full
  std::vector<std::pair<std::string, DeviceCost>> devices = {};
  LinkCost between_nodes = {};          // where it is not measured
  std::vector<LinkBetween> links = {};  // of those that differ
  // ask the nodes how long messages take before the first plan that the cost model places
  bool measure_links = true;
  LinkCost between_devices = {.latency_ns = 2'000, .bytes_per_ns = 10};  // of one node
  double trips = 100;                                                    // of a loop
  std::int64_t extent = 32;                                              // an unknown one
};

/// Of edges between devices.
struct EdgeOptions {
  /// Sends f32 tensors to other nodes as bf16, rounded to the nearest, in half the bytes: three
  /// digits are left of them, and where a program is cut shows in its results. Scalars go as they
  /// are: they steer loops, and save nothing. One edge alone: `edge_as_bf16`.
  bool as_bf16 = false;
  /// What tokens of one edge and execution of a loop may hold on their way, in bytes, besides its
  /// window of iterations; tokens that are smaller than this and than 4 KiB are not counted. The
  /// oldest open iteration is never refused, nor is a token of any size on an edge that has none on
  /// its way.
  std::uint64_t bytes = 64 << 20;
  /// Iterations of a loop for which a device may have sent another what that is not done with,
  /// where `parallel_iterations` is less: if it sends it nothing in this loop but what is small, as
  /// a predicate or a counter (64 B, by its shape), and nothing in a loop within. So a device that
  /// others wait for need not wait for each of them. 0: `parallel_iterations` alone counts; at most
  /// 65,536.
  std::int32_t ahead = 1024;
};

}  // namespace troupe
