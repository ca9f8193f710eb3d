// What an engine says of itself: snapshots, and why a run whose time is up has not ended.
#include <troupe/actors/engine_impl.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {

// At first asks the run's partitions what they wait for, for the caller wants to know; the second time, soon after, ends the
// run with what they have said.
void EngineImpl::expire(std::uint64_t id) {
  constexpr auto kPatience = std::chrono::milliseconds(30);
  Ref<Run> run;
  std::shared_ptr<Inspection> inspection;
  std::vector<LeanRef<PartitionActor>> partitions;  // the run may end meanwhile, and the engine, which empties the troupe's own
  bool is_new, is_answered;
  {
    std::lock_guard lock(mutex_);
    auto it = live_.find(id);
    if (it == live_.end() || it->second->is_settled()) return;
    run = it->second;
    partitions = run->troupe->partitions;
    const auto here = static_cast<std::size_t>(std::count_if(partitions.begin(), partitions.end(), [](const auto& p) { return bool(p); }));
    auto& slot = expiring_[id];
    is_new = !slot;
    if (is_new)
      slot = std::make_shared<Inspection>(here, [this, id] { expire(id); });
    inspection = slot;
    is_answered = inspection->is_complete();
    if (is_new && !is_answered) remind_in(kPatience, id);
  }
  if (!is_new || is_answered) return time_out(*run, partitions, inspection->answers());
  std::size_t place = 0;
  for (const auto& partition : partitions)
    if (partition) partition->send(Inspect{inspection, place++});
}

void EngineImpl::time_out(Run& run, const std::vector<LeanRef<PartitionActor>>& partitions, const std::vector<PartitionSnapshot>& answers) {
  std::string text = "the run's time-out has passed";
  constexpr std::size_t kMost = 4;
  const std::vector<std::string> causes = diagnose(snapshot_of(run, partitions, answers));
  for (std::size_t i = 0; i < std::min(causes.size(), kMost); ++i) text += (i == 0 ? ": " : "; ") + causes[i];
  if (causes.size() > kMost) text += fmt::format("; and {} more", causes.size() - kMost);
  fail(run, Status(Code::deadline_exceeded, text));
}

RunSnapshot EngineImpl::snapshot_of(const Run& run, const std::vector<LeanRef<PartitionActor>>& partitions, const std::vector<PartitionSnapshot>& answers) {
  RunSnapshot s;
  s.run = run.info().id;
  s.step = run.info().step;
  s.for_so_long = std::chrono::steady_clock::now() - run.began;
  s.is_ending = run.is_settled();
  const Plan& plan = run.plan();
  for (std::size_t i = 0; i < plan.nodes.size(); ++i)
    if (static_cast<std::int32_t>(i) != plan.here) s.other_nodes.push_back(plan.nodes[i]);
  std::size_t place = 0;
  for (const auto& partition : partitions) {
    if (!partition) continue;
    PartitionSnapshot p = answers[place++];
    if (!p.has_answered) {
      p.device = partition->partition().plan().name;
      p.busy_with = partition->partition().busy_with();
    }
    std::erase_if(p.runs, [&](const RunPart& part) { return part.run != s.run; });
    s.partitions.push_back(std::move(p));
  }
  return s;
}

EngineSnapshot EngineImpl::snapshot(std::chrono::nanoseconds patience) {
  EngineSnapshot s;
  s.node = node();
  s.workers = pool_->size();
  {
    std::lock_guard lock(devices_mutex_);
    for (const auto& [name, device] : devices_) {
      const AllocatorCounters memory = device->allocator().counters();
      s.devices.push_back({full_name(name, node()), memory.in_use, memory.peak, memory.limit});
    }
  }
  std::vector<Ref<Run>> runs;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, run] : live_) runs.push_back(run);
  }
  std::sort(runs.begin(), runs.end(), [](const Ref<Run>& a, const Ref<Run>& b) { return a->info().id < b->info().id; });
  std::vector<std::shared_ptr<Inspection>> inspections;
  for (const Ref<Run>& run : runs) {
    const auto& partitions = run->troupe->partitions;
    const auto here = static_cast<std::size_t>(std::count_if(partitions.begin(), partitions.end(), [](const auto& p) { return bool(p); }));
    inspections.push_back(std::make_shared<Inspection>(here));
    std::size_t place = 0;
    for (const auto& partition : partitions)
      if (partition) partition->send(Inspect{inspections.back(), place++});
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto all_are_complete = [&] { return std::all_of(inspections.begin(), inspections.end(), [](const auto& i) { return i->is_complete(); }); };
  while (options_.deterministic && !all_are_complete() && pool_->step()) {}
  for (const auto& inspection : inspections) inspection->wait(std::max<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
  for (std::size_t i = 0; i < runs.size(); ++i) s.runs.push_back(snapshot_of(*runs[i], runs[i]->troupe->partitions, inspections[i]->answers()));
  return s;
}

}  // namespace troupe
