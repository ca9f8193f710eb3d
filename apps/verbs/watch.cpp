// troupe watch: a standing query over the engine's own events, of a recorded trace or a running
// node. troupe dependencies: which events of a trace cause which.
#include <troupe/apps/verbs/client.hpp>
#include <troupe/apps/verbs/terminal.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <troupe/actors/dependence/trace_channels.hpp>
#include <troupe/actors/events/direct_run.hpp>
#include <troupe/actors/events/engine_events.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/ops/format/json_text.hpp>

namespace troupe::verbs {
namespace {

using json = nlohmann::json;

std::string trace_in(const std::string& file) {
  return file_text(file, "a file of 'troupe trace -o'");
}

/// Calls `f`; an error of the file gets its name.
template <class F>
auto of_file(const std::string& file, F f) {
  try {
    return f();
  } catch (const Error& error) {
    throw std::runtime_error(fmt::format("'{}': {}", file, error.what()));
  }
}

events::Consistency level_of(const std::string& name, events::Time memory) {
  if (name == "strong") return events::Consistency::strong();
  return name == "middle" ? events::Consistency::middle() : events::Consistency::weak(memory);
}

json json_of(const events::Value& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

/// Rows as they come: `+` a row, `-` one that is taken back, with the window in seconds.
class Changes {
 public:
  Changes(const events::Query& query, bool is_json)
      : schema_(query.steps()[query.outputs()[0].step].schema), is_json_(is_json) {}

  void add(const events::Batch& batch) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const bool is_insert = batch.is_insert(i);
      if (batch.begin[i] > until_) continue;
      const events::Time end = is_insert ? batch.end[i] : batch.old_end[i];
      if (is_json_) {
        json row = {{"change", is_insert ? "insert" : "retract"}, {"begin_ns", batch.begin[i]}};
        row["end_ns"] = batch.end[i];
        for (std::size_t c = 0; c < schema_.size(); ++c)
          row[schema_[c].name] = json_of(events::value_at(batch.columns[c], i));
        text_ += json_text(row) + "\n";
        continue;
      }
      text_ += fmt::format("{} {:.3f}-{:.3f} s", is_insert ? '+' : '-', seconds(batch.begin[i]),
                           seconds(end));
      for (std::size_t c = 0; c < schema_.size(); ++c)
        text_ += fmt::format("  {} {}", schema_[c].name,
                             text_of(schema_[c].name, events::value_at(batch.columns[c], i)));
      text_ += "\n";
    }
  }
  /// Rows that begin later are not shown: a trace ends, and does not show what follows.
  void end_at(events::Time until) { until_ = until; }
  /// On a terminal, which is cleared between two looks, the last rows stay until others come.
  void print() {
    if (!text_.empty() || !is_terminal()) shown_ = std::exchange(text_, "");
    std::fwrite(shown_.data(), 1, shown_.size(), stdout);
  }

 private:
  static double seconds(events::Time ns) { return static_cast<double>(ns) * 1e-9; }
  static std::string text_of(const std::string& field, const events::Value& value) {
    if (const auto* text = std::get_if<std::string>(&value)) return "'" + printable(*text) + "'";
    if (field.ends_with("_ns"))
      return fmt::format("{:.3f} ms", static_cast<double>(std::get<std::int64_t>(value)) * 1e-6);
    return events::text_of(value);
  }

