// What flight recorders have kept, as events and as a trace: all nodes on the asking node's clock.
#include <troupe/cluster/inspection_json.hpp>

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/actors/engine_impl.hpp>

namespace troupe {
namespace {

using json = nlohmann::json;

constexpr std::size_t kRing = 512;  // events that a recorder keeps, unless it traces

const char* name_of(RecordedEvent::Kind kind) {
  constexpr const char* names[] = {"turn", "kernel", "firing", "send", "receive"};
  return names[static_cast<std::size_t>(kind)];
}

struct Drawn {
  const NodeAnswer* node;
  const RecordedPlan* plan;
  const PartitionSnapshot* partition;
  const RecordedEvent* event;
  std::int64_t begin_ns;  // on this node's clock
  std::string name() const {
    if (event->kind == RecordedEvent::Kind::turn) return fmt::format("{} firings", event->tag);
    const auto it = std::lower_bound(plan->names.begin(), plan->names.end(), std::pair{event->node, std::string()});
    return it == plan->names.end() || it->first != event->node ? std::to_string(event->node) : it->second;
  }
};

std::vector<Drawn> all_of(const ClusterReport& report, std::uint64_t& dropped) {
  std::vector<Drawn> all;
  for (const NodeAnswer& a : report)
    for (const RecordedPlan& plan : a.report.recorded)
      for (const PartitionSnapshot& p : plan.partitions) {
        dropped += p.dropped_events;
        for (const RecordedEvent& e : p.events) all.push_back({&a, &plan, &p, &e, e.begin_ns - a.offset_ns});
      }
  std::stable_sort(all.begin(), all.end(), [](const Drawn& a, const Drawn& b) { return a.begin_ns < b.begin_ns; });
  return all;
}

}  // namespace

std::string events_json(const ClusterReport& report, std::int64_t since_ns, std::int64_t until_ns, std::size_t limit) {
  std::uint64_t dropped = 0;
  std::vector<Drawn> all = all_of(report, dropped);
  std::erase_if(all, [&](const Drawn& d) { return d.begin_ns < since_ns || d.begin_ns > until_ns; });
  const bool is_cut = all.size() > limit && limit > 0;
  if (all.size() > limit) {  // the latest
    dropped += all.size() - limit;
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(limit));
  }
  json j = {{"version", 1}, {"time_ns", epoch_ns()}, {"events", json::array()}, {"lost", json::array()}};
  for (const NodeAnswer& a : report)
    for (const RecordedPlan& plan : a.report.recorded)
      for (const PartitionSnapshot& p : plan.partitions) {
        std::int64_t until = is_cut ? all.front().begin_ns : INT64_MIN;
        if (p.dropped_events > 0 && p.events.size() >= kRing) until = std::max(until, p.events.front().begin_ns - a.offset_ns);  // all of a ring that was written over
        if (until != INT64_MIN && !p.events.empty()) j["lost"].push_back({{"node", a.member.name}, {"track", p.device + " of plan " + plan.name.text()}, {"until_ns", until}});
      }
  for (const Drawn& d : all)
    j["events"].push_back({{"t_ns", d.begin_ns}, {"dur_ns", d.event->length_ns}, {"node", d.node->member.name}, {"track", d.partition->device + " of plan " + d.plan->name.text()}, {"kind", name_of(d.event->kind)},
                           {"name", d.name()}, {"run", d.event->run}, {"tag", d.event->tag}, {"flow", d.event->flow == 0 ? std::string() : std::to_string(d.event->flow)}});
  j["dropped"] = dropped;
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

// A process a node, a track a partition; a send and its receive are the ends of an arrow.
std::string trace_json(const ClusterReport& report, std::int64_t since_ns) {
  std::uint64_t dropped = 0;
  std::vector<Drawn> all = all_of(report, dropped);
  std::erase_if(all, [&](const Drawn& d) { return d.begin_ns < since_ns; });
  auto events = json::array();
  std::map<const PartitionSnapshot*, std::pair<int, int>> tracks;
  std::set<std::uint64_t> sent, received;
  for (const Drawn& d : all) (d.event->kind == RecordedEvent::Kind::send ? sent : received).insert(d.event->flow);
  int process = 0;
  for (const NodeAnswer& a : report) {
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", ++process}, {"tid", 0}, {"args", {{"name", a.has_answered ? "node " + a.member.name : "node " + a.member.name + ": " + a.why}}}});
    int track = 0;
    for (const RecordedPlan& plan : a.report.recorded)
      for (const PartitionSnapshot& p : plan.partitions) {
        tracks.emplace(&p, std::pair{process, ++track});
        events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", process}, {"tid", track}, {"args", {{"name", p.device + " of plan " + plan.name.text()}}}});
      }
  }
  const std::int64_t origin = all.empty() ? 0 : all.front().begin_ns;
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  for (const Drawn& d : all) {
    const auto [pid, tid] = tracks.at(d.partition);
    const RecordedEvent& e = *d.event;
    const bool is_token = e.kind == RecordedEvent::Kind::send || e.kind == RecordedEvent::Kind::receive;
    const double at = us(d.begin_ns - origin), length = us(std::max<std::int64_t>(e.length_ns, is_token ? 500 : 1));
    events.push_back({{"ph", "X"}, {"name", is_token ? fmt::format("{} {}", name_of(e.kind), d.name()) : d.name()}, {"cat", name_of(e.kind)}, {"ts", at}, {"dur", length}, {"pid", pid}, {"tid", tid},
                      {"args", {{"run", e.run}, {e.kind == RecordedEvent::Kind::turn ? "fired" : "iteration", e.tag}}}});
    if (!is_token || !sent.contains(e.flow) || !received.contains(e.flow)) continue;
    json arrow = {{"ph", e.kind == RecordedEvent::Kind::send ? "s" : "f"}, {"name", "token"}, {"cat", "token"}, {"id", std::to_string(e.flow)}, {"ts", at + 0.2}, {"pid", pid}, {"tid", tid}};
    if (e.kind == RecordedEvent::Kind::receive) arrow["bp"] = "e";
    events.push_back(std::move(arrow));
  }
  const json j = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}, {"otherData", {{"begin_ns", std::to_string(origin)}, {"dropped", dropped}}}};
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace troupe
