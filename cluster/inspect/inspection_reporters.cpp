#include <troupe/cluster/inspect/inspection_reporters.hpp>

#include <utility>

#include <fmt/format.h>

#include <troupe/actors/runtime/clock.hpp>
#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe {
namespace {

bool is_operator(const nlohmann::json& o) {
  for (const char* text : {"name", "kind", "state"})
    if (!o.contains(text) || !o[text].is_string()) return false;
  for (const char* number : {"tokens", "waiting", "events_in", "retractions_in", "events_out",
                             "retractions_out", "blocked", "blocking", "state_size", "peak_state",
                             "live_bytes", "peak_bytes", "clipped", "dropped", "refused"})
    if (!o.contains(number) || !o[number].is_number()) return false;
  return o.contains("complaints") && o["complaints"].is_array();
}

bool is_query(const nlohmann::json& q) {
  if (!q.contains("number") || !q["number"].is_number_unsigned() || !q.contains("made_ns") ||
      !q["made_ns"].is_number_integer() || !q.contains("operators") || !q["operators"].is_array())
    return false;
  for (const char* text : {"name", "explain"})
    if (!q.contains(text) || !q[text].is_string()) return false;
  for (const nlohmann::json& o : q["operators"])
    if (!o.is_object() || !is_operator(o)) return false;
  return true;
}

bool has_edges(const nlohmann::json& list, bool has_numbers) {
  if (!list.is_array()) return false;
  for (const nlohmann::json& e : list) {
    for (const char* end : {"from", "to"})
      if (!e.is_object() || !e.contains(end) || !e[end].is_string()) return false;
    for (const char* number : {"strength", "delay", "q"})
      if (has_numbers && (!e.contains(number) || !e[number].is_number())) return false;
  }
  return true;
}

bool is_dependence(const nlohmann::json& d) {
  for (const char* list : {"channels", "edges", "true_edges", "fits", "alarms"})
    if (!d.contains(list) || !d[list].is_array()) return false;
  for (const nlohmann::json& c : d["channels"])
    if (!c.is_object() || !c.contains("name") || !c["name"].is_string() || !c.contains("events") ||
        !c["events"].is_number())
      return false;
  for (const nlohmann::json& a : d["alarms"])
    for (const char* time : {"begin_ns", "end_ns"})
      if (!a.is_object() || !a.contains(time) || !a[time].is_number_integer()) return false;
  return d.contains("locked") && d["locked"].is_number() && d.contains("seconds") &&
         d["seconds"].is_number() && has_edges(d["edges"], true) &&
         has_edges(d["true_edges"], false);
}

}  // namespace

nlohmann::json texts_in(const ClusterReport& report) {
  auto all = nlohmann::json::array();
  for (const NodeAnswer& a : report) {
    if (!a.has_answered || a.report.scalars.empty()) continue;
    nlohmann::json texts = parse_shallow(a.report.scalars);
    if (!texts.is_array()) continue;
    for (nlohmann::json& text : texts) {
      if (!text.is_object()) continue;
      text["node"] = a.member.name;
      text["offset_ns"] = a.offset_ns;
      all.push_back(std::move(text));
    }
  }
  return all;
}

std::string dependence_json(const ClusterReport& report) {
  auto nodes = nlohmann::json::array();
  for (nlohmann::json& d : texts_in(report)) {
    if (!is_dependence(d)) continue;
    const auto offset = d["offset_ns"].get<std::int64_t>();
    for (nlohmann::json& alarm : d["alarms"])
      for (const char* time : {"begin_ns", "end_ns"})
        if (const auto t = alarm[time].get<std::int64_t>(); t != events::kForever)
          alarm[time] = t - offset;
    d.erase("offset_ns");
    nodes.push_back(std::move(d));
  }
  return json_text({{"version", 2}, {"time_ns", epoch_ns()}, {"nodes", std::move(nodes)}});
}

std::string queries_json(const ClusterReport& report) {
  auto queries = nlohmann::json::array();
  for (nlohmann::json& q : texts_in(report)) {
    if (!is_query(q)) continue;
    q["id"] = fmt::format("{}/{}", q["node"].get<std::string>(), q["number"].get<std::uint64_t>());
    q["made_ns"] = q["made_ns"].get<std::int64_t>() - q["offset_ns"].get<std::int64_t>();
    q.erase("number");
    q.erase("offset_ns");
    queries.push_back(std::move(q));
  }
  return json_text({{"version", 2}, {"time_ns", epoch_ns()}, {"queries", std::move(queries)}});
}

std::string with_operator(const std::string& actor_json, const ClusterReport& report) {
  nlohmann::json actor = nlohmann::json::parse(actor_json);
  const nlohmann::json all = nlohmann::json::parse(queries_json(report));
  for (const nlohmann::json& q : all["queries"])
    if (q["id"] == actor["plan"])
      for (const nlohmann::json& o : q["operators"])
        if (o["name"] == actor["name"]) actor["operator"] = o;
  return json_text(actor);
}

std::string stream_json(const EventFeed::Part& part, const EventFeed::Counts& counts) {
  const auto time = [](events::Time t) {
    return t == events::kNever ? nlohmann::json(nullptr) : nlohmann::json(t);
  };
  auto nodes = nlohmann::json::array(), all = nlohmann::json::array();
  for (const events::EventMerger::Clock& clock : counts.clocks)
    if (!clock.name.empty())
      nodes.push_back({{"node", clock.name},
                       {"complete_until_ns", time(clock.complete_until)},
                       {"holds", clock.holds}});
  for (const events::EngineEvent& e : part.events)
    all.push_back({{"t_ns", e.begin},
                   {"dur_ns", e.length},
                   {"node", e.node},
                   {"track", e.track},
                   {"kind", e.kind},
                   {"name", e.name}});
  return json_text({{"version", 2},
                    {"time_ns", epoch_ns()},
                    {"next", part.next},
                    {"lost", part.lost},
                    {"late", counts.late},
                    {"gaps", counts.gaps},
                    {"most_ahead_ns", counts.most_ahead},
                    {"guarantee_ns", time(part.guarantee)},
                    {"nodes", std::move(nodes)},
                    {"events", std::move(all)}});
}

}  // namespace troupe
