// Writes a trace of one node to a file, in Chrome's format, which Perfetto reads. The inspection
// server makes traces over several nodes (cluster/inspect/inspection_trace.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <troupe/actors/plan/plan.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Returns the kind's name in traces, pages and reports: `kernel`.
const char* name_of(RecordedEvent::Kind kind);
/// Returns the label of an event whose node is described by `node`: `waits: Dequeue 'd' (a.cpp:3)`;
/// for a turn `12 firings`.
std::string title_of(const RecordedEvent& event, const std::string& node);

/// Returns the name that all views use: `a/17`. Empty for number 0, which is no run.
std::string run_name(const std::string& owner, std::uint64_t number);

/// A drawn event and its row in its track. Viewers require that the slices of a row are nested or
/// disjoint, and drop slices that overlap.
struct Slice {
  const RecordedEvent* event;
  std::int64_t begin_ns, length_ns;
  std::size_t lane;                        // kMost: the slice fits on no row
  static constexpr std::size_t kMost = 8;  // rows a track; more cannot be read
  /// Returns the time of an arrow's end. An arrow begins at the beginning of a slice and ends
  /// within one, so no arrow between slices of one moment runs backwards.
  std::int64_t arrow_ns() const;
};

/// Returns the slices of a track's events, in order. A token has no length. It is drawn for half a
/// microsecond, or up to the next event that begins or ends. Events that truly overlap, such as a
/// kernel on a worker and the turns meanwhile, have rows of their own while rows are free:
/// thousands of firings may wait at once. Tokens are all on the first row.
std::vector<Slice> slices(std::vector<const RecordedEvent*> events);
/// Returns a slice as JSON, from `begin_us` on. If the slice has a row, it is on thread `track` +
/// row. Otherwise it is a begin event and an end event outside of all rows, with `number` as id.
/// `name` is JSON; `run` is made by `run_name`.
std::string slice_text(const Slice& slice, const std::string& name, const std::string& run,
                       double begin_us, int process, std::size_t track, std::uint64_t number);

/// The run of a trace, and its outcome.
struct TracedRun {
  std::string node;           // the node that recorded the trace; empty: no cluster
  std::string run;            // `a/17`, equal in the traces of all nodes of the run
  std::int64_t begin_ns = 0;  // since the Unix epoch
  std::int64_t took_ns = 0;
  std::string error;  // empty: the run succeeded
};

/// Writes the events that the partitions of a plan have recorded. A file that cannot be written
/// whole leaves no trace, and an earlier one as it was; the status names it and the cause:
/// resource_exhausted if the disk is full or a limit is reached, else failed_precondition. Keeps an
/// earlier file's mode, and symbolic links.
Status write_trace(const std::string& path, const TracedRun& run, const Plan& plan,
                   const std::vector<PartitionSnapshot>& partitions);

/// Returns `folder`/NODE@OWNER-RUN.flight.json, which is unique for each run on a node. First
/// removes the node's oldest files, so that with this one at most `most` remain, and at most
/// 16 * `most` of all nodes together.
std::string flight_file(const std::string& folder, const std::string& node,
                        const std::string& owner, const std::string& run, std::size_t most);

}  // namespace troupe
