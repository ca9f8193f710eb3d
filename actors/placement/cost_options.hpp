// Options of the cost model, and of edges between nodes. Units: nanoseconds and bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// The device of a node without a constraint: `constraints` uses the default device, `automatic`
/// the cost model's choice.
enum class Placement : std::uint8_t { constraints, automatic };

/// Costs of a device. The defaults fit a few cores of a server.
struct DeviceCost {
  double flops_per_ns = 50;        // matrix products, on all cores together
  double bytes_per_ns = 10;        // all other work: the memory's bandwidth
  double op_ns = 100;              // added to each firing
  std::uint64_t memory_bytes = 0;  // 0: no limit
};

struct LinkCost {
  double latency_ns = 50'000;
  double bytes_per_ns = 1;
};

/// The measured cost of a link between two nodes, in both directions.
struct LinkBetween {
  std::string a, b;  // nodes
  LinkCost cost;
};

struct CostOptions {
  DeviceCost device = {};
  // devices with other costs, by name: `sim:0`, or in full
  std::vector<std::pair<std::string, DeviceCost>> devices = {};
  LinkCost between_nodes = {};          // links that are not measured
  std::vector<LinkBetween> links = {};  // links with other costs
  // measure the links between nodes before the first plan that the cost model places
  bool measure_links = true;
  // between devices of one node
  LinkCost between_devices = {.latency_ns = 2'000, .bytes_per_ns = 10};
  double trips = 100;        // iterations of a loop
  std::int64_t extent = 32;  // replaces an unknown extent
};

/// Options of edges between devices.
struct EdgeOptions {
  /// Sends f32 tensors to other nodes as bf16, rounded to the nearest, in half the bytes. About
  /// three digits remain, so results depend on the cuts of the program. Scalars are sent exactly,
  /// because they control loops and save nothing. For one edge alone: `edge_as_bf16`.
  bool as_bf16 = false;
  /// The limit of bytes in flight on one edge in one execution of a loop, besides its iteration
  /// window. Tokens that are smaller than this and than 4 KiB are not counted. Two
  /// tokens are always admitted: that of the oldest open iteration, and one of any size if the edge
  /// has none in flight.
  std::uint64_t bytes = 64 << 20;
  /// The iterations of a loop for which a device may have tokens in flight to another device, if
  /// this is more than `parallel_iterations`. It applies if the device sends the other one only
  /// small tokens in this loop, such as a predicate or a counter (64 B, by its shape), and none in
  /// a loop within. So a device need not wait for each device that waits for it. 0: the limit is
  /// `parallel_iterations`; at most 65,536.
  std::int32_t ahead = 1024;
};

}  // namespace troupe