  const events::Schema schema_;
  const bool is_json_;
  events::Time until_ = events::kForever;
  std::string text_, shown_;
};

void complain_of(const events::DirectRun& run) {
  for (const events::Counters& c : run.counters())
    for (const std::string& complaint : c.complaints)
      std::fputs(fmt::format("troupe: {}\n", printable(complaint)).c_str(), stderr);
}

int watch_file(const WatchFlags& flags, events::DirectRun& run, Changes& changes) {
  of_file(flags.trace, [&] {
    events::Key key = 0;
    const auto all = events::events_of_trace(trace_in(flags.trace));
    if (!all.empty()) changes.end_at(events::later(all.back().begin, all.back().length));
    for (events::Batch& batch : events::finished_batches(all, key)) {
      batch.guarantee = batch.begin.back() - 1;  // they are in order
      run.feed("engine", std::move(batch));
    }
    run.finish();
  });
  changes.print();
  complain_of(run);
  return 0;
}

// Takes the events of all nodes that came since the last look, from the place after them. The node
// stamps them by hybrid clocks, and gives the guarantee (cluster/inspect/event_feed.hpp).
int watch_node(const LookFlags& look, events::DirectRun& run, Changes& changes) {
  std::uint64_t next = 0;
  events::Key key = 0;
  bool is_first = true;
  return repeat(look, [&] {
    events::Time guarantee = events::kNever;
    std::uint64_t lost = 0;
    while (guarantee == events::kNever) {
      const events::StreamAnswer answer =
          events::stream_of_answer(fetch(look, fmt::format("/api/stream?after={}", next)));
      for (events::Batch& batch : events::finished_batches(answer.events, key))
        run.feed("engine", std::move(batch));
      lost += answer.lost;
      guarantee = answer.guarantee;
      if (next == answer.next) break;  // the node has no guarantee yet
      next = answer.next;
    }
    if (guarantee != events::kNever) {
      events::Batch last(events::finished_schema());
      last.guarantee = guarantee;
      run.feed("engine", std::move(last));
    }
    changes.print();
    // events before the first look were not missed
    if (lost > 0 && !is_first)
      std::fputs(fmt::format("troupe: {} events came faster than they were taken, and are lost; "
                             "look more often with --watch SECONDS\n",
                             lost)
                     .c_str(),
                 stderr);
    is_first = false;
    return 0;
  });
}

}  // namespace

int watch(const WatchFlags& flags, const LookFlags& look) {
  const auto window = static_cast<events::Time>(flags.window * 1e9);
  events::Query query;
  try {
    query = events::standing_query(flags.query, window);
  } catch (const Error& error) { throw Misuse(error.what()); }
  if (!query.consistency().is_strong()) query.set_consistency(level_of(flags.level, window));
  Changes changes(query, look.json);
  events::DirectRun run(query,
                        [&](std::size_t, const events::Batch& batch) { changes.add(batch); });
  if (!flags.trace.empty()) return watch_file(flags, run, changes);
  LookFlags repeated = look;
  if (repeated.watch <= 0) repeated.watch = flags.window;
  return watch_node(repeated, run, changes);
}

int dependencies(const DependencyFlags& flags) {
  return of_file(flags.trace, [&] {
    constexpr std::size_t kMostChannels = 40;
    const std::string recorded = trace_in(flags.trace);
    dependence::TraceChannels trace =
        dependence::channels_of(events::events_of_trace(recorded), flags.kinds, kMostChannels);
    if (trace.channels.empty())
      throw std::runtime_error(
          fmt::format("'{}' has no events of these kinds; record for longer, or name others with "
                      "--kind",
                      flags.trace));
    auto graph = dependence::find_dependences(
        std::move(trace.channels), trace.end,
        {.support = flags.support, .level = flags.level, .family = flags.family});
    if (flags.changes) dependence::find_changes(graph, flags.level);
    if (flags.truth) dependence::judge(graph, dependence::true_edges_of(recorded, trace.has_nodes));
    const std::string text = flags.dot    ? dot_of(graph)
                             : flags.json ? json_of(graph) + "\n"
                                          : printable_lines(text_of(graph));
    std::fwrite(text.data(), 1, text.size(), stdout);
    for (const std::string& sentence : graph.left_out)
      std::fputs(fmt::format("troupe: {}\n", printable(sentence)).c_str(), stderr);
    if (trace.left_out > 0)
      std::fputs(fmt::format("troupe: {} channels with fewer events take no part; the {} largest "
                             "do\n",
                             trace.left_out, kMostChannels)
                     .c_str(),
                 stderr);
    return 0;
  });
}

}  // namespace troupe::verbs
