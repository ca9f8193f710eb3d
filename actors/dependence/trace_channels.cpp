#include <troupe/actors/dependence/trace_channels.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace troupe::dependence {

std::string channel_of(const events::EngineEvent& event, bool has_nodes) {
  const bool is_token = event.kind == "send" || event.kind == "receive",
             is_named = event.name.starts_with(event.kind + " ");
  return (has_nodes ? event.node + ": " : "") + (is_token && !is_named ? event.kind + " " : "") +
         event.name;
}

TraceChannels channels_of(const std::vector<events::EngineEvent>& events,
                          const std::vector<std::string>& kinds, std::size_t most) {
  std::set<std::string> nodes;
  events::Time first = events::kForever, last = events::kNever;
  for (const auto& e : events) {
    if (std::find(kinds.begin(), kinds.end(), e.kind) == kinds.end()) continue;
    nodes.insert(e.node);
    first = std::min(first, e.begin);
    last = std::max(last, events::later(e.begin, e.length));
  }
  TraceChannels out;
  if (nodes.empty()) return out;
  out.has_nodes = nodes.size() > 1;
  std::map<std::string, Times> times;
  for (const auto& e : events) {
    if (std::find(kinds.begin(), kinds.end(), e.kind) == kinds.end()) continue;
    // the first event is a nanosecond after the beginning
    times[channel_of(e, out.has_nodes)].push_back(static_cast<double>(e.begin - first + 1) * 1e-9);
  }
  for (auto& [name, of] : times) {
    std::sort(of.begin(), of.end());
    out.channels.push_back({name, std::move(of)});
  }
  std::stable_sort(
      out.channels.begin(), out.channels.end(),
      [](const Channel& a, const Channel& b) { return a.times.size() > b.times.size(); });
  if (out.channels.size() > most) {
    out.left_out = out.channels.size() - most;
    out.channels.resize(most);
  }
  out.end = static_cast<double>(last - first + 1) * 1e-9;
  return out;
}

}  // namespace troupe::dependence
