// Inspections over nodes: a node's question to another, the answer, and conclusions from all
// answers.
//
//   ClusterReport now = node.inspect({}, 500ms);            // every node, or why it did not answer
//   for (const RunSnapshot& run : joined_runs(now)) ...     // runs over several nodes as one
//   for (const Diagnosis& v : node.diagnose()) ...  // runs that hang, and why; else empty
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/observe/hang_diagnosis.hpp>
#include <troupe/actors/plan/plan_description.hpp>
#include <troupe/cluster/membership/membership.hpp>
#include <troupe/cluster/transport/transport.hpp>

namespace troupe {

struct NodeQuestion {
  enum class Kind : std::uint8_t {
    state,     // NodeReport::engine and what the process takes
    counters,  // actors and edges of a plan: NodeReport::partitions
    plan,      // NodeReport::plan
    // events of all plans' flight recorders since `since_ns`: NodeReport::recorded
    events,
    // also records firings, or not any more; for 75 s at most since `tracer` asked last
    trace_on,
    trace_off,
    scalars,  // training records of a program there: NodeReport::scalars
  };
  Kind kind = Kind::state;
  PlanName plan = {};         // counters and plan: which
  std::int64_t since_ns = 0;  // since the Unix epoch, by the clock of the node that asks
  // trace_on and trace_off: the trace, by its number at the node that asks
  std::uint64_t tracer = 0;
  std::int64_t since_step = INT64_MIN;  // scalars: of steps above it
};

namespace detail {

/// Events from the recorders of a plan's partitions.
struct RecordedPlan {
  PlanName name;
  std::vector<PartitionSnapshot> partitions;
  // names of the program's nodes that occur
  std::vector<std::pair<std::int32_t, std::string>> names;
};

/// A peer as its transport sees it.
struct PeerReport {
  std::string node;
  std::uint64_t sent = 0, received = 0;  // bytes, since it was connected
  // bytes now: not given to the network, and not known to have arrived
  std::uint64_t queued = 0, unacknowledged = 0;
  std::int64_t round_trip_ns = 0;  // the last ping's; 0: not known
};

}  // namespace detail

struct NodeReport {
  std::string name;
  std::uint64_t incarnation = 0;
  std::string version;  // version of Troupe
  // equal for nodes with one clock: the boot of the kernel; empty: a clock of its own
  std::string host;
  std::int64_t received_ns = 0, answered_ns = 0;  // by its clock, since the Unix epoch
  std::uint64_t cpu_ns = 0;                       // CPU time of the process so far
  double cpu = 0;                                 // cores busy since the last request
  std::int32_t cores = 0;
  std::uint64_t resident = 0, total = 0;  // bytes: of the process, of the machine
  TransportCounters transport;
  std::vector<detail::PeerReport> peers;
  EngineSnapshot engine;
  std::vector<PartitionSnapshot> partitions;
  detail::PlanDescription plan;
  std::vector<detail::RecordedPlan> recorded;
  static constexpr std::size_t kMostScalars = 4 << 20;  // bytes that others get, names aside
  std::string scalars;  // Records::json; empty: no program records there
};

namespace detail {

/// A node as the asking node knows it, and its answer.
struct NodeAnswer {
  Member member;
  std::int64_t since_ns = 0;  // in that state
  bool has_answered = false;
  std::string why;  // it has not answered
  std::int64_t round_trip_ns = 0;
  std::int64_t offset_ns = 0;  // its clock less this one's (clock_offset.hpp)
  NodeReport report;
};

}  // namespace detail

using ClusterReport = std::vector<detail::NodeAnswer>;

namespace detail {

/// Runs over several nodes once each, with all their partitions and those of their nodes that have
/// not answered; the number is their owner's. In the order of nodes and numbers.
std::vector<RunSnapshot> joined_runs(const ClusterReport& report);
/// Returns the reason why no node has described a plan, by the reports of all nodes. not_found,
/// with the plans there are; or unavailable, if participants of the plan are there and its owner,
/// which alone knows all of it, does not answer.
Error why_not_described(const PlanName& plan, const ClusterReport& now);
/// Returns `a/17`: the run's owner, taken from its plan, and its number there, on every node.
std::string run_name(const RunSnapshot& run);

}  // namespace detail

}  // namespace troupe
