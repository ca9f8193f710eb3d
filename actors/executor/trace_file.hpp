// A trace of one node in a file: Chrome's format, which Perfetto reads. Over several nodes it is
// the inspection server's (cluster/inspect/inspection_trace.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/plan/plan.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// What traces, pages and reports call it: `kernel`.
const char* name_of(RecordedEvent::Kind kind);
/// What is written on it, with its node as `node` says it: `waits: Dequeue 'd' (a.cpp:3)`, `12
/// firings` of a turn.
std::string title_of(const RecordedEvent& event, const std::string& node);

/// `a/17`, as all views have it; of number 0, which is no run, empty.
std::string run_name(const std::string& owner, std::uint64_t number);

/// An event as it is drawn, on which lane of its track. Viewers demand that slices of a lane lie
/// within each other or apart, and drop those that overlap.
struct Slice {
  const RecordedEvent* event;
  std::int64_t begin_ns, length_ns;
  std::size_t lane;                        // kMost: it fits on none
  static constexpr std::size_t kMost = 8;  // lanes a track: more are no picture
  /// Where an arrow begins, at its beginning, or ends, within it: no arrow runs backwards between
  /// things of one moment.
  std::int64_t arrow_ns() const;
};

/// The events of a track, which are put in order. A token is a moment, and drawn for as much of
/// half a microsecond as nothing else begins or ends in; what truly overlaps, such as a kernel on a
/// worker and the turns meanwhile, has lanes of its own, as long as there are any: thousands of
/// firings may wait at once. Tokens are all on the first.
std::vector<Slice> slices(std::vector<const RecordedEvent*> events);
/// Its text, from `begin_us` on: on its lane, which are the threads from `track` on; or a beginning
/// and an end of their own, `number` in this trace, outside of all lanes. `name` is JSON; `run` as
/// `run_name` says it.
std::string slice_text(const Slice& slice, const std::string& name, const std::string& run,
                       double begin_us, int process, std::size_t track, std::uint64_t number);

/// Of which run a trace is, and how it ended.
struct TracedRun {
  std::string node;           // that has recorded it; empty: of no cluster
  std::string run;            // `a/17`, the same in the traces of all its nodes
  std::int64_t begin_ns = 0;  // since the Unix epoch
  std::int64_t took_ns = 0;
  std::string error;  // empty: it ended well
};

/// Writes what the partitions of a plan have recorded. A file that cannot be written whole is
/// removed; the status names it and the cause: resource_exhausted if the disk is full or a limit is
/// reached, else failed_precondition.
Status write_trace(const std::string& path, const TracedRun& run, const Plan& plan,
                   const std::vector<PartitionSnapshot>& partitions);

/// `folder`/NODE@OWNER-RUN.flight.json: a name of its own for each run that a node has seen. Before
/// that the oldest of that node's are removed, so that with this one there are no more than `most`,
/// and of all nodes together no more than sixteen times as many.
std::string flight_file(const std::string& folder, const std::string& node,
                        const std::string& owner, const std::string& run, std::size_t most);

}  // namespace troupe
