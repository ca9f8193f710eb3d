#include <troupe/actors/events/engine_events.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/actors/events/pattern.hpp>
#include <troupe/devices/base/error.hpp>

namespace troupe::events {
namespace {

using json = nlohmann::json;

[[noreturn]] void trace_refuse(const std::string& why) {
  throw Error(Code::data_loss,
              fmt::format("this is no trace: {}; record one with 'troupe trace -o FILE'", why));
}

json trace_parsed(const std::string& text) {
  constexpr int kDeepestTrace = 16;
  const auto is_shallow = [](int depth, json::parse_event_t, const json&) {
    if (depth > kDeepestTrace) trace_refuse("it is nested too deeply");
    return true;
  };
  try {
    return json::parse(text, is_shallow);
  } catch (const json::parse_error& error) {
    trace_refuse(fmt::format("byte {} is not of JSON", error.byte));
  } catch (const json::exception&) { trace_refuse("it is no JSON"); }
}

std::string trace_text(const json& event, const char* field) {
  const auto it = event.find(field);
  return it != event.end() && it->is_string() ? it->get<std::string>() : std::string();
}

/// A number of the event times `unit`, in ns.
Time trace_time(const json& event, const char* field, double unit, std::size_t index) {
  constexpr double kMostNs = 9e18;
  const auto it = event.find(field);
  const double ns = it != event.end() && it->is_number() ? it->get<double>() * unit : NAN;
  if (!(std::abs(ns) < kMostNs))
    trace_refuse(fmt::format("event {} has no time '{}'", index, field));
  if (it->is_number_integer() && unit == 1) return it->get<Time>();
  return std::llround(ns);
}

std::string trace_id(const json& event, const char* field) {
  const auto it = event.find(field);
  return it == event.end() ? std::string() : it->dump();
}

void trace_sort(std::vector<EngineEvent>& events) {
  std::stable_sort(events.begin(), events.end(), [](const EngineEvent& a, const EngineEvent& b) {
    return later(a.begin, a.length) < later(b.begin, b.length);
  });
}

/// The list `events` of a node's answer, in order of their ends.
std::vector<EngineEvent> trace_events(const json& answer) {
  if (!answer.is_object() || !answer.contains("events") || !answer["events"].is_array())
    trace_refuse("it has no list 'events'");
  std::vector<EngineEvent> out;
  const json& all = answer["events"];
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].is_object()) trace_refuse(fmt::format("event {} is no object", i));
    out.push_back({trace_time(all[i], "t_ns", 1, i),
                   std::max<Time>(0, trace_time(all[i], "dur_ns", 1, i)),
                   trace_text(all[i], "node"), trace_text(all[i], "track"),
                   trace_text(all[i], "kind"), trace_text(all[i], "name")});
  }
  trace_sort(out);
  return out;
}

/// Names that a trace gives to processes and threads.
struct TraceNames {
  std::map<std::string, std::string> nodes, tracks;

  void add(const json& event) {
    const auto args = event.find("args");
    if (args == event.end() || !args->is_object()) return;
    const std::string kind = trace_text(event, "name"), pid = trace_id(event, "pid");
    if (kind == "process_name") nodes[pid] = trace_text(*args, "name");
    if (kind == "thread_name")
      tracks[pid + "." + trace_id(event, "tid")] = trace_text(*args, "name");
  }
  void name(EngineEvent& e, const json& event) const {
    const std::string pid = trace_id(event, "pid");
    const auto node = nodes.find(pid);
    if (node != nodes.end()) e.node = node->second;
    const auto track = tracks.find(pid + "." + trace_id(event, "tid"));
    if (track != tracks.end()) e.track = track->second;
  }
};

/// Sends that no receive of the edge follows within the window.
Stream stalled_sends(const Stream& engine, Time window) {
  const Stream sent = engine.select(field("kind") == "send"),
               received = engine.select(field("kind") == "receive");
  return match(
      unless(event(sent, "x"), event(received, "y"), window),
      {.equal = {"name"}, .output = {{"node", field("x.node")}, {"edge", field("x.name")}}});
}

