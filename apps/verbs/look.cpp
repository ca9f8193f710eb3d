// troupe ps, inspect, graph, diagnose, trace: what a running node says, for people. `--json`: as it says it.
#include <troupe/apps/verbs/client.hpp>

#include <algorithm>
#include <cstdio>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <troupe/ops/json_text.hpp>

namespace troupe::verbs {
namespace {

using json = nlohmann::json;

constexpr int kHangs = 3;  // told from nobody having answered, which is 1

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Colour colour_of(const std::string& state) {
  if (state == "alive" || state == "running" || state == "ready") return Colour::green;
  if (state == "waiting" || state == "suspect" || state == "joining") return Colour::yellow;
  if (state == "failed" || state == "dead" || state == "ending") return Colour::red;
  return Colour::none;
}

std::string joined(const json& words) {
  std::string out;
  for (const json& w : words) out += (out.empty() ? "" : ",") + w.get<std::string>();
  return out;
}

/// The rows of a table of columns, as objects.
std::vector<json> rows_of(const json& table) {
  std::vector<json> all;
  for (const json& row : table["rows"]) {
    json& o = all.emplace_back(json::object());
    for (std::size_t c = 0; c < row.size(); ++c) o[table["columns"][c].get<std::string>()] = row[c];
  }
  return all;
}

std::string ps_text(const json& s) {
  Table nodes({"NODE", "STATE", "CPU", "MEMORY", "WORKERS", "OUT", "IN", "QUEUED", "ADDRESS"});
  for (const json& n : s["nodes"]) {
    if (!n["reachable"].get<bool>()) {
      nodes.add({n["name"], n["state"], "-", "-", "-", "-", "-", "-", fmt::format("does not answer: {}", n["why"].get<std::string>())}, Colour::red);
      continue;
    }
    const json& t = n["transport"];
    nodes.add({n["name"], n["state"], fmt::format("{:.2f}/{}", n["cpu"].get<double>(), n["cores"].get<int>()), bytes_text(n["memory"]["resident"]), std::to_string(n["workers"].get<int>()),
               bytes_text(t["sent_bytes"]), bytes_text(t["received_bytes"]), bytes_text(t["queued_bytes"]), n["address"]},
              colour_of(n["state"]));
  }
  std::string out = nodes.text();
  Table devices({"DEVICE", "IN USE", "AT MOST", "LIMIT", "SWAPPED"});
  for (const json& n : s["nodes"])
    if (n["reachable"].get<bool>())
      for (const json& d : n["devices"])
        devices.add({d["name"], bytes_text(d["in_use"]), bytes_text(d["peak"]), d["limit"] == 0 ? "-" : bytes_text(d["limit"]), d["swapped"] == 0 ? "-" : bytes_text(d["swapped"])});
  if (!devices.is_empty()) out += "\n" + devices.text();
  constexpr std::size_t kMostLinks = 20;
  std::vector<std::pair<double, std::vector<std::string>>> ways;  // those on which most waits first
  for (const json& n : s["nodes"]) {
    if (!n["reachable"].get<bool>()) continue;
    for (const json& p : n["peers"])
      ways.push_back({p["queued_bytes"].get<double>() + p["unacknowledged_bytes"].get<double>(),
                      {n["name"], p["node"], bytes_text(p["sent_bytes"]), bytes_text(p["received_bytes"]), bytes_text(p["queued_bytes"]), bytes_text(p["unacknowledged_bytes"]),
                       p["round_trip_ns"] == 0 ? "-" : time_text(p["round_trip_ns"])}});
  }
  if (ways.size() > kMostLinks) std::stable_sort(ways.begin(), ways.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Table links({"FROM", "TO", "SENT", "RECEIVED", "QUEUED", "UNACKED", "ROUND TRIP"});
  for (auto& [waiting, row] : ways) links.add(std::move(row));
  if (!links.is_empty()) out += "\n" + links.text(SIZE_MAX, kMostLinks + 2);
  Table plans({"PLAN", "ACTORS", "EDGES", "RUNS", "FAILED", "NODES"});
  for (const json& p : s["plans"])
    plans.add({p["id"], std::to_string(p["actors"].get<int>()), std::to_string(p["edges"].get<int>()), count_text(p["runs_started"]), count_text(p["runs_failed"]), joined(p["nodes"])});
  if (!plans.is_empty()) out += "\n" + plans.text();
  Table runs({"RUN", "PLAN", "STEP", "FOR", "FIRED", "STATE", "NODES", "WHAT"});
  for (const json& r : s["runs"]) {
    std::string what = r["verdicts"].empty() ? std::string() : r["verdicts"][0].get<std::string>();
    runs.add({r["id"], r["plan"], std::to_string(r["step"].get<std::uint64_t>()), time_text(r["for_ns"]), count_text(r["fired"]), r["state"], joined(r["nodes"]), what}, colour_of(r["state"]));
  }
  out += runs.is_empty() ? "\nno run is under way\n" : "\n" + runs.text();
  Table recent({"ENDED", "PLAN", "TOOK", "OUTCOME"});
  for (std::size_t i = 0; i < std::min<std::size_t>(5, s["recent"].size()); ++i) {
    const json& r = s["recent"][i];
    recent.add({r["id"], r["plan"], time_text(r["took_ns"]), r["ok"].get<bool>() ? "ok" : r["error"].get<std::string>()}, r["ok"].get<bool>() ? Colour::none : Colour::red);
  }
  if (!recent.is_empty()) out += "\n" + recent.text();
  return out;
}

/// NODE/NUMBER:NUMBER, of which there may be names too.
bool may_be_id(const std::string& text) {
  const auto slash = text.find('/'), colon = text.rfind(':');
  if (slash == std::string::npos || slash == 0 || colon == std::string::npos || colon <= slash + 1 || colon + 1 == text.size()) return false;
  const std::string plan = text.substr(slash + 1, colon - slash - 1), actor = text.substr(colon + 1);
  return (plan + actor).find_first_not_of("0123456789") == std::string::npos;
}

/// The actors of a name, with its scopes or without, in the newest plan that has it; there a name with all its scopes comes first.
/// `names`: those there are, if none has it.
std::vector<std::string> ids_of(const LookFlags& flags, const std::string& name, std::vector<std::string>& names) {
  const json state = json::parse(fetch(flags, "/api/state"));
  std::vector<std::string> found, within;  // within: scopes
  std::vector<json> plans = state["plans"];
  std::stable_sort(plans.begin(), plans.end(), [](const json& a, const json& b) { return a["made_ns"].get<std::int64_t>() > b["made_ns"].get<std::int64_t>(); });
  for (auto plan = plans.begin(); plan != plans.end() && found.empty() && within.empty(); ++plan) {
    std::string said;
    try {
      said = fetch(flags, "/api/plan?id=" + encoded((*plan)["id"]), 60);
    } catch (const Misuse&) {  // it has gone since the node told of it
      continue;
    }
    const json p = json::parse(said);
    for (const json& a : rows_of(p["actors"])) {
      const std::string full = a["name"], last = full.substr(full.rfind('/') + 1);
      if (full == name) found.push_back(a["id"]);
      else if (last == name) within.push_back(a["id"]);
      names.push_back(full);
      if (last != full) names.push_back(last);
    }
  }
  return found.empty() ? within : found;
}

/// The one of them; of none or several throws Misuse, with the nearest name, or with the ids.
std::string only_of(std::vector<std::string> found, const std::string& name, const std::vector<std::string>& names) {
  if (found.size() == 1) return found[0];
  if (!found.empty()) {
    constexpr std::size_t kMostIds = 20;
    const std::size_t rest = found.size() - std::min(found.size(), kMostIds);
    found.resize(found.size() - rest);
    throw Misuse(printable(fmt::format("{} actors have the name '{}': {}{}; say which by its id", found.size() + rest, name, fmt::join(found, ", "), rest == 0 ? "" : fmt::format(" and {} more", rest))));
  }
  const std::string like = nearest(name, names);
  throw Misuse(printable(fmt::format("there is no actor '{}'{}", name, like.empty() ? names.empty() ? ": no plan is there" : "; 'troupe graph' lists them" : fmt::format("; did you mean '{}'", like))));
}

/// What the node says of an actor that is named by its id or by its name.
std::string said_of(const LookFlags& flags, const std::string& what) {
  if (what.empty()) throw Misuse("say which actor: by its id, such as a/3:12, or by its name");
  const auto of = [&](const std::string& id) { return fetch(flags, "/api/actor?id=" + encoded(id), 10); };
  std::vector<std::string> names;
  if (!may_be_id(what)) return of(only_of(ids_of(flags, what, names), what, names));
  try {
    return of(what);
  } catch (const Misuse&) {
    std::vector<std::string> found = ids_of(flags, what, names);
    if (found.empty()) throw;  // with the ids there are
    return of(only_of(std::move(found), what, names));
  }
}

/// `at queue 'jobs' for 3 s, in iteration 2 of loop 'w', in run a/3`; of several, the first.
std::string wait_text(const json& w, std::size_t times) {
  const std::string kind = w["kind"], state = w["state"], from = w["from"], tag = w["tag"];
  std::string out = kind == "token"    ? fmt::format("by {}", w["device"].get<std::string>())
                    : kind == "grant"  ? fmt::format("for room at {}, which has not granted its token", from)
                    : kind == "device" ? std::string("for its predicate, from the device")
                    : state.empty()    ? std::string("for its kernel to end")
                                       : (state.starts_with("actor ") ? "for an answer of " : "at ") + state;
  if (w["for_ns"].get<std::int64_t>() > 0) out += " for " + time_text(w["for_ns"]);
  if (!tag.empty()) out += ", in " + tag;
  return fmt::format("{}, in run {}{}", out, w["run"].get<std::string>(), times == 1 ? "" : fmt::format(", and in {} more iterations", times - 1));
}

/// Those that differ in the iteration only, as one: the first, and how many.
std::vector<std::pair<json, std::size_t>> alike(const json& waits) {
  std::vector<std::pair<json, std::size_t>> all;
  for (const json& w : waits) {
    const auto is_like = [&](const auto& other) {
      const char* words[] = {"kind", "state", "device", "from", "run"};
      return std::all_of(std::begin(words), std::end(words), [&](const char* word) { return other.first[word] == w[word]; });
    };
    const auto known = std::find_if(all.begin(), all.end(), is_like);
    if (known == all.end()) all.emplace_back(w, 1);
    else ++known->second;
  }
  return all;
}

/// `Dequeue 'take' a/3:2, as input 0, in iteration 2 of loop 'w'`
std::string awaited_text(const json& a) {
  const std::string tag = a["waiting_tag"];
  std::string out = a["waiting_for"];
  for (const json& e : a["inputs"])
    if (e["actor"] == a["waiting_for"] && e["input"] == a["waiting_input"]) {
      out = fmt::format("{} '{}' {}", e["op"].get<std::string>(), e["name"].get<std::string>(), e["actor"].get<std::string>());
      break;
    }
  out += a["waiting_input"] == -1 ? std::string(", over a control edge") : fmt::format(", as input {}", a["waiting_input"].get<int>());
  return tag.empty() ? out : out + ", in " + tag;
}

std::string actor_text(const json& a) {
  std::string out = in(Colour::bold, printable(fmt::format("{} '{}'", a["op"].get<std::string>(), a["name"].get<std::string>()))) + "  " + a["id"].get<std::string>() + "\n";
  const auto line = [&](const char* what, const std::string& value, Colour colour = Colour::none) {
    if (!value.empty()) out += fmt::format("  {:<12}{}\n", what, in(colour, printable(value)));
  };
  line("state", a["state"], colour_of(a["state"]));
  line("device", a["device"]);
  line("line", a["line"]);
  line("frame", a["frame"]);
  line("attributes", a["attributes"]);
  if (a.contains("fires"))
    line("fires", fmt::format("{} and {} dead; {} each, {} in all; {} in, {} out", count_text(a["fires"]), count_text(a["dead"]), time_text(a["sampled_cost_ns"]), time_text(a["busy_ns"]), a["bytes_in"].is_null() ? "an unknown number of bytes" : bytes_text(a["bytes_in"]), bytes_text(a["bytes_out"])));
  if (a.contains("waiting_for") && a["waiting_for"] != "") line("waits for", awaited_text(a), Colour::yellow);
  if (a.contains("queue")) line("queue", fmt::format("{} of {} elements", count_text(a["queue"]["elements"]), count_text(a["queue"]["capacity"])));
  for (const auto& [w, times] : alike(a["waits"])) line(w["kind"] == "token" ? "awaited" : "waits", wait_text(w, times), Colour::yellow);
  if (a.contains("loop") && a["loop"]["executions"] > 0)
    line("loop", fmt::format("{} execution{}, {} iterations; {:.2f} open at once over the {} that it was open (at most {}, allowed {}); {:.0f} % waited for the limit", count_text(a["loop"]["executions"]), a["loop"]["executions"] == 1 ? "" : "s",
                             count_text(a["loop"]["iterations"]), a["loop"]["achieved_parallelism"].get<double>(), time_text(a["loop"]["open_ns"]), a["loop"]["most_parallel"].get<std::uint64_t>(),
                             a["loop"]["window"].get<int>(), 100 * a["loop"]["limited_by_window"].get<double>()));
  for (const json& l : a["open_iterations"])
    line("iterations", fmt::format("{} to {} open, of {} at most, in run {}", l["first"].get<std::int64_t>(), l["last"].get<std::int64_t>(), l["window"].get<int>(), l["run"].get<std::string>()));
  for (const char* side : {"inputs", "outputs"})
    for (const json& e : a[side])
      line(side[0] == 'i' ? "input" : "output", fmt::format("{} '{}' {} {}{}{}", e["op"].get<std::string>(), e["name"].get<std::string>(), e["actor"].get<std::string>(), e["dtype"].get<std::string>(), e["shape"].get<std::string>(),
                                                        e.contains("tokens") ? fmt::format("; {} tokens, {} in flight, window {}", count_text(e["tokens"]), e["in_flight"].get<std::uint64_t>(), e["window"].get<int>()) : ""));
  for (const json& e : a["errors"]) line("error", e, Colour::red);
  return out;
}

/// 88,354
std::string grouped(std::uint64_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string graph_text(const json& plan, bool dot) {
  const std::vector<json> actors = rows_of(plan["actors"]), edges = rows_of(plan["edges"]);
  std::string out;
  if (dot) {
    out = "digraph " + quoted(plan["id"]) + " {\n";
    for (const json& a : actors) out += fmt::format("  {} [label={}];\n", quoted(a["id"]), quoted(fmt::format("{} {}", a["op"].get<std::string>(), a["name"].get<std::string>())));
    for (const json& e : edges) out += fmt::format("  {} -> {}{};\n", quoted(e["from"]), quoted(e["to"]), e["kind"] == "control" ? " [style=dotted]" : e["cut"].get<bool>() ? " [style=dashed]" : "");
    return out + "}\n";
  }
  std::map<std::string, std::string> inputs;
  for (const json& e : edges) {
    std::string& of = inputs[e["to"].get<std::string>()];
    const std::string from = e["from"];
    of += (of.empty() ? "" : " ") + from.substr(from.rfind(':') + 1) + (e["kind"] == "control" ? "!" : e["cut"].get<bool>() ? "~" : "");
  }
  Table table({"ACTOR", "OP", "NAME", "DEVICE", "LINE", "FROM (~ cut, ! control)"});
  for (const json& a : actors) table.add({a["id"], a["op"], a["name"], a["device"], a["line"], inputs[a["id"].get<std::string>()]});
  return table.text();
}

}  // namespace

int ps(const LookFlags& flags) {
  return repeat(flags, [&] {
    const std::string said = fetch(flags, "/api/state");
    print(flags.json ? said + "\n" : ps_text(json::parse(said)));
    return 0;
  });
}

int inspect(const LookFlags& flags) {
  return repeat(flags, [&] {
    const std::string said = said_of(flags, flags.what);
    print(flags.json ? said + "\n" : actor_text(json::parse(said)));
    return 0;
  });
}

int graph(const LookFlags& flags) {
  return repeat(flags, [&] {
    std::string id = flags.what;
    if (id.empty()) {
      const json state = json::parse(fetch(flags, "/api/state"));
      std::int64_t made = 0;
      for (const json& p : state["plans"])
        if (p["made_ns"].get<std::int64_t>() >= made) made = p["made_ns"], id = p["id"];
      if (id.empty()) throw Misuse("no plan is there yet");
    }
    const std::string said = fetch(flags, "/api/plan?id=" + encoded(id), 60);
    print(flags.json ? said + "\n" : graph_text(json::parse(said), flags.dot));
    return 0;
  });
}

std::string diagnosis_text(const json& d) {
  constexpr std::size_t kShown = 8;  // runs that do not hang
  std::string text;
  for (const json& v : d["verdicts"]) text += fmt::format("{} {}\n", in(Colour::red, "run " + v["run"].get<std::string>() + ":"), printable(v["text"]));
  if (!text.empty()) return text;
  text = fmt::format("nothing hangs; {} under way\n", d["runs"] == 1 ? "1 run is" : fmt::format("{} runs are", d["runs"].get<int>()));
  const json& doing = d["doing"];
  for (std::size_t i = 0; i < std::min(kShown, doing.size()); ++i) text += fmt::format("run {}: {}\n", printable(doing[i]["run"]), printable(doing[i]["text"]));
  if (doing.size() > kShown) text += fmt::format("and {} more: troupe ps\n", doing.size() - kShown);
  return text;
}

int diagnose(const LookFlags& flags) {
  return repeat(flags, [&] {
    const std::string said = fetch(flags, "/api/diagnose", 10);
    const json d = json::parse(said);
    if (flags.json) print(said + "\n");
    else print(diagnosis_text(d));
    return d["verdicts"].empty() ? 0 : kHangs;
  });
}

int trace(const LookFlags& flags) {
  Output out(flags.out);
  const std::string said = fetch(flags, fmt::format("/api/trace?seconds={}", flags.seconds), flags.seconds + 60);  // nodes have 10 s to answer, who reads it 30
  out.write(said);
  if (flags.out.empty()) return 0;
  // What it says of itself stands behind the events, which may be half a million.
  const auto at = said.rfind("\"otherData\":");
  const json whole = json::parse(at == std::string::npos ? said : "{" + said.substr(at));
  const json& other = whole["otherData"];
  if (flags.json) {
    json line = other;
    line.update({{"file", flags.out}, {"seconds", flags.seconds}});
    print(json_text(line) + "\n");
    return 0;
  }
  const auto in_seconds = [](std::int64_t ns) { return fmt::format("{:.1f} s", static_cast<double>(ns) * 1e-9); };
  fmt::print("{}: {} events; covers {} of {}", flags.out, grouped(other["events"]), in_seconds(other["covered_ns"]), in_seconds(other["asked_ns"]));
  if (other["lost"] > 0) fmt::print("; {} events did not fit", grouped(other["lost"]));
  fmt::print("\n");
  if (other["thinned"] > 0) fmt::print("{} short firings were not drawn: drawing takes a sixteenth of a turn at most\n", grouped(other["thinned"]));
  fmt::print("open it in https://ui.perfetto.dev or chrome://tracing\n");
  return 0;
}

}  // namespace troupe::verbs
