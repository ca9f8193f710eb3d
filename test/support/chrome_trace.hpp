// A trace in Chrome's format, read as chrome://tracing and Perfetto read it: what they would drop,
// move or leave without a name.
//
//   BOOST_TEST(well_formed(trace).arrows > 0);
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <troupe/test/support/process.hpp>

namespace troupe::test {

class ChromeTrace {
 public:
  std::vector<std::string> faults;  // the first hundred, each with the event
  int arrows = 0, slices = 0, pairs = 0, names = 0;

  /// Arrows may run backwards by as much as clocks may be off, in µs.
  explicit ChromeTrace(const nlohmann::json& trace, double off = 0) : off_(off) {
    if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
      fault("no list of events", {});
      return;
    }
    if (trace.value("displayTimeUnit", std::string()) != "ns")
      fault("times are shown in no unit", {});
    for (const auto& e : trace["traceEvents"]) read(e);
    for (const auto& [track, open] : begun_)
      for (const auto& e : open) fault("begins and does not end", e);
    for (const auto& [id, pair] : open_pairs_) fault("begins and does not end", pair);
    for (const auto& [track, spans] : spans_) nest(spans);
    for (const auto& [id, ends] : flows_) join(ends);
    for (const auto& [track, e] : used_) {
      if (!named_.contains({track.first, std::nullopt})) fault("a process without a name", e);
      if (!named_.contains(track)) fault("a thread without a name", e);
    }
  }
  std::string text() const {
    std::string out;
    for (const std::string& f : faults) out += f + "\n";
    return out;
  }

 private:
  using Event = nlohmann::json;
  // process and thread; no thread: the process itself
  using Track = std::pair<std::int64_t, std::optional<std::int64_t>>;
  struct Span {
    std::int64_t begin, end;  // ns
    const Event* event;
  };
  struct Flow {
    std::vector<const Event*> begins, ends;
  };

