// Trainings that nodes of a cluster know by name: each with its driver, its progress and its
// checkpoints, whether the driver is there or not.
//
//   for (const TrainingRun& run : training_runs(node)) print(run.name, run.step, run.steps);
//
// Threads: any; it blocks until the nodes that are there have answered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

class ClusterNode;

struct TrainingRun {
  std::string name;
  std::string driver;  // the name of its node; empty: only checkpoints are known
  std::uint64_t epoch = 0;
  std::string state;                 // trains, recovers, ended; empty: no report
  std::int64_t step = 0, steps = 0;  // done; until it ends, 0: not known
  std::int64_t recoveries = 0;       // since its driver began
  std::int64_t checkpoint = -1;      // step of the newest one with a manifest; -1: none
  std::int64_t reported_ns = 0;      // time of the report, since the Unix epoch; 0: none
  std::vector<std::string> nodes;    // with replicas
  std::vector<std::string> keepers;  // nodes that have its checkpoints
};

/// By name, what the last driver's last report says. Not from within an actor.
std::vector<TrainingRun> training_runs(ClusterNode& node);

}  // namespace troupe
