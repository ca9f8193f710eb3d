#include <troupe/cluster/protocol/node_report.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include <troupe/actors/placement/constraint.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

namespace detail {

Error why_not_described(const PlanName& plan, const ClusterReport& now) {
  std::string known;
  bool is_part_known = false;
  for (const NodeAnswer& a : now)
    for (const PlanSnapshot& p : a.report.engine.plans) {
      if (p.name.owner == a.member.name) known += (known.empty() ? "" : ", ") + p.name.text();
      else is_part_known = is_part_known || p.name == plan;
    }
  // An owner that answers has dropped the plan, and will notify the participants.
  const auto owner = std::find_if(now.begin(), now.end(),
                                  [&](const NodeAnswer& a) { return a.member.name == plan.owner; });
  if (is_part_known && owner != now.end() && !owner->has_answered)
    return Error(Code::unavailable,
                 fmt::format("node '{}', which alone knows all of plan '{}', does not answer: {}",
                             plan.owner, plan.text(), owner->why));
  return Error(Code::not_found,
               fmt::format("there is no plan '{}'; {}", plan.text(),
                           known.empty() ? "there are none" : "there are " + known));
}

std::string run_name(const RunSnapshot& run) {
  return fmt::format("{}/{}", run.plan.owner, run.run);
}

}  // namespace detail

static void add_moved(RunSnapshot& run, const std::map<std::string, const NodeAnswer*>& nodes) {
  std::set<std::string> of_run;
  for (const PartitionSnapshot& p : run.partitions) of_run.emplace(node_of(p.device));
  // its answer may be older than tokens that are in flight
  for (const RunSnapshot::Silent& s : run.silent) of_run.insert(s.node);
  run.moved.clear();
  run.to_move.clear();
  for (const std::string& name : of_run) {
    const auto it = nodes.find(name);
    if (it == nodes.end()) continue;
    for (const PeerReport& p : it->second->report.peers) {
      if (!of_run.contains(p.node)) continue;
      const std::uint64_t unsent = p.queued + p.unacknowledged;
      run.moved[p.node] += p.received + p.sent - std::min(p.sent, unsent);
      run.to_move[p.node] += unsent;
      run.to_move[name] += unsent;
    }
  }
}

namespace detail {

std::vector<RunSnapshot> joined_runs(const ClusterReport& report) {
  struct Joined {
    RunSnapshot run;
    std::set<std::string> left;           // nodes that have left the run,
    std::vector<PartitionSnapshot> over;  // and the owner's report of them
  };
  std::map<std::tuple<std::uint64_t, std::string, std::uint64_t>, Joined> runs;
  std::map<std::string, const NodeAnswer*> nodes;
  for (const NodeAnswer& node : report) nodes.emplace(node.member.name, &node);
  for (const NodeAnswer& node : report) {
    if (!node.has_answered) continue;
    for (const RunSnapshot& said : node.report.engine.runs) {
      RunSnapshot part = said;
      const bool is_shared = part.number != 0;
      const auto of_others = std::stable_partition(
          part.partitions.begin(), part.partitions.end(),
          [&](const PartitionSnapshot& p) { return node_of(p.device) == node.member.name; });
      const std::vector<PartitionSnapshot> over(of_others, part.partitions.end());
      part.partitions.erase(of_others, part.partitions.end());
      auto [it, is_new] = runs.try_emplace(
          {is_shared ? part.owner : 0, is_shared ? std::string() : node.member.name,
           is_shared ? part.number : part.run},
          Joined{part, {}, {}});
      if (part.plan.owner == node.member.name)
        for (const PartitionSnapshot& p : over)
          it->second.left.emplace(node_of(p.device)), it->second.over.push_back(p);
      RunSnapshot& run = it->second.run;
      if (is_new) continue;
      if (part.is_owned) run.run = part.run, run.is_owned = true, run.step = part.step;
      run.for_so_long = std::max(run.for_so_long, part.for_so_long);
      run.is_ending = run.is_ending || part.is_ending;
      run.partitions.insert(run.partitions.end(), part.partitions.begin(), part.partitions.end());
      run.other_nodes.insert(run.other_nodes.end(), part.other_nodes.begin(),
                             part.other_nodes.end());
    }
  }
  std::vector<RunSnapshot> all;
  for (auto& [key, joined] : runs) {
    RunSnapshot& run = joined.run;
    // A node's own report may be older than its leaving, so it is replaced.
    std::erase_if(run.partitions, [&](const PartitionSnapshot& p) {
      return joined.left.contains(std::string(node_of(p.device)));
    });
    run.partitions.insert(run.partitions.end(), joined.over.begin(), joined.over.end());
    // A node that answered without this run has done its part, or has not got the BeginRun yet.
    const std::set<std::string> others(run.other_nodes.begin(), run.other_nodes.end());
    run.other_nodes.clear();
    run.is_whole =
        std::all_of(run.partitions.begin(), run.partitions.end(),
                    [](const PartitionSnapshot& p) { return p.has_answered && !p.runs.empty(); }) &&
        std::all_of(others.begin(), others.end(), [&](const std::string& other) {
          return std::any_of(
              run.partitions.begin(), run.partitions.end(),
              [&](const PartitionSnapshot& p) { return node_of(p.device) == other; });
        });
    for (const std::string& other : others) {
      auto it = nodes.find(other);
      if (joined.left.contains(other) || (it != nodes.end() && it->second->has_answered)) continue;
      run.silent.push_back(
          {other, it == nodes.end() ? "it is not in the cluster" : it->second->why});
    }
    add_moved(run, nodes);
    all.push_back(std::move(run));
  }
  return all;
}

}  // namespace detail

}  // namespace troupe
