// Events of flight recorders as events and as a trace: all nodes on the asking node's clock.
#include <troupe/actors/runtime/clock.hpp>
#include <troupe/cluster/inspect/inspection_json.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/executor/trace_file.hpp>
#include <troupe/actors/observe/recorder.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe {
namespace {

using json = nlohmann::json;

struct Drawn {
  const NodeAnswer* node;
  const RecordedPlan* plan;
  const PartitionSnapshot* partition;
  const RecordedEvent* event;
  std::int64_t begin_ns;  // on this node's clock
  std::string name() const { return title_of(*event, name_of_node()); }
  std::string run() const { return run_name(plan->name.owner, event->run); }
  std::string name_of_node() const {
    const auto it = std::lower_bound(plan->names.begin(), plan->names.end(),
                                     std::pair{event->node, std::string()});
    return it == plan->names.end() || it->first != event->node ? std::to_string(event->node)
                                                               : it->second;
  }
};

std::vector<Drawn> all_of(const ClusterReport& report) {
  std::vector<Drawn> all;
  for (const NodeAnswer& a : report)
    for (const RecordedPlan& plan : a.report.recorded)
      for (const PartitionSnapshot& p : plan.partitions)
        for (const RecordedEvent& e : p.events)
          all.push_back({&a, &plan, &p, &e, e.begin_ns - a.offset_ns});
  std::stable_sort(all.begin(), all.end(),
                   [](const Drawn& a, const Drawn& b) { return a.begin_ns < b.begin_ns; });
  return all;
}

/// Counts of missing events, and the time since when none is missing: a recorder that has
/// overwritten something has all later events.
struct Missing {
  std::uint64_t lost = 0, thinned = 0;
  std::int64_t whole_since_ns;
};
Missing missing_in(const ClusterReport& report, std::int64_t since_ns) {
  Missing m{.whole_since_ns = since_ns};
  for (const NodeAnswer& a : report)
    for (const RecordedPlan& plan : a.report.recorded)
      for (const PartitionSnapshot& p : plan.partitions) {
        m.lost += p.dropped_events;
        m.thinned += p.thinned_events;
        if (p.dropped_events > 0 && !p.events.empty())
          m.whole_since_ns =
              std::max(m.whole_since_ns,
                       p.events.front().begin_ns + p.events.front().length_ns - a.offset_ns);
      }
  return m;
}

}  // namespace

std::string events_json(const ClusterReport& report, std::int64_t asked_ns, std::int64_t since_ns,
                        std::int64_t until_ns, std::size_t limit) {
  const Missing missing = missing_in(report, since_ns);
  std::uint64_t dropped = missing.lost + missing.thinned;
  std::vector<Drawn> all = all_of(report);
  std::erase_if(all, [&](const Drawn& d) {
    return d.begin_ns + d.event->length_ns < since_ns || d.begin_ns > until_ns;
  });
  const bool is_cut = all.size() > limit && limit > 0;
  if (all.size() > limit) {  // the latest
    dropped += all.size() - limit;
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(limit));
  }
  json j = {{"version", 2},          {"time_ns", epoch_ns()},
            {"asked_ns", asked_ns},  {"events", json::array()},
            {"lost", json::array()}, {"silent", json::array()}};
  for (const NodeAnswer& a : report)
    for (const RecordedPlan& plan : a.report.recorded)
      for (const PartitionSnapshot& p : plan.partitions) {
        const std::string track = p.device + " of plan " + plan.name.text();
        if (!p.has_answered) j["silent"].push_back({{"node", a.member.name}, {"track", track}});
        std::int64_t until = is_cut ? all.front().begin_ns : INT64_MIN;
        if (p.whole_since_ns - a.offset_ns > since_ns && p.whole_since_ns > 0)
          until = std::max(until, p.whole_since_ns - a.offset_ns);
        if (until != INT64_MIN && !p.events.empty())
          j["lost"].push_back({{"node", a.member.name}, {"track", track}, {"until_ns", until}});
      }
  for (const Drawn& d : all)
    j["events"].push_back(
        {{"t_ns", d.begin_ns},
         {"dur_ns", d.event->length_ns},
         {"node", d.node->member.name},
         {"track", d.partition->device + " of plan " + d.plan->name.text()},
         {"kind", name_of(d.event->kind)},
         {"name", d.name()},
         {"actor", d.event->node < 0 ? std::string()
                                     : fmt::format("{}:{}", d.plan->name.text(), d.event->node)},
         {"run", d.run()},
         {"tag", d.event->tag},
         {"flow", d.event->flow == 0 ? std::string() : std::to_string(d.event->flow)}});
  j["dropped"] = dropped;
  return json_text(j);
}

