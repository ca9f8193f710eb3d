#include <troupe/actors/executor/trace_file.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <troupe/ops/format/disk.hpp>
#include <troupe/ops/format/json_text.hpp>
#include <troupe/ops/format/replaced_file.hpp>

namespace troupe {
namespace {

// Turns the name of a node, which another node may have sent, into a part of a file's name without
// '@'.
std::string for_file(const std::string& name) {
  constexpr std::size_t kLongest = 60;
  std::string out = name.substr(0, kLongest);
  for (char& c : out)
    if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '-' &&
        c != '.')
      c = '_';
  return out.empty() ? "local" : out;
}

}  // namespace

const char* name_of(RecordedEvent::Kind kind) {
  constexpr const char* names[] = {"turn",    "kernel", "firing", "send",
                                   "receive", "wait",   "copy",   "failure"};
  return names[static_cast<std::size_t>(kind)];
}

std::string title_of(const RecordedEvent& event, const std::string& node) {
  using Kind = RecordedEvent::Kind;
  if (event.kind == Kind::turn) return fmt::format("{} firings", event.tag);
  if (event.kind == Kind::failure && event.node < 0) return "failed";
  if (event.kind == Kind::copy && event.node < 0) return "to the host";
  if (event.kind == Kind::kernel && event.node < 0)
    return fmt::format("a graph of {} launches", event.tag);
  return (event.kind == Kind::wait      ? "waits: "
          : event.kind == Kind::failure ? "failed: "
                                        : "") +
         node;
}

std::string flight_file(const std::string& folder, const std::string& node,
                        const std::string& owner, const std::string& run, std::size_t most) {
  namespace fs = std::filesystem;
  constexpr std::string_view kEnd = ".flight.json";
  const std::string mine = for_file(node) + "@",
                    file = fmt::format("{}{}-{}{}", mine, for_file(owner), for_file(run), kEnd);
  // nodes whose files fit in a folder, if each node has `most`; old names of nodes leave files too
  constexpr std::size_t kNodes = 16;
  std::vector<std::pair<fs::file_time_type, fs::path>> others;
  std::error_code ignored;  // an unreadable folder is reported when the file cannot be written
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    std::error_code gone;  // another process of that name removed it meanwhile
    if (name != file && name.find('@') != std::string::npos && name.ends_with(kEnd))
      others.emplace_back(it->last_write_time(gone), it->path());
  }
  std::sort(others.rbegin(), others.rend());  // the newest first
  std::size_t of_node = 1, of_all = 1;        // files that are kept, with this one
  for (const auto& [written, path] : others) {
    const bool is_of_node = path.filename().string().starts_with(mine);
    if (of_all >= kNodes * most || (is_of_node && of_node >= most)) fs::remove(path, ignored);
    else ++of_all, of_node += is_of_node;
  }
  return folder + "/" + file;
}

std::int64_t Slice::arrow_ns() const {
  return event->kind == RecordedEvent::Kind::send
             ? begin_ns
             : begin_ns + std::min<std::int64_t>(200, length_ns / 2);
}

std::vector<Slice> slices(std::vector<const RecordedEvent*> events) {
  constexpr std::int64_t kMoment = 500;  // ns
  std::vector<Slice> all;
  all.reserve(events.size());
  const auto is_moment = [](const Slice& s) {
    return s.event->kind == RecordedEvent::Kind::send ||
           s.event->kind == RecordedEvent::Kind::receive;
  };
  for (const RecordedEvent* e : events) {
    Slice& s = all.emplace_back(Slice{e, e->begin_ns, e->length_ns, 0});
    s.length_ns = std::max(e->length_ns, is_moment(s) ? kMoment : 1);
  }
  std::stable_sort(all.begin(), all.end(), [](const Slice& a, const Slice& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.length_ns > b.length_ns;
  });
  std::vector<std::vector<Slice*>> lanes(1);  // by row: the open slices, the innermost last
  for (Slice& s : all) {
    const auto end = [](const Slice& of) { return of.begin_ns + of.length_ns; };
    for (s.lane = 0; s.lane < Slice::kMost; ++s.lane) {
      if (s.lane == lanes.size()) lanes.emplace_back();
      std::vector<Slice*>& open = lanes[s.lane];
      // A moment is cut short by a slice that begins after it. A slice that begins with it goes
      // to another row.
      while (!open.empty() && (end(*open.back()) <= s.begin_ns ||
                               (is_moment(*open.back()) && end(*open.back()) < end(s) &&
                                open.back()->begin_ns < s.begin_ns))) {
        open.back()->length_ns =
            std::min(open.back()->length_ns, s.begin_ns - open.back()->begin_ns);
        open.pop_back();
      }
      if (!open.empty() && is_moment(s))
        s.length_ns = std::min(s.length_ns, end(*open.back()) - s.begin_ns);
      if (!open.empty() && end(*open.back()) < end(s)) continue;
      open.push_back(&s);
      break;
    }
  }
  return all;
}

std::string run_name(const std::string& owner, std::uint64_t number) {
  return number == 0 ? std::string() : fmt::format("{}/{}", owner, number);
}

