// Sentences about waits and loops that snapshots and diagnoses share.
#pragma once

#include <chrono>
#include <string>

#include <fmt/format.h>

#include <troupe/actors/observe/snapshot.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe::sentences {

inline std::string time_text(std::chrono::nanoseconds t) {
  const double s = std::chrono::duration<double>(t).count();
  return s < 1     ? fmt::format("{:.0f} ms", s * 1e3)
         : s < 120 ? fmt::format("{:.1f} s", s)
                   : fmt::format("{:.0f} min", s / 60);
}

inline std::string in(const std::string& tag) { return tag.empty() ? "" : " in " + tag; }

inline bool is_in_actor(const Wait& w) {
  return w.kind == Wait::Kind::kernel && w.state.starts_with("actor ");
}

inline std::string sentence(const Wait& w, const std::string& device) {
  switch (w.kind) {
    case Wait::Kind::kernel: {
      const std::string since = w.for_so_long.count() > 0 ? " for " + time_text(w.for_so_long) : "";
      if (is_at_queue(w))
        return fmt::format("{}{} on {} has waited{} at {}{}", w.what, in(w.tag), device, since,
                           w.state,
                           !w.is_alone ? ""
                           : w.puts    ? ", which nothing of this run will empty any more"
                                       : ", which nothing of this run will fill any more");
      if (is_in_actor(w))
        return fmt::format("{}{} on {} has waited{} for an answer of {}", w.what, in(w.tag), device,
                           since, w.state);
      if (since.empty())
        return fmt::format("{}{} on {} waits for a worker", w.what, in(w.tag), device);
      return fmt::format("{}{} on {} has been computing{}", w.what, in(w.tag), device, since);
    }
    case Wait::Kind::device:
      return fmt::format("{}{} has not come from {} yet", w.what, in(w.tag), device);
    case Wait::Kind::token:
      return fmt::format("{} waits for {}{} from {}", device, w.what, in(w.tag), w.from);
    case Wait::Kind::grant:
      return fmt::format("{} keeps {}{} because {} has no room for it", device, w.what, in(w.tag),
                         w.from);
  }
  return {};
}

inline std::string going_on(const OpenLoop& loop, const std::string& device,
                            const std::string& reason) {
  return fmt::format(
      "loop '{}'{} on {} is in iteration {} and goes on{}", loop.loop, in(loop.tag), device,
      loop.last,
      loop.predicate.empty() ? "" : fmt::format(": {} is still true{}", loop.predicate, reason));
}

// Returns the numbers that the predicate compares, if they were observed.
inline std::string seen_numbers(const OpenLoop& loop) {
  const std::string numbers = loop.decision.text();
  return numbers.empty() ? "" : " (" + numbers + ")";
}

// Returns why the predicate is true for ever, as one look proves. It was true once, because an
// iteration has followed. Empty: not known.
inline std::string why_for_ever(const OpenLoop& loop) {
  if (loop.is_endless && loop.last > 0) return ", and depends on nothing that the loop changes";
  if (loop.repeats == 0) return {};
  return fmt::format(
      ", and all that it comes from is what it was {} before{}",
      loop.repeats == 1 ? "an iteration" : fmt::format("{} iterations", loop.repeats),
      seen_numbers(loop));
}

// Another owner's run may have the number of one of this node's.
inline std::string called(const RunSnapshot& run) {
  return run.is_owned ? std::to_string(run.run) : fmt::format("{}/{}", run.plan.owner, run.run);
}

}  // namespace troupe::sentences