  void fault(const std::string& what, const Event& e) {
    if (faults.size() < 100)
      faults.push_back(what + ": " +
                       e.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  static std::int64_t ns(const Event& us) { return std::llround(us.get<double>() * 1e3); }
  static bool is_time(const Event& e, const char* field) {
    return e.contains(field) && e[field].is_number() && std::isfinite(e[field].get<double>()) &&
           e[field].get<double>() >= 0;
  }
  static std::string text_of(const Event& e, const char* field) {
    return e.contains(field) && e[field].is_string() ? e[field].get<std::string>() : std::string();
  }
  static Track track_of(const Event& e) {
    return {e["pid"].get<std::int64_t>(), e["tid"].get<std::int64_t>()};
  }

  void read(const Event& e) {
    if (!e.is_object() || text_of(e, "ph").size() != 1) return fault("no phase", e);
    for (const char* field : {"pid", "tid"})
      if (!e.contains(field) || !e[field].is_number_integer() || e[field].get<std::int64_t>() < 0)
        return fault("no process and thread", e);
    const char phase = text_of(e, "ph")[0];
    if (phase != 'M' && !is_time(e, "ts")) return fault("no time", e);
    if (phase != 'E' && text_of(e, "name").empty()) return fault("no name", e);
    if (phase == 'M') return name(e);
    used_.emplace(track_of(e), e);
    switch (phase) {
      case 'X':
        ++slices;
        if (!is_time(e, "dur")) return fault("no length", e);
        return spans_[track_of(e)].push_back({ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), &e});
      case 'B': return begun_[track_of(e)].push_back(e);
      case 'E': return end(e);
      case 'b':
      case 'e': return pair(e, phase == 'b');
      case 's':
      case 'f':
        if (text_of(e, "id").empty() || text_of(e, "cat").empty())
          return fault("an arrow's end that belongs to no other", e);
        if (phase == 'f' && text_of(e, "bp") != "e")
          return fault("an arrow that ends at what comes next", e);
        return (phase == 's' ? flows_[text_of(e, "id")].begins : flows_[text_of(e, "id")].ends)
            .push_back(&e);
      case 'C':
        if (!e.contains("args") || e["args"].empty())
          return fault("a counter that counts nothing", e);
        for (const Event& value : e["args"])
          if (!value.is_number()) return fault("a counter's value that is no number", e);
        return;
      default: fault("an unknown phase", e);
    }
  }
  void name(const Event& e) {
    const std::string what = text_of(e, "name");
    if (what != "process_name" && what != "thread_name") return fault("unknown metadata", e);
    if (!e.contains("args") || text_of(e["args"], "name").empty()) return fault("an empty name", e);
    if (!named_
             .insert(what == "thread_name" ? track_of(e)
                                           : Track{e["pid"].get<std::int64_t>(), std::nullopt})
             .second)
      return fault("a second name", e);
    ++names;
  }
  void end(const Event& e) {
    std::vector<Event>& open = begun_[track_of(e)];
    if (open.empty()) return fault("ends and has not begun", e);
    if (ns(e["ts"]) < ns(open.back()["ts"]) ||
        (e.contains("name") && e["name"] != open.back()["name"]))
      fault("ends what is not open innermost", e);
    open.pop_back();
  }
  // Outside of all tracks.
  void pair(const Event& e, bool begins) {
    const std::string id = text_of(e, "id"), key = text_of(e, "cat") + " " + id;
    if (id.empty() || text_of(e, "cat").empty())
      return fault("half of a pair that belongs to no other", e);
    const auto it = open_pairs_.find(key);
    if (begins) {
      if (!open_pairs_.emplace(key, e).second) fault("begins twice", e);
      return;
    }
    if (it == open_pairs_.end()) return fault("ends and has not begun", e);
    if (it->second["name"] != e["name"] || ns(e["ts"]) < ns(it->second["ts"]))
      fault("ends what is something else", e);
    open_pairs_.erase(it);
    ++pairs;
  }
  // Slices of a track are written as they begin, and lie within each other or apart.
  void nest(const std::vector<Span>& spans) {
    std::vector<Span> open;
    std::int64_t before = 0;
    for (const Span& s : spans) {
      if (s.begin < before) fault("begins before the slice that is written before it", *s.event);
      before = s.begin;
      while (!open.empty() && open.back().end <= s.begin) open.pop_back();
      if (!open.empty() && open.back().end < s.end)
        fault("lies across the end of another slice", *s.event);
      open.push_back(s);
    }
  }
  void join(const Flow& flow) {
    const Event& e = flow.begins.empty() ? *flow.ends[0] : *flow.begins[0];
    if (flow.begins.size() != 1 || flow.ends.size() != 1)
      return fault("an arrow without one beginning and one end", e);
    const Event& end = *flow.ends[0];
    if (e["cat"] != end["cat"] || e["name"] != end["name"])
      fault("an arrow's ends that belong to different ones", end);
    if (end["ts"].get<double>() < e["ts"].get<double>() - off_)
      fault("an arrow that runs backwards", end);
    for (const Event* of : {&e, &end})
      if (!is_within_a_slice(*of)) fault("an arrow's end in no slice", *of);
    ++arrows;
  }
  bool is_within_a_slice(const Event& e) const {
    const auto spans = spans_.find(track_of(e));
    if (spans == spans_.end()) return false;
    const std::int64_t at = ns(e["ts"]);
    const auto after = std::upper_bound(spans->second.begin(), spans->second.end(), at,
                                        [](std::int64_t t, const Span& s) { return t < s.begin; });
    return std::any_of(std::make_reverse_iterator(after), spans->second.rend(),
                       [&](const Span& s) { return at < s.end; });
  }

  const double off_;
  std::map<Track, std::vector<Span>> spans_;
  std::map<Track, std::vector<Event>> begun_;
  std::map<std::string, Event> open_pairs_;
  std::map<std::string, Flow> flows_;
  std::map<Track, Event> used_;
  std::set<Track> named_;
};

/// Reads a trace and checks that it is well formed.
inline ChromeTrace well_formed(const nlohmann::json& trace, double off = 0) {
  ChromeTrace read(trace, off);
  BOOST_TEST(read.faults.empty(), read.text());
  return read;
}

/// The trace of a run on real threads, which is there a little after the run has ended.
inline nlohmann::json written_trace(const std::string& path) {
  nlohmann::json trace;
  do trace = nlohmann::json::parse(read_file(path), nullptr, false);
  while (trace.is_discarded());
  return trace;
}

}  // namespace troupe::test