/// Edges with more sends than receives in a window and in the one before it.
Stream growing_edges(const Stream& engine, Time window) {
  const Stream sent = engine.select(field("kind") == "send"),
               received = engine.select(field("kind") == "receive");
  const Stream steps = sent.project({{"edge", field("name")}, {"step", 1}})
                           .unite(received.project({{"edge", field("name")}, {"step", -1}}));
  const Stream now = steps.tumbling(window).aggregate({"edge"}, {sum("step", "growth")});
  // a row of two windows lives on in the second one
  const Stream both =
      steps.hopping(window, later(window, window)).aggregate({"edge"}, {sum("step", "of_two")});
  return now.join(both, {"edge"})
      .select(field("growth") > 0 && field("of_two") > field("growth"))
      .project({{"edge", field("edge")},
                {"before", field("of_two") - field("growth")},
                {"growth", field("growth")}});
}

}  // namespace

std::vector<EngineEvent> events_of_trace(const std::string& text) {
  const json trace = trace_parsed(text);
  const json* all = trace.is_array() ? &trace : nullptr;
  if (trace.is_object() && trace.contains("traceEvents")) all = &trace["traceEvents"];
  if (!all || !all->is_array()) trace_refuse("it has no list 'traceEvents'");
  constexpr double kUs = 1000;  // ns
  TraceNames names;
  for (const json& event : *all)
    if (event.is_object() && trace_text(event, "ph") == "M") names.add(event);
  std::vector<EngineEvent> events;
  std::map<std::string, EngineEvent> open;  // pairs outside of all lanes
  for (std::size_t i = 0; i < all->size(); ++i) {
    const json& event = (*all)[i];
    if (!event.is_object()) trace_refuse(fmt::format("event {} is no object", i));
    const std::string phase = trace_text(event, "ph");
    if (phase != "X" && phase != "b" && phase != "e") continue;
    const std::string id = trace_id(event, "pid") + "." + trace_id(event, "id");
    const Time at = trace_time(event, "ts", kUs, i);
    if (phase == "e") {
      const auto it = open.find(id);
      if (it == open.end()) continue;
      it->second.length = std::max<Time>(0, at - it->second.begin);
      events.push_back(std::move(it->second));
      open.erase(it);
      continue;
    }
    EngineEvent e{at, 0, "", "", trace_text(event, "cat"), trace_text(event, "name")};
    names.name(e, event);
    if (phase == "b") {
      open[id] = std::move(e);
      continue;
    }
    e.length = std::max<Time>(0, trace_time(event, "dur", kUs, i));
    events.push_back(std::move(e));
  }
  trace_sort(events);
  return events;
}

EngineAnswer events_of_answer(const std::string& text) {
  const json answer = trace_parsed(text);
  EngineAnswer out;
  out.events = trace_events(answer);
  out.complete_until = trace_time(answer, "asked_ns", 1, 0);
  return out;
}

StreamAnswer stream_of_answer(const std::string& text) {
  const json answer = trace_parsed(text);
  StreamAnswer out;
  out.events = trace_events(answer);
  for (const char* count : {"next", "lost"})
    if (!answer.contains(count) || !answer[count].is_number_unsigned())
      trace_refuse(fmt::format("it has no number '{}'", count));
  out.next = answer["next"].get<std::uint64_t>();
  out.lost = answer["lost"].get<std::uint64_t>();
  if (answer.contains("guarantee_ns") && !answer["guarantee_ns"].is_null())
    out.guarantee = trace_time(answer, "guarantee_ns", 1, 0);
  return out;
}

const Schema& finished_schema() {
  static const Schema schema{
      {"node", Type::text}, {"kind", Type::text}, {"name", Type::text}, {"ns", Type::integer}};
  return schema;
}

