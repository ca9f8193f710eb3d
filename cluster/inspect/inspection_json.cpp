#include <troupe/cluster/inspect/inspection_json.hpp>

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include <troupe/actors/runtime/clock.hpp>
#include <troupe/devices/base/device_name.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe {
namespace {

using json = nlohmann::json;

json answer() { return {{"version", 2}, {"time_ns", epoch_ns()}}; }

const char* name_of(ActorStatus state) {
  constexpr const char* names[] = {"idle", "ready", "running", "waiting", "dead", "failed"};
  return names[static_cast<std::size_t>(state)];
}

const char* name_of(Wait::Kind kind) {
  constexpr const char* names[] = {"kernel", "device", "token", "grant"};
  return names[static_cast<std::size_t>(kind)];
}

json awaited_input(const ActorCounters& c) {
  return c.waiting_for < 0 ? json(nullptr) : json(c.waiting_input);
}

json labels_of(const std::string& text) {
  auto labels = json::object();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string label = text.substr(begin, end - begin);
    if (const auto equals = label.find('='); equals != std::string::npos)
      labels[label.substr(0, equals)] = label.substr(equals + 1);
    begin = end + 1;
  }
  return labels;
}

json device_of(const DeviceSnapshot& d) {
  json queues = json::array();
  const auto copies = [](const QueueActivity::Copies& c) {
    return json{{"count", c.count}, {"bytes", c.bytes}};
  };
  for (const QueueActivity& q : d.queues)
    queues.push_back({{"name", q.name},
                      {"busy_ns", q.busy_ns},
                      {"enqueued", q.enqueued},
                      {"depth", q.depth},
                      {"events", q.events},
                      {"launches", q.launches},
                      {"graphs", q.graphs},
                      {"replayed", q.replayed},
                      {"to_device", copies(q.to_device)},
                      {"from_device", copies(q.from_device)},
                      {"from_peer", copies(q.from_peer)}});
  return {{"name", d.name},       {"in_use", d.in_use},
          {"peak", d.peak},       {"reserved", d.reserved},
          {"free", d.free},       {"limit", d.limit},
          {"swapped", d.swapped}, {"queues", std::move(queues)}};
}

json node_of_report(const NodeAnswer& a) {
  json n = {{"name", a.member.name},
            {"address", a.member.address},
            {"state", troupe::name_of(a.member.state)},
            {"since_ns", a.since_ns},
            {"incarnation", std::to_string(a.member.incarnation)},
            {"labels", labels_of(a.member.labels)},
            {"reachable", a.has_answered},
            {"why", a.why}};
  if (!a.has_answered) return n;
  const NodeReport& r = a.report;
  n["engine"] = r.version;
  n["clock_offset_ns"] = a.offset_ns;
  n["round_trip_ns"] = a.round_trip_ns;
  n["cpu"] = r.cpu;
  n["cpu_ns"] = r.cpu_ns;
  n["cores"] = r.cores;
  n["memory"] = {{"resident", r.resident}, {"total", r.total}};
  n["workers"] = r.engine.workers;
  n["devices"] = json::array();
  for (const DeviceSnapshot& d : r.engine.devices) n["devices"].push_back(device_of(d));
  const TransportCounters& t = r.transport;
  n["transport"] = {{"sent_messages", t.messages_out},
                    {"received_messages", t.messages_in},
                    {"sent_bytes", t.bytes_out},
                    {"received_bytes", t.bytes_in},
                    {"queued_bytes", t.unsent_bytes},
                    {"unacknowledged_bytes", t.unacknowledged_bytes},
                    {"copied_bytes", t.copied_bytes},
                    {"bulk_sent_bytes", t.bulk_bytes_out},
                    {"bulk_received_bytes", t.bulk_bytes_in},
                    {"reconnects", t.reconnects},
                    {"dropped", t.dropped},
                    {"turned_away", t.turned_away},
                    {"broken_off", t.broken_off}};
  n["peers"] = json::array();
  for (const PeerReport& p : r.peers)
    n["peers"].push_back({{"node", p.node},
                          {"sent_bytes", p.sent},
                          {"received_bytes", p.received},
                          {"queued_bytes", p.queued},
                          {"unacknowledged_bytes", p.unacknowledged},
                          {"round_trip_ns", p.round_trip_ns}});
  return n;
}

