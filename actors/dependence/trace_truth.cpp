// The true edges of a trace. Arrows tie the send of a token to its receive: events `s` and `f` of
// one id, each within the slice of its token.
#include <troupe/actors/dependence/trace_channels.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <troupe/devices/base/error.hpp>

namespace troupe::dependence {
namespace {

using TruthTrack = std::pair<std::string, std::string>;  // a process and a thread

struct TruthSlice {
  double begin;
  std::string channel;
  bool operator<(const TruthSlice& other) const { return begin < other.begin; }
};

std::string truth_text(const nlohmann::json& event, const char* field) {
  const auto it = event.find(field);
  if (it == event.end()) return {};
  return it->is_string() ? it->get<std::string>() : it->dump();
}

double truth_time(const nlohmann::json& event) {
  const auto it = event.find("ts");
  return it != event.end() && it->is_number() ? it->get<double>() : 0;
}

/// The channel of the last slice that begins by then; empty: none.
std::string truth_channel_at(const std::vector<TruthSlice>& slices, double at) {
  constexpr double kRounded = 1e-3;  // us
  const auto next = std::upper_bound(slices.begin(), slices.end(), TruthSlice{at + kRounded, {}});
  return next == slices.begin() ? std::string() : (next - 1)->channel;
}

}  // namespace

Edges true_edges_of(const std::string& trace, bool has_nodes) {
  using json = nlohmann::json;
  Edges edges;
  // for names, kinds and errors
  const std::vector<events::EngineEvent> events = events::events_of_trace(trace);
  std::map<std::string, std::set<std::string>> actors;  // by node and name, channels of the actor
  for (const auto& e : events)
    if (e.kind == "kernel" || e.kind == "firing")
      actors[e.node + ": " + e.name].insert(channel_of(e, has_nodes));
  for (const auto& e : events) {
    if (e.kind != "send") continue;
    const std::string name = e.name.starts_with("send ") ? e.name.substr(5) : e.name;
    for (const std::string& channel : actors[e.node + ": " + name])
      edges.emplace(channel, channel_of(e, has_nodes));
  }

  const json parsed = json::parse(trace);
  const json& all = parsed.is_array() ? parsed : parsed["traceEvents"];
  std::map<std::string, std::string> nodes;  // by process
  for (const json& event : all)
    if (truth_text(event, "ph") == "M" && truth_text(event, "name") == "process_name" &&
        event.contains("args"))
      nodes[truth_text(event, "pid")] = truth_text(event["args"], "name");
  std::map<TruthTrack, std::vector<TruthSlice>> sends, receives;
  for (const json& event : all) {
    const std::string kind = truth_text(event, "cat");
    if (truth_text(event, "ph") != "X" || (kind != "send" && kind != "receive")) continue;
    const events::EngineEvent e{0,  0,    nodes[truth_text(event, "pid")],
                                "", kind, truth_text(event, "name")};
    (kind == "send" ? sends : receives)[{truth_text(event, "pid"), truth_text(event, "tid")}]
        .push_back({truth_time(event), channel_of(e, has_nodes)});
  }
  for (auto* tracks : {&sends, &receives})
    for (auto& [track, slices] : *tracks) std::stable_sort(slices.begin(), slices.end());
  std::map<std::string, std::pair<std::string, std::string>> tokens;  // by id
  for (const json& event : all) {
    const std::string phase = truth_text(event, "ph");
    if (phase != "s" && phase != "f") continue;
    const TruthTrack track{truth_text(event, "pid"), truth_text(event, "tid")};
    auto& [from, to] = tokens[truth_text(event, "id")];
    (phase == "s" ? from : to) =
        truth_channel_at((phase == "s" ? sends : receives)[track], truth_time(event));
  }
  for (const auto& [id, ends] : tokens)
    if (!ends.first.empty() && !ends.second.empty()) edges.insert(ends);
  return edges;
}

}  // namespace troupe::dependence