std::string slice_text(const Slice& s, const std::string& name, const std::string& run,
                       double begin_us, int process, std::size_t track, std::uint64_t number) {
  const std::string args =
      fmt::format("{{\"run\":{},\"{}\":{}}}", json_text(run),
                  s.event->kind == RecordedEvent::Kind::turn                          ? "fired"
                  : s.event->kind == RecordedEvent::Kind::kernel && s.event->node < 0 ? "launches"
                                                                                      : "iteration",
                  s.event->tag);
  const char* kind = name_of(s.event->kind);
  const double length_us = static_cast<double>(s.length_ns) * 1e-3;
  if (s.lane < Slice::kMost)
    return fmt::format(
        "{{\"ph\":\"X\",\"name\":{},\"cat\":\"{}\",\"ts\":{:.3f},\"dur\":{:.3f},\"pid\":{},\"tid\":"
        "{},\"args\":{}}}",
        name, kind, begin_us, length_us, process, track + s.lane, args);
  const std::string id =
      fmt::format("\"cat\":\"{}\",\"name\":{},\"id\":\"{}.{}\",\"pid\":{},\"tid\":{}", kind, name,
                  track, number, process, track);
  return fmt::format(
      "{{\"ph\":\"b\",{},\"ts\":{:.3f},\"args\":{}}},\n{{\"ph\":\"e\",{},\"ts\":{:.3f}}}", id,
      begin_us, args, id, begin_us + length_us);
}

namespace {

Status unwritten(const std::string& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return {is_full ? Code::resource_exhausted : Code::failed_precondition,
          fmt::format("the trace cannot be written to '{}': {}; {}name another file", path,
                      std::strerror(error), is_full ? "make room or " : "")};
}

// A pipe or a device: there is no earlier file to keep.
Status write_through(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (!file) return unwritten(path, errno);
  errno = 0;
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (std::fclose(file) == 0 && is_written) return {};
  return unwritten(path, !is_written && error ? error : errno ? errno : EIO);
}

// Half a trace is none: viewers refuse it. An earlier one stays until the new one is whole.
Status write_whole(const std::string& path, const std::string& text) {
  const ReplacedFile old = replaced_file(path);
  if (old.is_there && !old.is_regular) return write_through(path, text);
  try {
    write_text(real_disk(), path, text);
    return {};
  } catch (const Error& e) {
    std::string why = e.what();  // cannot save 'PATH': WHY
    if (const std::size_t at = why.find("': "); at != std::string::npos) why.erase(0, at + 3);
    return {e.code(), fmt::format("the trace cannot be written to '{}': {}", path, why)};
  }
}

}  // namespace

Status write_trace(const std::string& path, const TracedRun& run, const Plan& plan,
                   const std::vector<PartitionSnapshot>& partitions) {
  using Kind = RecordedEvent::Kind;
  std::int64_t origin = INT64_MAX;
  std::set<std::uint64_t> sent, received;
  for (const PartitionSnapshot& p : partitions)
    for (const RecordedEvent& e : p.events) {
      origin = std::min(origin, e.begin_ns);
      if (e.flow) (e.kind == Kind::send ? sent : received).insert(e.flow);
    }
  if (origin == INT64_MAX) origin = run.begin_ns;
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  std::size_t tracks = 0;
  std::uint64_t overlapping = 0;
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  for (const PartitionSnapshot& p : partitions) {
    std::vector<const RecordedEvent*> events;
    for (const RecordedEvent& e : p.events) events.push_back(&e);
    std::size_t lanes = 0;
    for (const Slice& s : slices(std::move(events))) {
      const RecordedEvent& e = *s.event;
      for (; lanes <= s.lane && lanes < Slice::kMost; ++lanes)
        out += fmt::format(
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":{}}}}"
            "},\n",
            tracks + lanes + 1, json_text(p.device));
      const std::string name = title_of(
          e, e.node < 0 ? std::string() : plan.program.graph.describe(plan.node_of_number(e.node)));
      const std::size_t track = tracks + s.lane + 1;
      overlapping += s.lane == Slice::kMost;
      out += slice_text(s, json_text(name), run_name(plan.name.owner, e.run),
                        us(s.begin_ns - origin), 1, tracks + 1, overlapping) +
             ",\n";
      if (e.flow && sent.contains(e.flow) && received.contains(e.flow))
        out += fmt::format(
            "{{\"ph\":\"{}\",\"bp\":\"e\",\"name\":\"token\",\"cat\":\"token\",\"id\":\"{}\","
            "\"ts\":{:.3f},\"pid\":1,\"tid\":{}}},\n",
            e.kind == Kind::send ? "s" : "f", e.flow, us(s.arrow_ns() - origin), track);
    }
    tracks += lanes;
  }
  std::uint64_t lost = 0, thinned = 0;
  for (const PartitionSnapshot& p : partitions)
    lost += p.dropped_events, thinned += p.thinned_events;
  const std::string begin =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                  fmt::gmtime(static_cast<std::time_t>(run.begin_ns / 1'000'000'000)),
                  run.begin_ns / 1'000'000 % 1000);
  out += fmt::format(
      "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":0,\"args\":{{\"name\":{}}}}}\n],"
      "\n",
      json_text(run.node.empty() ? "plan " + plan.name.text() : "node " + run.node));
  out += fmt::format(
      "\"otherData\":{{\"node\":{},\"run\":{},\"plan\":{},\"begin\":\"{}\",\"begin_ns\":\"{}\","
      "\"took_ns\":{},\"origin_ns\":\"{}\",\"lost\":{},\"thinned\":{},\"overlapping\":{},\"error\":"
      "{}}}}}\n",
      json_text(run.node), json_text(run.run), json_text(plan.name.text()), begin, run.begin_ns,
      run.took_ns, origin, lost, thinned, overlapping, json_text(run.error));
  return write_whole(path, out);
}

}  // namespace troupe
