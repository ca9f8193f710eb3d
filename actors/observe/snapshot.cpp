#include <troupe/actors/observe/snapshot.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <troupe/actors/observe/sentences.hpp>

namespace troupe {

namespace detail {

bool is_at_queue(const Wait& w) {
  return w.kind == Wait::Kind::kernel &&
         (w.state.starts_with("queue ") || w.state.starts_with("shuffling queue "));
}

}  // namespace detail

using namespace sentences;

namespace detail {

// It begins `Op 'name' (line): ...`, or, of a plan over several nodes, so after `node 'b': `.
std::string actor_of(const std::string& error) {
  std::size_t begin = 0;
  if (error.starts_with("node '"))
    if (const auto quote = error.find('\'', 6);
        quote != std::string::npos && error.compare(quote, 3, "': ") == 0)
      begin = quote + 3;
  const auto colon = error.find("): ", begin);
  return colon == std::string::npos ? std::string() : error.substr(begin, colon + 1 - begin);
}

RunId id_of(const RunSnapshot& run) {
  return run.number != 0 ? RunId{run.owner, run.number, {}, 0} : RunId{0, 0, run.plan, run.run};
}

void add_part(RunSnapshot& run, const RunSnapshot& part) {
  const auto is_known = [&](const PartitionSnapshot& said) {
    return std::any_of(run.partitions.begin(), run.partitions.end(),
                       [&](const PartitionSnapshot& p) { return p.device == said.device; });
  };
  for (const PartitionSnapshot& said : part.partitions)
    if (!is_known(said)) run.partitions.push_back(said);
  std::erase_if(run.other_nodes, [&](const std::string& node) {
    return std::find(part.other_nodes.begin(), part.other_nodes.end(), node) ==
           part.other_nodes.end();
  });
}

}  // namespace detail

std::uint64_t RunSnapshot::fired() const {
  std::uint64_t sum = 0;
  for (const PartitionSnapshot& p : partitions)
    for (const RunPart& part : p.runs) sum += part.fired;
  return sum;
}

std::string how_to_go_on(const EndedRun& failed) {
  const char* const last_save = "start the program again from its last save";
  switch (failed.code) {
    case Code::unavailable:
      return fmt::format("start the node that was lost, or leave it out; then {}", last_save);
    case Code::deadline_exceeded:
      return "see to what the run waited for, or give it more time ('troupe diagnose' names it "
             "while a run is under way)";
    case Code::resource_exhausted:
      return fmt::format("free memory or disk, or ask for less; then {}", last_save);
    case Code::cancelled: return "nothing is to be repaired: the run was cancelled";
    case Code::aborted: return "see the failure of the run on its other nodes";
    case Code::data_loss:
    case Code::failed_precondition:
      return fmt::format("see to the state or the file that is named; then {}", last_save);
    default: break;
  }
  return fmt::format("repair the program at the line that is named; then {}", last_save);
}

std::string EngineSnapshot::text() const {
  std::string out = fmt::format("{}{} worker{}, {} run{} in flight\n",
                                node.empty() ? "" : fmt::format("node '{}', ", node), workers,
                                workers == 1 ? "" : "s", runs.size(), runs.size() == 1 ? "" : "s");
  for (const DeviceSnapshot& d : devices) {
    out += fmt::format(
        "  {}: {:.1f} MiB in use, {:.1f} at most{}\n", d.name,
        static_cast<double>(d.in_use) / 0x1p20, static_cast<double>(d.peak) / 0x1p20,
        d.limit ? fmt::format(", of {:.1f}", static_cast<double>(d.limit) / 0x1p20) : "");
    for (const QueueActivity& q : d.queues)
      if (q.enqueued > 0)
        out +=
            fmt::format("    queue '{}': {} of {} pieces of work under way, busy for {}\n", q.name,
                        q.depth, q.enqueued, time_text(std::chrono::nanoseconds(q.busy_ns)));
  }
  for (const RunSnapshot& run : runs) {
    out += fmt::format("run {} (step {}), for {}{}\n", called(run), run.step,
                       time_text(run.for_so_long), run.is_ending ? ", ending" : "");
    for (const PartitionSnapshot& p : run.partitions) {
      out += fmt::format("  {}{}\n", p.device,
                         !p.busy_with.empty() ? ": computing " + p.busy_with
                         : p.has_answered     ? ""
                                              : ": no answer");
      for (const RunPart& part : p.runs) {
        if (part.ready > 0) out += fmt::format("    {} nodes ready\n", part.ready);
        for (const OpenLoop& l : part.loops)
          out += fmt::format("    loop '{}'{}: iterations {} to {} open, of {} at most\n", l.loop,
                             in(l.tag), l.first, l.last, l.window);
        for (const Wait& w : part.waits) out += "    " + sentence(w, p.device) + '\n';
        if (part.more_waits > 0) out += fmt::format("    and {} more\n", part.more_waits);
      }
    }
    for (const std::string& other : run.other_nodes)
      out += fmt::format("  node '{}' takes part\n", other);
  }
  return out;
}

}  // namespace troupe
