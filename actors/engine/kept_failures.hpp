// KeptFailures: the runs of the last hour that failed; all of them if they are few.
//
//   KeptFailures kept;
//   kept.add(ended);  kept.note_flight(ended.plan, ended.run, "DIR/a@a-17.flight.json");
//   for (const EndedRun& e : kept.latest_first()) ...
//
// Many equal failures must not push out the one that an operator looks for. When there is no room,
// the oldest failure of the most frequent kind is dropped, and the next of its kind counts it. A
// kind is one owner and one error text without its numbers.
//
// Threads: any. Invariants: 1. at most `kMost` are kept, each with `kLongest` bytes of text. 2. The
// latest of each kind stays, if there are no more than `kMost` kinds.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <troupe/actors/observe/snapshot.hpp>

namespace troupe {

class KeptFailures {
 public:
  static constexpr std::size_t kMost = 128, kLongest = 4096;
  static constexpr std::int64_t kKept = 3'600'000'000'000;  // ns; older ones go first

  /// Adds a failure. An entry of the same run is kept, because its node's own error is most exact.
  void add(EndedRun failed);
  /// Stores the file with the events before the failure, or why there is none.
  void note_flight(const PlanName& plan, std::uint64_t run, const std::string& flight);
  std::vector<EndedRun> latest_first() const;

 private:
  void make_room(std::int64_t now_ns);  // mutex_ is held

  mutable std::mutex mutex_;   // guards everything below
  std::vector<EndedRun> all_;  // the oldest first
};

}  // namespace troupe
