#include <troupe/cluster/training/training_runs.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include <troupe/cluster/node/checkpoint_service.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

std::vector<TrainingRun> training_runs(ClusterNode& node) {
  std::map<std::string, TrainingRun> all;
  for (const auto& [name, report] : node.checkpoints().look())
    for (const TrainingsReport::Entry& e : report.trainings) {
      TrainingRun& run = all[e.training];
      run.name = e.training;
      if (!e.checkpoints.empty()) {
        run.keepers.push_back(name);
        run.checkpoint = std::max(run.checkpoint, e.checkpoints.back().step);
      }
      if (e.epoch > run.epoch) {
        run.epoch = e.epoch;
        run.driver = e.driver;
        run.reported_ns = 0;
        run.state.clear();
      }
      const DriverProgress& p = e.progress;
      if (e.epoch < run.epoch || p.time_ns <= run.reported_ns) continue;
      run.state = p.state;
      run.step = p.step;
      run.steps = p.steps;
      run.recoveries = p.recoveries;
      run.reported_ns = p.time_ns;
      run.nodes = p.nodes;
    }
  std::vector<TrainingRun> runs;
  for (auto& [name, run] : all) {
    if (run.reported_ns == 0) run.step = std::max<std::int64_t>(0, run.checkpoint);
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace troupe
