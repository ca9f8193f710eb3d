// troupe ps, inspect, graph, diagnose, trace: a running node's answers, for people. `--json`: the
// answer unchanged.
#include <troupe/apps/verbs/client.hpp>

#include <algorithm>
#include <cstdio>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <troupe/ops/format/json_text.hpp>
#include <troupe/ops/graph/suggest_name.hpp>

namespace troupe::verbs {
namespace {

using json = nlohmann::json;

constexpr int kHangs = 3;  // exit status; differs from 1, which means no answer

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
  for (const json& row : table.at("rows")) {
    json& o = all.emplace_back(json::object());
    for (std::size_t c = 0; c < row.size(); ++c)
      o[table.at("columns").at(c).get<std::string>()] = row[c];
  }
  return all;
}

/// The runs of the last hour that failed, each once, although several nodes may report it: as its
/// owner reports it, if the owner is there. Then the command that resumes the latest.
std::string failed_text(const json& s) {
  struct Failed {
    json said;
    std::vector<std::string> nodes, flights;
  };
  constexpr std::size_t kMost = 8;
  if (!s.contains("errors")) return {};
  std::vector<Failed> all;
  std::size_t more = 0;
  for (const json& e : s.at("errors")) {
    const auto known = std::find_if(all.begin(), all.end(), [&](const Failed& f) {
      return f.said.at("run") == e.at("run") && f.said.at("incarnation") == e.at("incarnation");
    });
    if (known == all.end() && all.size() == kMost) {
      ++more;
      continue;
    }
    Failed& f = known == all.end() ? all.emplace_back(Failed{e, {}, {}}) : *known;
    if (e.at("owned").get<bool>()) f.said = e;
    f.nodes.push_back(e.at("node"));
    if (const std::string flight = e.at("flight"); !flight.empty())
      f.flights.push_back(fmt::format("{} on node {}", flight, f.nodes.back()));
  }
  if (all.empty()) return {};
  Table failed({"FAILED", "AGO", "TIMES", "TOLD BY", "WHY"});
  for (const Failed& f : all) {
    const double ago = s.at("time_ns").get<double>() - f.said.at("time_ns").get<double>();
    failed.add({f.said.at("run"), time_text(std::max(0.0, ago)),
                count_text(f.said.at("times").get<double>()),
                fmt::format("{}", fmt::join(f.nodes, ",")), f.said.at("text")},
               Colour::red);
  }
  std::string out = "\n" + failed.text();
  if (more > 0) out += fmt::format("and {} more, which --json has\n", more);
  const Failed& last = all[0];
  out += printable(fmt::format("to go on after {}: {}", last.said.at("run").get<std::string>(),
                               last.said.at("how").get<std::string>())) +
         "\n";
  for (const std::string& flight : last.flights)
    out += printable(fmt::format("flight record: {}", flight)) + "\n";
  return out;
}

std::string ps_text(const json& s) {
  Table nodes({"NODE", "STATE", "CPU", "MEMORY", "WORKERS", "OUT", "IN", "QUEUED", "ADDRESS"});
  for (const json& n : s.at("nodes")) {
    if (!n.at("reachable").get<bool>()) {
      nodes.add({n.at("name"), n.at("state"), "-", "-", "-", "-", "-", "-",
                 fmt::format("does not answer: {}", n.at("why").get<std::string>())},
                Colour::red);
      continue;
    }
    const json& t = n.at("transport");
    nodes.add(
        {n.at("name"), n.at("state"),
         fmt::format("{:.2f}/{}", n.at("cpu").get<double>(), n.at("cores").get<int>()),
         bytes_text(n.at("memory").at("resident")), std::to_string(n.at("workers").get<int>()),
         bytes_text(t.at("sent_bytes")), bytes_text(t.at("received_bytes")),
         bytes_text(t.at("queued_bytes")), n.at("address")},
        colour_of(n.at("state")));
  }
  std::string out = nodes.text();
  Table devices({"DEVICE", "IN USE", "RESERVED", "AT MOST", "FREE", "LIMIT", "SWAPPED", "OPEN"});
  for (const json& n : s.at("nodes"))
    if (n.at("reachable").get<bool>())
      for (const json& d : n.at("devices")) {
        const auto unless_none = [&](const char* field) {
          return d.at(field) == 0 ? std::string("-") : bytes_text(d.at(field));
        };
        double open = 0;  // pieces of work of its queues that have not ended
        for (const json& q : d.at("queues")) open += q.at("depth").get<double>();
        devices.add({d.at("name"), bytes_text(d.at("in_use")), bytes_text(d.at("reserved")),
                     bytes_text(d.at("peak")), unless_none("free"), unless_none("limit"),
                     unless_none("swapped"), count_text(open)});
      }
  if (!devices.is_empty()) out += "\n" + devices.text();
  constexpr std::size_t kMostLinks = 20;
  // the links with the most waiting bytes first
  std::vector<std::pair<double, std::vector<std::string>>> ways;
  for (const json& n : s.at("nodes")) {
    if (!n.at("reachable").get<bool>()) continue;
    for (const json& p : n.at("peers"))
      ways.push_back(
          {p.at("queued_bytes").get<double>() + p.at("unacknowledged_bytes").get<double>(),
           {n.at("name"), p.at("node"), bytes_text(p.at("sent_bytes")),
            bytes_text(p.at("received_bytes")), bytes_text(p.at("queued_bytes")),
            bytes_text(p.at("unacknowledged_bytes")),
            p.at("round_trip_ns") == 0 ? "-" : time_text(p.at("round_trip_ns"))}});
  }
  if (ways.size() > kMostLinks)
    std::stable_sort(ways.begin(), ways.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
  Table links({"FROM", "TO", "SENT", "RECEIVED", "QUEUED", "UNACKED", "ROUND TRIP"});
  for (auto& [waiting, row] : ways) links.add(std::move(row));
  if (!links.is_empty()) out += "\n" + links.text(SIZE_MAX, kMostLinks + 2);
  Table plans({"PLAN", "ACTORS", "EDGES", "RUNS", "FAILED", "NODES"});
  for (const json& p : s.at("plans"))
    plans.add({p.at("id"), std::to_string(p.at("actors").get<int>()),
               std::to_string(p.at("edges").get<int>()), count_text(p.at("runs_started")),
               count_text(p.at("runs_failed")), joined(p.at("nodes"))});
  if (!plans.is_empty()) out += "\n" + plans.text();
  Table runs({"RUN", "PLAN", "STEP", "FOR", "FIRED", "STATE", "NODES", "WHAT"});
  for (const json& r : s.at("runs")) {
    std::string what =
        r.at("verdicts").empty() ? std::string() : r.at("verdicts")[0].get<std::string>();
    runs.add({r.at("id"), r.at("plan"), std::to_string(r.at("step").get<std::uint64_t>()),
              time_text(r.at("for_ns")), count_text(r.at("fired")), r.at("state"),
              joined(r.at("nodes")), what},
             colour_of(r.at("state")));
  }
  out += runs.is_empty() ? "\nno run is under way\n" : "\n" + runs.text();
  out += failed_text(s);
  Table recent({"ENDED", "PLAN", "TOOK", "OUTCOME"});
  for (std::size_t i = 0; i < std::min<std::size_t>(5, s.at("recent").size()); ++i) {
    const json& r = s.at("recent")[i];
    recent.add({r.at("id"), r.at("plan"), time_text(r.at("took_ns")),
                r.at("ok").get<bool>() ? "ok" : r.at("error").get<std::string>()},
               r.at("ok").get<bool>() ? Colour::none : Colour::red);
  }
  if (!recent.is_empty()) out += "\n" + recent.text();
  return out;
}

/// NODE/NUMBER:NUMBER, of which there may be names too.
bool may_be_id(const std::string& text) {
  const auto slash = text.find('/'), colon = text.rfind(':');
  if (slash == std::string::npos || slash == 0 || colon == std::string::npos ||
      colon <= slash + 1 || colon + 1 == text.size())
    return false;
  const std::string plan = text.substr(slash + 1, colon - slash - 1),
                    actor = text.substr(colon + 1);
  return (plan + actor).find_first_not_of("0123456789") == std::string::npos;
}

constexpr const char* kSeeBody =
    "compile with CompileOptions::resident_loops = false to see the nodes of its body";

/// The names of actors, with their scopes and without, and the loop of a ResidentLoop; empty: there
/// is none.
struct Names {
  std::vector<std::string> all;
  std::string resident;
};

/// The actors of a name, with its scopes or without, in the newest plan that has it; there a name
/// with all its scopes comes first. `names`: those there are, if none has it.
std::vector<std::string> ids_of(const LookFlags& flags, const std::string& name, Names& names) {
  const json state = parsed(fetch(flags, "/api/state"));
  std::vector<std::string> found, within;  // within: scopes
  std::vector<json> plans = state.at("plans");
  std::stable_sort(plans.begin(), plans.end(), [](const json& a, const json& b) {
    return a.at("made_ns").get<std::int64_t>() > b.at("made_ns").get<std::int64_t>();
  });
  for (auto plan = plans.begin(); plan != plans.end() && found.empty() && within.empty(); ++plan) {
    std::string said;
    try {
      said = fetch(flags, "/api/plan?id=" + encoded((*plan).at("id")), 60);
    } catch (const Misuse&) {  // the plan has ended since the node listed it
      continue;
    }
    const json p = parsed(said);
    for (const json& a : rows_of(p.at("actors"))) {
      const std::string full = a.at("name"), last = full.substr(full.rfind('/') + 1);
      if (full == name) found.push_back(a.at("id"));
      else if (last == name) within.push_back(a.at("id"));
      names.all.push_back(full);
      if (last != full) names.all.push_back(last);
      if (a.value("op", "") == "ResidentLoop") names.resident = a.at("frame");
    }
  }
  return found.empty() ? within : found;
}

/// The one of them; of none or several throws Misuse, with the nearest name, or with the ids.
std::string only_of(std::vector<std::string> found, const std::string& name, const Names& names) {
  if (found.size() == 1) return found[0];
  if (!found.empty()) {
    constexpr std::size_t kMostIds = 20;
    const std::size_t rest = found.size() - std::min(found.size(), kMostIds);
    found.resize(found.size() - rest);
    throw Misuse(printable(fmt::format("{} actors have the name '{}': {}{}; give the id of one",
                                       found.size() + rest, name, fmt::join(found, ", "),
                                       rest == 0 ? "" : fmt::format(" and {} more", rest))));
  }
  const std::string like = did_you_mean(name, {names.all.begin(), names.all.end()});
  const std::string body = names.resident.empty()
                               ? ""
                               : fmt::format("; if it is in loop '{}', which is one actor, {}",
                                             names.resident, kSeeBody);
  throw Misuse(printable(fmt::format("there is no actor '{}'{}{}", name,
                                     !like.empty()       ? like
                                     : names.all.empty() ? ": no plan is there"
                                                         : "; 'troupe graph' lists them",
                                     body)));
}

/// Returns the node's answer about an actor, by its id or by its name.
std::string said_of(const LookFlags& flags, const std::string& what) {
  if (what.empty()) throw Misuse("name an actor: by its id, such as a/3:12, or by its name");
  const auto of = [&](const std::string& id) {
    return fetch(flags, "/api/actor?id=" + encoded(id), 10);
  };
  Names names;
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
  const std::string kind = w.at("kind"), state = w.at("state"), from = w.at("from"),
                    tag = w.at("tag");
  std::string out =
      kind == "token"    ? fmt::format("by {}", w.at("device").get<std::string>())
      : kind == "grant"  ? fmt::format("for room at {}, which has not granted its token", from)
      : kind == "device" ? std::string("for its predicate, from the device")
      : state.empty()    ? std::string("for its kernel to end")
                         : (state.starts_with("actor ") ? "for an answer of " : "at ") + state;
  if (w.at("for_ns").get<std::int64_t>() > 0) out += " for " + time_text(w.at("for_ns"));
  if (!tag.empty()) out += ", in " + tag;
  return fmt::format("{}, in run {}{}", out, w.at("run").get<std::string>(),
                     times == 1 ? "" : fmt::format(", and in {} more iterations", times - 1));
}

/// Merges waits that differ in the iteration only: the first of each kind, and their number.
std::vector<std::pair<json, std::size_t>> alike(const json& waits) {
  std::vector<std::pair<json, std::size_t>> all;
  for (const json& w : waits) {
    const auto is_like = [&](const auto& other) {
      const char* words[] = {"kind", "state", "device", "from", "run"};
      return std::all_of(std::begin(words), std::end(words),
                         [&](const char* word) { return other.first.at(word) == w.at(word); });
    };
    const auto known = std::find_if(all.begin(), all.end(), is_like);
    if (known == all.end()) all.emplace_back(w, 1);
    else ++known->second;
  }
  return all;
}

/// `Dequeue 'take' a/3:2, as input 0, in iteration 2 of loop 'w'`
std::string awaited_text(const json& a) {
  const std::string tag = a.at("waiting_tag");
  std::string out = a.at("waiting_for");
  for (const json& e : a.at("inputs"))
    if (e.at("actor") == a.at("waiting_for") && e.at("input") == a.at("waiting_input")) {
      out = fmt::format("{} '{}' {}", e.at("op").get<std::string>(),
                        e.at("name").get<std::string>(), e.at("actor").get<std::string>());
      break;
    }
  out += a.at("waiting_input") == -1
             ? std::string(", over a control edge")
             : fmt::format(", as input {}", a.at("waiting_input").get<int>());
  return tag.empty() ? out : out + ", in " + tag;
}

std::string actor_text(const json& a) {
  std::string out = in(Colour::bold, printable(fmt::format("{} '{}'", a.at("op").get<std::string>(),
                                                           a.at("name").get<std::string>()))) +
                    "  " + printable(a.at("id")) + "\n";
  const auto line = [&](const char* what, const std::string& value, Colour colour = Colour::none) {
    if (!value.empty()) out += fmt::format("  {:<12}{}\n", what, in(colour, printable(value)));
  };
  line("state", a.at("state"), colour_of(a.at("state")));
  line("device", a.at("device"));
  line("line", a.at("line"));
  line("frame", a.at("frame"));
  if (a.at("op") == "ResidentLoop") line("body", fmt::format("one actor; {}", kSeeBody));
  line("attributes", a.at("attributes"));
  if (a.contains("fires"))
    line("fires", fmt::format("{} and {} dead; {} each, {} in all; {} in, {} out",
                              count_text(a.at("fires")), count_text(a.at("dead")),
                              time_text(a.at("sampled_cost_ns")), time_text(a.at("busy_ns")),
                              a.at("bytes_in").is_null() ? "an unknown number of bytes"
                                                         : bytes_text(a.at("bytes_in")),
                              bytes_text(a.at("bytes_out"))));
  if (a.contains("waiting_for") && a.at("waiting_for") != "")
    line("waits for", awaited_text(a), Colour::yellow);
  if (a.contains("queue"))
    line("queue", fmt::format("{} of {} elements", count_text(a.at("queue").at("elements")),
                              count_text(a.at("queue").at("capacity"))));
  for (const auto& [w, times] : alike(a.at("waits")))
    line(w.at("kind") == "token" ? "awaited" : "waits", wait_text(w, times), Colour::yellow);
  if (a.contains("loop") && a.at("loop").at("executions") > 0)
    line("loop", fmt::format("{} execution{}, {} iterations; {:.2f} open at once over the {} that "
                             "it was open (at most {}, allowed {}); {:.0f} % waited for the limit",
                             count_text(a.at("loop").at("executions")),
                             a.at("loop").at("executions") == 1 ? "" : "s",
                             count_text(a.at("loop").at("iterations")),
                             a.at("loop").at("achieved_parallelism").get<double>(),
                             time_text(a.at("loop").at("open_ns")),
                             a.at("loop").at("most_parallel").get<std::uint64_t>(),
                             a.at("loop").at("window").get<int>(),
                             100 * a.at("loop").at("limited_by_window").get<double>()));
  for (const json& l : a.at("open_iterations"))
    line("iterations",
         fmt::format("{} to {} open, of {} at most, in run {}", l.at("first").get<std::int64_t>(),
                     l.at("last").get<std::int64_t>(), l.at("window").get<int>(),
                     l.at("run").get<std::string>()));
  for (const char* side : {"inputs", "outputs"})
    for (const json& e : a.at(side))
      line(side[0] == 'i' ? "input" : "output",
           fmt::format(
               "{} '{}' {} {}{}{}", e.at("op").get<std::string>(), e.at("name").get<std::string>(),
               e.at("actor").get<std::string>(), e.at("dtype").get<std::string>(),
               e.at("shape").get<std::string>(),
               e.contains("tokens")
                   ? fmt::format("; {} tokens, {} in flight, window {}", count_text(e.at("tokens")),
                                 e.at("in_flight").get<std::uint64_t>(), e.at("window").get<int>())
                   : ""));
  for (const json& e : a.at("errors")) line("error", e, Colour::red);
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
  const std::vector<json> actors = rows_of(plan.at("actors")), edges = rows_of(plan.at("edges"));
  std::string out;
  if (dot) {
    out = "digraph " + quoted(plan.at("id")) + " {\n";
    for (const json& a : actors)
      out += fmt::format("  {} [label={}];\n", quoted(a.at("id")),
                         quoted(fmt::format("{} {}", a.at("op").get<std::string>(),
                                            a.at("name").get<std::string>())));
    for (const json& e : edges)
      out += fmt::format("  {} -> {}{};\n", quoted(e.at("from")), quoted(e.at("to")),
                         e.at("kind") == "control" ? " [style=dotted]"
                         : e.at("cut").get<bool>() ? " [style=dashed]"
                                                   : "");
    return out + "}\n";
  }
  std::map<std::string, std::string> inputs;
  for (const json& e : edges) {
    std::string& of = inputs[e.at("to").get<std::string>()];
    const std::string from = e.at("from");
    of += (of.empty() ? "" : " ") + from.substr(from.rfind(':') + 1) +
          (e.at("kind") == "control" ? "!"
           : e.at("cut").get<bool>() ? "~"
                                     : "");
  }
  Table table({"ACTOR", "OP", "NAME", "DEVICE", "LINE", "FROM (~ cut, ! control)"});
  for (const json& a : actors)
    table.add({a.at("id"), a.at("op"), a.at("name"), a.at("device"), a.at("line"),
               inputs[a.at("id").get<std::string>()]});
  return table.text();
}

}  // namespace

int ps(const LookFlags& flags) {
  return repeat(flags, [&] {
    const std::string said = fetch(flags, "/api/state");
    print(flags.json ? said + "\n" : ps_text(parsed(said)));
    return 0;
  });
}

int inspect(const LookFlags& flags) {
  return repeat(flags, [&] {
    const std::string said = said_of(flags, flags.what);
    print(flags.json ? said + "\n" : actor_text(parsed(said)));
    return 0;
  });
}

int graph(const LookFlags& flags) {
  return repeat(flags, [&] {
    std::string id = flags.what;
    if (id.empty()) {
      const json state = parsed(fetch(flags, "/api/state"));
      std::int64_t made = 0;
      for (const json& p : state.at("plans"))
        if (p.at("made_ns").get<std::int64_t>() >= made) made = p.at("made_ns"), id = p.at("id");
      if (id.empty()) throw Misuse("no plan is there yet");
    }
    const std::string said = fetch(flags, "/api/plan?id=" + encoded(id), 60);
    print(flags.json ? said + "\n" : graph_text(parsed(said), flags.dot));
    return 0;
  });
}

std::string diagnosis_text(const json& d) {
  constexpr std::size_t kShown = 8;  // runs that do not hang
  std::string text;
  for (const json& v : d.at("verdicts"))
    text += fmt::format(
        "{} {}\n",
        in(Colour::red, printable(fmt::format("run {}:", v.at("run").get<std::string>()))),
        printable(v.at("text")));
  if (!text.empty()) return text;
  text = fmt::format(
      "nothing hangs; {} under way\n",
      d.at("runs") == 1 ? "1 run is" : fmt::format("{} runs are", d.at("runs").get<int>()));
  const json& doing = d.at("doing");
  for (std::size_t i = 0; i < std::min(kShown, doing.size()); ++i)
    text +=
        fmt::format("run {}: {}\n", printable(doing[i].at("run")), printable(doing[i].at("text")));
  if (doing.size() > kShown) text += fmt::format("and {} more: troupe ps\n", doing.size() - kShown);
  return text;
}

int diagnose(const LookFlags& flags) {
  return repeat(flags, [&] {
    const std::string said = fetch(flags, "/api/diagnose", 10);
    const json d = parsed(said);
    if (flags.json) print(said + "\n");
    else print(diagnosis_text(d));
    return d.at("verdicts").empty() ? 0 : kHangs;
  });
}

int trace(const LookFlags& flags) {
  Output out(flags.out);
  // nodes have 10 s to answer, this process 30 s to read
  const std::string said =
      fetch(flags, fmt::format("/api/trace?seconds={}", flags.seconds), flags.seconds + 60);
  out.write(said);
  if (flags.out.empty()) return 0;
  // The trace's own summary stands behind the events, which may be half a million.
  const auto at = said.rfind("\"otherData\":");
  const json whole = parsed(at == std::string::npos ? said : "{" + said.substr(at));
  const json& other = whole.at("otherData");
  if (flags.json) {
    json line = other;
    line.update({{"file", flags.out}, {"seconds", flags.seconds}});
    print(json_text(line) + "\n");
    return 0;
  }
  const auto in_seconds = [](std::int64_t ns) {
    return fmt::format("{:.1f} s", static_cast<double>(ns) * 1e-9);
  };
  fmt::print("{}: {} events; covers {} of {}", flags.out, grouped(other.at("events")),
             in_seconds(other.at("covered_ns")), in_seconds(other.at("asked_ns")));
  if (other.at("lost") > 0) fmt::print("; {} events did not fit", grouped(other.at("lost")));
  fmt::print("\n");
  if (other.at("thinned") > 0)
    fmt::print("{} short firings were not drawn: drawing takes a sixteenth of a turn at most\n",
               grouped(other.at("thinned")));
  fmt::print("open it in https://ui.perfetto.dev or chrome://tracing\n");
  return 0;
}

}  // namespace troupe::verbs