std::vector<Batch> finished_batches(const std::vector<EngineEvent>& events, Key& key) {
  std::vector<Batch> all;
  for (const EngineEvent& e : events) {
    if (all.empty() || all.back().size() == Batch::kMost) all.emplace_back(finished_schema());
    const Time end = later(e.begin, e.length);
    all.back().insert(++key, end, later(end, 1), {e.node, e.kind, e.name, e.length});
  }
  return all;
}

const std::vector<StandingQuery>& standing_queries() {
  static const std::vector<StandingQuery> all{
      {"activity", "events of each kind and name in a window, their time, and the longest"},
      {"waits", "waits in a window by node, and the longest"},
      {"stalled-edges", "sends that no receive of the edge follows within the window"},
      {"silent-nodes", "nodes without an event for the window after one"},
      {"missed-heartbeat", "nodes without an answer for the window after one"},
      {"membership", "nodes whose state changes, and the state"},
      {"stragglers", "kernels that take twice as long on a node as on all, in a window"},
      {"queue-growth", "edges with more sends than receives in each of two windows"},
      {"alert-once", "bursts of stalled sends by edge, each reported once, after its end"}};
  return all;
}

Query standing_query(const std::string& name, Time window) {
  Query q;
  const Stream engine = q.source("engine", finished_schema(), {.inserts_only = true});
  if (name == "activity") {
    // a turn is named by the number of its firings
    q.output(name, engine.select(field("kind") != "turn" && field("kind") != "heartbeat")
                       .tumbling(window)
                       .aggregate({"node", "kind", "name"}, {count("events"), sum("ns", "busy_ns"),
                                                             events::max("ns", "longest_ns")}));
  } else if (name == "waits") {
    q.output(name,
             engine.select(field("kind") == "wait")
                 .tumbling(window)
                 .aggregate({"node", "name"}, {count("waits"), events::max("ns", "longest_ns")}));
  } else if (name == "stalled-edges") {
    q.output(name, stalled_sends(engine, window));
  } else if (name == "queue-growth") {
    q.output(name, growing_edges(engine, window));
  } else if (name == "alert-once") {
    q.output(name, stalled_sends(engine, window)
                       .session(window, {"edge"})
                       .aggregate({"edge"}, {count("stalls")}));
    q.set_consistency(Consistency::strong());  // no alert is taken back
  } else if (name == "silent-nodes") {
    const Stream own = engine.select(field("kind") != "heartbeat" && field("kind") != "membership");
    q.output(name, match(unless(event(own, "x"), event(own, "y"), window),
                         {.equal = {"node"}, .output = {{"node", field("x.node")}}}));
  } else if (name == "missed-heartbeat") {
    const Stream beats = engine.select(field("kind") == "heartbeat");
    q.output(name, match(unless(event(beats, "x"), event(beats, "y"), window),
                         {.equal = {"node"}, .output = {{"node", field("x.node")}}}));
  } else if (name == "membership") {
    q.output(name, engine.select(field("kind") == "membership")
                       .project({{"node", field("node")}, {"state", field("name")}}));
  } else if (name == "stragglers") {
    const Stream kernels = engine.select(field("kind") == "kernel").tumbling(window);
    const Stream each = kernels.aggregate({"node", "name"}, {mean("ns", "mean")});
    const Stream all = kernels.aggregate({"name"}, {mean("ns", "all")});
    q.output(name, each.join(all, {"name"})
                       .select(field("mean") > field("all") * 2)
                       .project({{"node", field("node")},
                                 {"name", field("name")},
                                 {"times", field("mean") / field("all")}}));
  } else {
    std::string names;
    for (const StandingQuery& known : standing_queries())
      names += (names.empty() ? "" : ", ") + known.name;
    throw Error(Code::not_found,
                fmt::format("there is no standing query '{}'; name one of {}", name, names));
  }
  return q;
}

}  // namespace troupe::events
