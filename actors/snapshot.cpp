#include <troupe/actors/snapshot.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {
namespace {

std::string time_text(std::chrono::nanoseconds t) {
  const double s = std::chrono::duration<double>(t).count();
  return s < 1 ? fmt::format("{:.0f} ms", s * 1e3) : s < 120 ? fmt::format("{:.1f} s", s) : fmt::format("{:.0f} min", s / 60);
}

std::string in(const std::string& tag) { return tag.empty() ? "" : " in " + tag; }

std::string sentence(const Wait& w, const std::string& device) {
  switch (w.kind) {
    case Wait::Kind::kernel: {
      const std::string since = w.for_so_long.count() > 0 ? " for " + time_text(w.for_so_long) : "";
      if (w.state.starts_with("queue") || w.state.starts_with("shuffling queue")) return fmt::format("{}{} on {} has waited{} at {}", w.what, in(w.tag), device, since, w.state);
      if (w.state.starts_with("actor")) return fmt::format("{}{} on {} has waited{} for an answer of {}", w.what, in(w.tag), device, since, w.state);
      return fmt::format("{}{} on {} has been computing{}", w.what, in(w.tag), device, since);
    }
    case Wait::Kind::device: return fmt::format("{}{} has not come from {} yet", w.what, in(w.tag), device);
    case Wait::Kind::token: return fmt::format("{} waits for {}{} from {}", device, w.what, in(w.tag), w.from);
    case Wait::Kind::grant: return fmt::format("{} keeps {}{} because {} has no room for it", device, w.what, in(w.tag), w.from);
  }
  return {};
}

std::string going_on(const OpenLoop& loop, const std::string& device) {
  return fmt::format("loop '{}'{} on {} is in iteration {} and goes on{}", loop.loop, in(loop.tag), device, loop.last,
                     loop.predicate.empty() ? "" : fmt::format(": {} is still true", loop.predicate));
}

}  // namespace

std::vector<std::string> diagnose(const RunSnapshot& run) {
  std::vector<std::string> causes, loops, effects;
  const auto is_asked = [&](const std::string& device) {
    return std::any_of(run.partitions.begin(), run.partitions.end(), [&](const PartitionSnapshot& p) { return p.device == device; });
  };
  for (const PartitionSnapshot& p : run.partitions) {
    if (!p.has_answered) {
      causes.push_back(p.busy_with.empty() ? fmt::format("{} has not had its turn: all workers are busy", p.device)
                                           : fmt::format("{} on {} is computing, and {} does nothing else meanwhile", p.busy_with, p.device, p.device));
      continue;
    }
    for (const RunPart& part : p.runs) {
      for (const Wait& w : part.waits)
        (w.kind == Wait::Kind::token || w.kind == Wait::Kind::grant ? (is_asked(w.from) ? effects : causes) : causes).push_back(sentence(w, p.device));
      // Outer loops wait for the inner ones.
      if (part.waits.empty() && !part.loops.empty()) loops.push_back(going_on(part.loops.back(), p.device));
      else if (part.waits.empty() && part.ready > 0) loops.push_back(fmt::format("{} has {} nodes ready to fire", p.device, part.ready));
    }
  }
  if (causes.empty()) causes = std::move(loops);
  if (causes.empty() && effects.empty())
    for (const std::string& other : run.other_nodes) causes.push_back(fmt::format("node '{}' has not done its part", other));
  return causes.empty() ? effects : causes;
}

std::vector<std::string> diagnose(const EngineSnapshot& engine) {
  std::vector<std::string> all;
  for (const RunSnapshot& run : engine.runs)
    for (const std::string& s : diagnose(run)) all.push_back(fmt::format("run {}, for {}: {}", run.run, time_text(run.for_so_long), s));
  return all;
}

std::string EngineSnapshot::text() const {
  std::string out = fmt::format("{}{} worker{}, {} run{} in flight\n", node.empty() ? "" : fmt::format("node '{}', ", node), workers, workers == 1 ? "" : "s", runs.size(),
                                runs.size() == 1 ? "" : "s");
  for (const Memory& m : devices)
    out += fmt::format("  {}: {:.1f} MiB in use, {:.1f} at most{}\n", m.device, static_cast<double>(m.in_use) / 0x1p20, static_cast<double>(m.peak) / 0x1p20,
                       m.limit ? fmt::format(", of {:.1f}", static_cast<double>(m.limit) / 0x1p20) : "");
  for (const RunSnapshot& run : runs) {
    out += fmt::format("run {} (step {}), for {}{}\n", run.run, run.step, time_text(run.for_so_long), run.is_ending ? ", ending" : "");
    for (const PartitionSnapshot& p : run.partitions) {
      out += fmt::format("  {}{}\n", p.device, p.has_answered ? "" : p.busy_with.empty() ? ": no answer" : ": computing " + p.busy_with);
      for (const RunPart& part : p.runs) {
        if (part.ready > 0) out += fmt::format("    {} nodes ready\n", part.ready);
        for (const OpenLoop& l : part.loops)
          out += fmt::format("    loop '{}'{}: iterations {} to {} open, of {} at most\n", l.loop, in(l.tag), l.first, l.last, l.window);
        for (const Wait& w : part.waits) out += "    " + sentence(w, p.device) + '\n';
        if (part.more_waits > 0) out += fmt::format("    and {} more\n", part.more_waits);
      }
    }
    for (const std::string& other : run.other_nodes) out += fmt::format("  node '{}' takes part\n", other);
  }
  return out;
}

}  // namespace troupe