// A process a node, a track a partition, or several where things overlap; a send and its receive
// are the ends of an arrow. Text from the beginning: there may be a million events.
std::string trace_json(const ClusterReport& report, std::int64_t since_ns, std::int64_t until_ns,
                       std::size_t limit) {
  std::vector<Drawn> all = all_of(report);
  std::erase_if(all, [&](const Drawn& d) { return d.begin_ns < since_ns; });
  Missing missing = missing_in(report, since_ns);
  if (all.size() > limit) {
    missing.lost += all.size() - limit;
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(limit));
    if (!all.empty())
      missing.whole_since_ns = std::max(missing.whole_since_ns, all.front().begin_ns);
  }
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  auto add = [&, is_first = true](const std::string& event) mutable {
    if (!std::exchange(is_first, false)) out += ",\n";
    out += event;
  };
  std::set<std::uint64_t> sent, received;
  std::map<const PartitionSnapshot*, std::vector<const RecordedEvent*>> events;
  for (const Drawn& d : all) {
    if (d.event->flow != 0)
      (d.event->kind == RecordedEvent::Kind::send ? sent : received).insert(d.event->flow);
    events[d.partition].push_back(d.event);
  }
  const std::int64_t origin = all.empty() ? since_ns : all.front().begin_ns;
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  int pid = 0;
  std::uint64_t overlapping = 0;
  auto nodes = json::array();
  for (const NodeAnswer& a : report) {
    if (a.has_answered) nodes.push_back(a.member.name);
    add(json_text({{"ph", "M"},
                   {"name", "process_name"},
                   {"pid", ++pid},
                   {"tid", 0},
                   {"args",
                    {{"name", a.has_answered ? "node " + a.member.name
                                             : "node " + a.member.name + ": " + a.why}}}}));
    std::size_t tracks = 0;
    for (const RecordedPlan& plan : a.report.recorded) {
      std::map<std::int32_t, std::string> names;  // quoted
      for (const PartitionSnapshot& p : plan.partitions) {
        std::size_t lanes = 0;
        const auto name_lane = [&] {
          add(json_text({{"ph", "M"},
                         {"name", "thread_name"},
                         {"pid", pid},
                         {"tid", tracks + ++lanes},
                         {"args", {{"name", p.device + " of plan " + plan.name.text()}}}}));
        };
        name_lane();
        for (const Slice& s : slices(std::move(events[&p]))) {
          while (lanes <= s.lane && lanes < Slice::kMost) name_lane();
          const RecordedEvent& e = *s.event;
          const bool is_token = e.kind == RecordedEvent::Kind::send ||
                                e.kind == RecordedEvent::Kind::receive,
                     is_turn = e.kind == RecordedEvent::Kind::turn;
          const Drawn drawn{&a, &plan, &p, &e, e.begin_ns - a.offset_ns};
          std::string name;
          if (is_turn) {
            name = json_text(drawn.name());
          } else {
            std::string& known = names[e.node];
            if (known.empty()) known = json_text(drawn.name_of_node());
            const char* before = is_token || e.kind == RecordedEvent::Kind::copy ? name_of(e.kind)
                                 : e.kind == RecordedEvent::Kind::wait           ? "waits:"
                                 : e.kind == RecordedEvent::Kind::failure        ? "failed:"
                                                                                 : "";
            name = e.node < 0 ? json_text(drawn.name())
                   : *before  ? fmt::format("\"{} {}", before, std::string_view(known).substr(1))
                              : known;
          }
          overlapping += s.lane == Slice::kMost;
          add(slice_text(s, name, drawn.run(), us(drawn.begin_ns - origin), pid, tracks + 1,
                         overlapping));
          if (is_token && sent.contains(e.flow) && received.contains(e.flow))
            add(
                fmt::format("{{\"ph\":\"{}\"{},\"name\":\"token\",\"cat\":\"token\",\"id\":\"{}\","
                            "\"ts\":{:.3f},\"pid\":{},\"tid\":{}}}",
                            e.kind == RecordedEvent::Kind::send ? "s" : "f",
                            e.kind == RecordedEvent::Kind::receive ? ",\"bp\":\"e\"" : "", e.flow,
                            us(s.arrow_ns() - a.offset_ns - origin), pid, tracks + s.lane + 1));
        }
        tracks += lanes;
      }
    }
  }
  std::int64_t end = until_ns;
  if (end == 0) end = all.empty() ? since_ns : all.back().begin_ns;
  const std::int64_t begin = since_ns == 0 ? origin : since_ns,
                     whole = std::max(missing.whole_since_ns, begin);
  const json other = {{"begin_ns", std::to_string(origin)},
                      {"events", all.size()},
                      {"asked_ns", std::max<std::int64_t>(0, end - begin)},
                      {"covered_ns", std::max<std::int64_t>(0, end - whole)},
                      {"lost", missing.lost},
                      {"thinned", missing.thinned},
                      {"overlapping", overlapping},
                      {"nodes", std::move(nodes)}};
  return out + "],\n\"otherData\":" + json_text(other) + "}\n";
}

}  // namespace troupe
