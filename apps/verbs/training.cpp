// troupe runs, troupe attach: the trainings of a cluster, from any of its nodes. As `cancel`, each
// is a node of that cluster for as long as it takes.
#include <troupe/apps/verbs/verbs.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/apps/verbs/service.hpp>
#include <troupe/apps/verbs/terminal.hpp>
#include <troupe/cluster/node/node.hpp>
#include <troupe/cluster/training/training_runs.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe::verbs {
namespace {

constexpr int kSilent = 10;  // seconds without a report until a driver may be lost

double seconds_since(std::int64_t ns) {
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return std::max(0.0, static_cast<double>(now.count() - ns) * 1e-9);
}

std::string step_text(const TrainingRun& run) {
  return run.steps > 0 ? fmt::format("{}/{}", run.step, run.steps) : std::to_string(run.step);
}

std::string state_of(const TrainingRun& run) {
  if (run.state.empty()) return "-";
  if (run.state != "ended" && seconds_since(run.reported_ns) > kSilent) return "silent";
  return run.state;
}

// A line that differs from the last one if there is news.
std::string line_of(const TrainingRun& run) {
  std::string line = fmt::format("{}: step {}, {}", run.name, step_text(run), state_of(run));
  if (run.checkpoint >= 0) line += fmt::format(", checkpoint {}", run.checkpoint);
  if (run.recoveries > 0) line += fmt::format(", recoveries {}", run.recoveries);
  if (!run.driver.empty()) line += fmt::format(", driver {} (epoch {})", run.driver, run.epoch);
  if (!run.nodes.empty()) line += fmt::format(", on {}", fmt::join(run.nodes, " "));
  if (state_of(run) == "silent")
    line += fmt::format("; no report for {} s, so its driver may be lost: start it again anywhere",
                        kSilent);
  return line;
}

}  // namespace

int runs(const TrainingFlags& flags) {
  as_guest("runs", flags.guest, [&](ClusterNode& here) {
    const std::vector<TrainingRun> all = training_runs(here);
    if (flags.json) {
      nlohmann::json rows = nlohmann::json::array();
      for (const TrainingRun& r : all)
        rows.push_back({{"name", r.name},
                        {"driver", r.driver},
                        {"epoch", r.epoch},
                        {"state", state_of(r)},
                        {"step", r.step},
                        {"steps", r.steps},
                        {"checkpoint", r.checkpoint},
                        {"recoveries", r.recoveries},
                        {"nodes", r.nodes},
                        {"keepers", r.keepers}});
      fmt::print("{}\n", json_text(rows));
      return;
    }
    if (all.empty()) {
      fmt::print("no node knows a training by name (TrainingOptions::name)\n");
      return;
    }
    Table table({"RUN", "STATE", "STEP", "CHECKPOINT", "RECOVERIES", "DRIVER", "EPOCH", "NODES"});
    for (const TrainingRun& r : all)
      table.add({r.name, state_of(r), step_text(r),
                 r.checkpoint < 0 ? std::string("-") : std::to_string(r.checkpoint),
                 std::to_string(r.recoveries), r.driver.empty() ? std::string("-") : r.driver,
                 std::to_string(r.epoch), fmt::format("{}", fmt::join(r.nodes, ","))});
    fmt::print("{}", table.text());
  });
  return 0;
}

int attach(const TrainingFlags& flags) {
  const sigset_t endings = block_endings();
  as_guest("attach", flags.guest, [&](ClusterNode& here) {
    const timespec second{1, 0};
    for (std::string before;;) {
      const std::vector<TrainingRun> all = training_runs(here);
      const auto run = std::find_if(all.begin(), all.end(),
                                    [&](const TrainingRun& r) { return r.name == flags.name; });
      if (run == all.end()) {
        std::vector<std::string> names;
        for (const TrainingRun& r : all) names.push_back(r.name);
        throw Error(
            Code::not_found,
            fmt::format("no node knows a training '{}'; there are: {}", flags.name,
                        names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
      }
      if (const std::string line = line_of(*run); line != before) {
        fmt::print("{}\n", printable(line));
        std::fflush(stdout);
        before = line;
      }
      if (run->state == "ended") return;
      if (sigtimedwait(&endings, nullptr, &second) >= 0) return;
    }
  });
  return 0;
}

}  // namespace troupe::verbs