std::string node_of_device(const std::string& device) {
  return std::string(troupe::node_of(device));
}

// The user's line, which stands in parentheses at the end of an actor's description.
std::string line_of(const std::string& what) {
  const auto open = what.rfind('(');
  return open == std::string::npos || !what.ends_with(')')
             ? std::string()
             : what.substr(open + 1, what.size() - open - 2);
}

// Takes a shape's text. One extent of 0 empties it, whatever the others are; a list has any length.
bool has_no_elements(const std::string& shape) {
  return shape.starts_with("[0]") || shape.starts_with("[0,") ||
         (shape.starts_with('[') &&
          (shape.find(", 0]") != std::string::npos || shape.find(", 0,") != std::string::npos));
}

json run_json(const RunSnapshot& run, std::int64_t now_ns) {
  json r = {{"id", run_name(run)},
            {"plan", run.plan.text()},
            {"owner", run.plan.owner},
            {"step", run.step},
            {"for_ns", run.for_so_long.count()},
            {"started_ns", now_ns - run.for_so_long.count()},
            {"state", run.is_ending ? "ending" : "running"},
            {"fired", run.fired()}};
  auto nodes = json::array(), loops = json::array(), waits = json::array(), said = json::array();
  std::size_t ready = 0;
  for (const PartitionSnapshot& p : run.partitions) {
    const std::string node = node_of_device(p.device);
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
    for (const RunPart& part : p.runs) {
      ready += part.ready;
      for (const OpenLoop& l : part.loops)
        loops.push_back({{"loop", l.loop},
                         {"tag", l.tag},
                         {"node", node},
                         {"device", p.device},
                         {"first", l.first},
                         {"last", l.last},
                         {"window", l.window},
                         {"depth", l.depth},
                         {"predicate", l.predicate}});
      for (const Wait& w : part.waits)
        waits.push_back({{"kind", name_of(w.kind)},
                         {"what", w.what},
                         {"state", w.state},
                         {"actor", fmt::format("{}:{}", run.plan.text(), w.node)},
                         {"tag", w.tag},
                         {"node", node},
                         {"device", p.device},
                         {"from", w.from},
                         {"from_node", node_of_device(w.from)},
                         {"for_ns", w.for_so_long.count()},
                         {"line", line_of(w.what)}});
    }
  }
  for (const RunSnapshot::Silent& s : run.silent) nodes.push_back(s.node);
  for (const std::string& v : diagnose(run)) said.push_back(v);
  r["ready"] = ready;
  r["nodes"] = std::move(nodes);
  r["loops"] = std::move(loops);
  r["waits"] = std::move(waits);
  r["verdicts"] = std::move(said);
  return r;
}

}  // namespace

std::string error_json(const std::string& sentence) { return json_text({{"error", sentence}}); }

// Each member has this node's version, or it would not have been let in.
std::string members_json(const std::string& node, const std::vector<Member>& members) {
  auto all = json::array();
  for (const Member& m : members)
    all.push_back({{"name", m.name},
                   {"address", m.address},
                   {"state", troupe::name_of(m.state)},
                   {"incarnation", std::to_string(m.incarnation)},
                   {"labels", labels_of(m.labels)},
                   {"engine", engine_version()}});
  const json j = {{"node", node}, {"members", std::move(all)}};
  return j.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string state_json(const std::string& node, const ClusterReport& report) {
  json j = answer();
  const std::int64_t now = j["time_ns"];
  j["node"] = node;
  auto nodes = json::array(), runs = json::array();
  std::map<PlanName, json> plans;
  std::map<std::string, std::uint64_t> lives;
  for (const NodeAnswer& a : report) lives[a.member.name] = a.member.incarnation;
  std::vector<std::pair<std::int64_t, json>> recent, errors;
  for (const NodeAnswer& a : report) {
    nodes.push_back(node_of_report(a));
    if (!a.has_answered) continue;
    for (const PlanSnapshot& p : a.report.engine.plans) {
      if (p.name.owner != a.member.name && plans.contains(p.name)) continue;
      // the one there is has another of that id
      if (const auto owner = lives.find(p.name.owner);
          owner != lives.end() && owner->second != p.name.life)
        continue;
      plans[p.name] = {{"id", p.name.text()},
                       {"owner", p.name.owner},
                       {"incarnation", std::to_string(p.name.life)},
                       {"nodes", p.nodes},
                       {"actors", p.actors},
                       {"edges", p.edges},
                       {"made_ns", p.made_ns - a.offset_ns},
                       {"runs_started", p.started},
                       {"runs_ended", p.ended + p.failed},
                       {"runs_failed", p.failed}};
    }
    for (const EndedRun& e : a.report.engine.recent)
      if (e.is_owned)
        recent.emplace_back(e.ended_ns - a.offset_ns,
                            json{{"id", fmt::format("{}/{}", e.plan.owner, e.run)},
                                 {"plan", e.plan.text()},
                                 {"ended_ns", e.ended_ns - a.offset_ns},
                                 {"took_ns", e.took_ns},
                                 {"ok", e.error.empty()},
                                 {"error", e.error},
                                 {"fired", e.fired}});
    for (const EndedRun& e : a.report.engine.errors)
      errors.emplace_back(e.ended_ns - a.offset_ns,
                          json{{"time_ns", e.ended_ns - a.offset_ns},
                               {"node", a.member.name},
                               {"run", fmt::format("{}/{}", e.plan.owner, e.run)},
                               {"plan", e.plan.text()},
                               {"incarnation", std::to_string(e.plan.life)},
                               {"text", e.error},
                               {"code", troupe::name_of(e.code)},
                               {"how", how_to_go_on(e)},
                               {"owned", e.is_owned},
                               {"took_ns", e.took_ns},
                               {"times", e.times},
                               {"first_ns", e.first_ns - a.offset_ns},
                               {"flight", e.flight}});
  }
  for (const RunSnapshot& run : joined_runs(report)) runs.push_back(run_json(run, now));
  const auto latest = [](std::vector<std::pair<std::int64_t, json>>& all, std::size_t most) {
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    auto out = json::array();
    for (std::size_t i = 0; i < std::min(most, all.size()); ++i)
      out.push_back(std::move(all[i].second));
    return out;
  };
  j["nodes"] = std::move(nodes);
  j["plans"] = json::array();
  for (auto& [name, plan] : plans) j["plans"].push_back(std::move(plan));
  j["runs"] = std::move(runs);
  j["recent"] = latest(recent, 32);
  j["errors"] = latest(errors, 512);
  return json_text(j);
}

std::string plan_json(const PlanDescription& plan) {
  json j = answer();
  j["id"] = plan.name.text();
  auto actors = json::array(), edges = json::array();
  const auto id = [&](std::int32_t node) { return fmt::format("{}:{}", plan.name.text(), node); };
  for (std::size_t i = 0; i < plan.actors.size(); ++i) {
    const ActorDescription& a = plan.actors[i];
    actors.push_back({id(static_cast<std::int32_t>(i)), a.op, a.name, a.scope,
                      node_of_device(a.device), a.device, a.partition, a.line, a.frame,
                      a.frame_depth, a.is_user_actor});
  }
  constexpr const char* kinds[] = {"data", "control", "back"};
  for (std::size_t i = 0; i < plan.edges.size(); ++i) {
    const EdgeDescription& e = plan.edges[i];
    edges.push_back({i, id(e.from), id(e.to), e.output, e.input,
                     kinds[static_cast<std::size_t>(e.kind)], e.dtype, e.shape, e.is_cut, e.bytes});
  }
  j["actors"] = {{"columns",
                  {"id", "op", "name", "scope", "node", "device", "partition", "line", "frame",
                   "frame_depth", "user_actor"}},
                 {"rows", std::move(actors)}};
  j["edges"] = {{"columns",
                 {"id", "from", "to", "output", "input", "kind", "dtype", "shape", "cut", "bytes"}},
                {"rows", std::move(edges)}};
  return json_text(j);
}

std::string diagnosis_json(const std::string& node, const std::vector<Diagnosis>& verdicts,
                           const std::vector<RunSnapshot>& runs) {
  json j = answer();
  j["node"] = node;
  j["runs"] = runs.size();
  j["verdicts"] = json::array();
  for (const Diagnosis& v : verdicts) {
    const auto known = std::find_if(runs.begin(), runs.end(),
                                    [&](const RunSnapshot& r) { return id_of(r) == v.id; });
    RunSnapshot run;  // it may have ended meanwhile
    if (known != runs.end()) run = *known;
    else run.run = v.run, run.owner = v.id.owner, run.number = v.id.number, run.plan = v.plan;
    const std::string plan = run.plan.text();
    j["verdicts"].push_back(
        {{"run", run_name(run)},
         {"text", v.text},
         {"node", v.kind == Diagnosis::Kind::silence ? v.device : node_of_device(v.device)},
         {"device", v.device},
         {"actor", v.node < 0 ? std::string() : fmt::format("{}:{}", plan, v.node)},
         {"edge", v.edge},
         {"tag", v.tag},
         {"line", line_of(v.actor)}});
  }
  // The first activity of each other run, so that the user of a slow run sees where it is.
  j["doing"] = json::array();
  for (const RunSnapshot& run : runs) {
    const auto hangs = [&](const Diagnosis& v) { return v.id == id_of(run); };
    if (std::any_of(verdicts.begin(), verdicts.end(), hangs)) continue;
    if (const std::vector<std::string> said = diagnose(run); !said.empty())
      j["doing"].push_back({{"run", run_name(run)}, {"text", said[0]}});
  }
  return json_text(j);
}

// Scalars from other nodes are untrusted text.
std::string scalars_json(const ClusterReport& report) {
  auto all = json::array();
  bool is_recorded = false;
  for (const NodeAnswer& a : report) {
    if (!a.has_answered || a.report.scalars.empty()) continue;
    json said = parse_shallow(a.report.scalars);
    if (!said.is_array()) continue;
    is_recorded = true;
    for (json& series : said) {
      if (!series.is_object() || !series.contains("name") || !series["name"].is_string() ||
          !series.contains("kind") || !series["kind"].is_string() || !series.contains("points") ||
          !series["points"].is_array())
        continue;
      auto points = json::array();
      for (json& p : series["points"])
        if (p.is_array() && p.size() == 3 && p[0].is_number_integer() && p[1].is_number_integer()) {
          p[1] = static_cast<std::int64_t>(p[1].get<std::uint64_t>() -
                                           static_cast<std::uint64_t>(a.offset_ns));
          points.push_back(std::move(p));
        }
      all.push_back({{"name", std::move(series["name"])},
                     {"kind", std::move(series["kind"])},
                     {"node", a.member.name},
                     {"points", std::move(points)}});
    }
  }
  if (!is_recorded) return {};
  return json_text({{"version", 2}, {"series", std::move(all)}});
}

// ---- counters

// Another node's description may be wrong: its edges are between its actors.
CounterCache::CounterCache(PlanDescription plan)
    : plan_([&] {
        const auto n = static_cast<std::int32_t>(plan.actors.size());
        std::erase_if(plan.edges, [n](const EdgeDescription& e) {
          return e.from < 0 || e.from >= n || e.to < 0 || e.to >= n;
        });
        return std::move(plan);
      }()) {
  for (const EdgeDescription& e : plan_.edges)
    if (e.receive >= 0) edges_[{plan_.actors[static_cast<std::size_t>(e.to)].partition, e.receive}];
}

std::uint64_t CounterCache::begin() {
  std::lock_guard lock(mutex_);
  return ++last_ticket_;
}

// Tokens of a run that has failed are dropped uncounted. Tokens that are missing while no partition
// has a run, look after look, never arrive.
void CounterCache::update(const ClusterReport& report, std::uint64_t ticket) {
  std::lock_guard lock(mutex_);
  ++seq_;
  const bool is_idle = std::all_of(report.begin(), report.end(), [](const NodeAnswer& a) {
    return std::all_of(a.report.partitions.begin(), a.report.partitions.end(),
                       [](const PartitionSnapshot& p) { return p.has_answered && p.runs.empty(); });
  });
  // and the number of ends that have reported
  std::map<std::pair<std::int32_t, std::int32_t>, std::pair<Edge, int>> edges;
  for (const NodeAnswer& a : report)
    for (const PartitionSnapshot& p : a.report.partitions) {
      for (const ActorCounters& c : p.actors) {
        if (c.node < 0 || c.node >= static_cast<std::int32_t>(plan_.actors.size())) continue;
        Seen<ActorCounters>& seen = actors_[c.node];
        if (seen.ticket > ticket) continue;
        seen.ticket = ticket;
        if (seen.changed == 0 || !(seen.now == c)) seen.now = c, seen.changed = seq_;
      }
      if (Seen<std::vector<LoopSnapshot>>* seen = p.loops.empty() ? nullptr : &loops_[p.device];
          seen && seen->ticket <= ticket)
        seen->now = p.loops, seen->ticket = ticket;
      for (const EdgeCounters& c : p.edges) {
        const auto known = edges_.find({c.to, c.receive});
        if (known == edges_.end() || known->second.ticket > ticket) continue;
        // a silent end keeps its earlier report
        auto& [e, ends] = edges.try_emplace(known->first, known->second.now, 0).first->second;
        if (c.window != 0)
          e.received = c.received,
          e.window = std::max<std::int64_t>(0, c.window) *
                     static_cast<std::int64_t>(std::max<std::size_t>(1, p.runs.size()));
        else e.sent = c.sent, e.bytes = c.bytes;
        ++ends;
      }
    }
  for (auto& [key, said] : edges) {
    auto& [edge, ends] = said;
    Seen<Edge>& seen = edges_[key];
    const bool rests =
        seen.changed != 0 && seen.now.sent == edge.sent && seen.now.received == edge.received;
    if (is_idle && ends == 2 && rests) edge.lost = edge.sent - std::min(edge.sent, edge.received);
    seen.ticket = ticket;
    if (seen.changed == 0 || !(seen.now == edge)) seen.now = edge, seen.changed = seq_;
  }
}

std::string CounterCache::changes(std::uint64_t since) const {
  json j = answer();
  std::lock_guard lock(mutex_);
  const bool is_reset = since <= first_seq_ || since > seq_;
  if (is_reset) since = 0;
  auto actors = json::array(), edges = json::array(), loops = json::array();
  for (const auto& [device, of_device] : loops_)
    for (const LoopSnapshot& l : of_device.now)
      loops.push_back({l.loop, device, l.executions, l.iterations, l.window, l.most_parallel,
                       l.open_ns, l.achieved_parallelism, l.limited_by_window});
  for (const auto& [node, seen] : actors_)
    if (seen.changed > since)
      actors.push_back({id_of(node), seen.now.fires, seen.now.dead, seen.now.busy_ns,
                        seen.now.bytes_out, name_of(seen.now.state), awaited(seen.now),
                        awaited_input(seen.now), seen.now.waiting_tag});
  for (std::size_t i = 0; i < plan_.edges.size(); ++i) {
    const EdgeDescription& e = plan_.edges[i];
    if (e.receive < 0) continue;
    const auto it =
        edges_.find({plan_.actors[static_cast<std::size_t>(e.to)].partition, e.receive});
    if (it == edges_.end() || it->second.changed <= since) continue;
    const Edge& now = it->second.now;
    edges.push_back({i, now.sent, now.bytes, now.in_flight(), now.window});
  }
  j["plan"] = plan_.name.text();
  j["seq"] = seq_;
  j["reset"] = is_reset;
  j["actors"] = {{"columns",
                  {"id", "fires", "dead", "busy_ns", "bytes_out", "state", "waiting_for",
                   "waiting_input", "waiting_tag"}},
                 {"rows", std::move(actors)}};
  j["edges"] = {{"columns", {"id", "tokens", "bytes", "in_flight", "window"}},
                {"rows", std::move(edges)}};
  j["loops"] = {{"columns",
                 {"loop", "device", "executions", "iterations", "window", "most_parallel",
                  "open_ns", "achieved_parallelism", "limited_by_window"}},
                {"rows", std::move(loops)}};
  return json_text(j);
}

// Under the lock: how often an actor has taken its inputs and put out its outputs. A resident loop
// fires for each execution and for each iteration.
std::uint64_t CounterCache::executions_of(std::int32_t node) const {
  const auto it = actors_.find(node);
  if (it == actors_.end()) return 0;
  const std::uint64_t fires = it->second.now.fires;
  const ActorDescription& a = plan_.actors[static_cast<std::size_t>(node)];
  const auto loops = loops_.find(a.device);
  if (a.op != "ResidentLoop" || loops == loops_.end()) return fires;
  for (const LoopSnapshot& l : loops->second.now)
    if (l.loop == a.frame) return fires - std::min(fires, l.iterations);
  return fires;
}

// Under the lock: bytes of the mean token of an edge whose maker has no other output and has fired.
std::optional<std::uint64_t> CounterCache::put_out_each(const EdgeDescription& edge) const {
  const auto is_other = [&](const EdgeDescription& e) {
    return e.from == edge.from && e.output >= 0 && e.output != edge.output;
  };
  const auto it = actors_.find(edge.from);
  const std::uint64_t executions = executions_of(edge.from);
  if (it == actors_.end() || executions == 0 ||
      std::any_of(plan_.edges.begin(), plan_.edges.end(), is_other))
    return std::nullopt;
  return it->second.now.bytes_out / executions;
}

std::string CounterCache::actor_json(std::int32_t node, const std::vector<RunSnapshot>& runs,
                                     const std::vector<std::string>& errors) const {
  json j = answer();
  const ActorDescription& a = plan_.actors[static_cast<std::size_t>(node)];
  j.update({{"id", id_of(node)},
            {"plan", plan_.name.text()},
            {"op", a.op},
            {"name", a.name},
            {"scope", a.scope},
            {"node", node_of_device(a.device)},
            {"device", a.device},
            {"partition", a.partition},
            {"line", a.line},
            {"frame", a.frame},
            {"frame_depth", a.frame_depth},
            {"user_actor", a.is_user_actor},
            {"attributes", a.attributes}});
  std::lock_guard lock(mutex_);
  if (const auto it = actors_.find(node); it != actors_.end()) {
    const ActorCounters& c = it->second.now;
    j.update({{"fires", c.fires},
              {"dead", c.dead},
              {"busy_ns", c.busy_ns},
              {"bytes_out", c.bytes_out},
              {"sampled_cost_ns", c.fires ? c.busy_ns / c.fires : 0},
              {"state", name_of(c.state)},
              {"waiting_for", awaited(c)},
              {"waiting_input", awaited_input(c)},
              {"waiting_tag", c.waiting_tag}});
    if (c.capacity > 0) j["queue"] = {{"elements", c.queued}, {"capacity", c.capacity}};
  } else {
    j["state"] = "idle";
  }
  if (const auto it = loops_.find(a.device); it != loops_.end())
    for (const LoopSnapshot& l : it->second.now)
      if (!a.frame.empty() && l.loop == a.frame)
        j["loop"] = {{"loop", l.loop},
                     {"executions", l.executions},
                     {"iterations", l.iterations},
                     {"window", l.window},
                     {"most_parallel", l.most_parallel},
                     {"open_ns", l.open_ns},
                     {"achieved_parallelism", l.achieved_parallelism},
                     {"limited_by_window", l.limited_by_window}};
  auto inputs = json::array(), outputs = json::array();
  // Arrivals are counted on cut edges. On other edges they follow from the actor's firings: each
  // firing of a Merge takes a token of one input.
  std::uint64_t counted = 0, followed = 0;
  bool is_known = true;
  const std::uint64_t fires = executions_of(node);
  for (const EdgeDescription& e : plan_.edges) {
    if (e.from != node && e.to != node) continue;
    const std::int32_t other = e.to == node ? e.from : e.to;
    json edge = {{"actor", id_of(other)},
                 {"op", plan_.actors[static_cast<std::size_t>(other)].op},
                 {"name", plan_.actors[static_cast<std::size_t>(other)].name},
                 {"output", e.output},
                 {"input", e.input},
                 {"dtype", e.dtype},
                 {"shape", e.shape},
                 {"cut", e.is_cut}};
    std::uint64_t came = 0;  // by count; 0: not counted
    if (const auto it =
            edges_.find({plan_.actors[static_cast<std::size_t>(e.to)].partition, e.receive});
        e.receive >= 0 && it != edges_.end()) {
      const Edge& now = it->second.now;
      edge.update({{"tokens", now.sent},
                   {"bytes", now.bytes},
                   {"in_flight", now.in_flight()},
                   {"window", now.window}});
      came = now.bytes;
    }
    if (e.to == node && e.output >= 0) {
      counted += came;
      std::uint64_t of_each = e.bytes;
      // a shape that only runs know: as its maker puts it out
      if (came == 0 && e.bytes == 0 && fires > 0 && !has_no_elements(e.shape)) {
        const std::optional<std::uint64_t> put = put_out_each(e);
        is_known &= put.has_value();
        of_each = put.value_or(0);
      }
      if (came == 0)
        followed =
            a.op == "Merge" ? std::max(followed, fires * of_each) : followed + fires * of_each;
    }
    (e.to == node ? inputs : outputs).push_back(std::move(edge));
  }
  j["bytes_in"] = !is_known
                      ? json(nullptr)
                      : json(a.op == "Merge" ? std::max(counted, followed) : counted + followed);
  j["inputs"] = std::move(inputs);
  j["outputs"] = std::move(outputs);
  auto waits = json::array(), open = json::array();
  for (const RunSnapshot& run : runs) {
    if (run.plan != plan_.name) continue;
    for (const PartitionSnapshot& p : run.partitions)
      for (const RunPart& part : p.runs) {
        for (const Wait& w : part.waits)
          if (w.node == node)
            waits.push_back({{"run", run_name(run)},
                             {"kind", name_of(w.kind)},
                             {"state", w.state},
                             {"tag", w.tag},
                             {"device", p.device},
                             {"from", w.from},
                             {"for_ns", w.for_so_long.count()}});
        for (const OpenLoop& l : part.loops)
          if (!a.frame.empty() && l.loop == a.frame && p.device == a.device)
            open.push_back({{"run", run_name(run)},
                            {"loop", l.loop},
                            {"tag", l.tag},
                            {"first", l.first},
                            {"last", l.last},
                            {"window", l.window}});
      }
  }
  j["waits"] = std::move(waits);
  j["open_iterations"] = std::move(open);
  j["errors"] = errors;
  return json_text(j);
}

}  // namespace troupe
