// Why runs have not ended: the hangs that snapshots show, each with its cause.
//
//   const EngineSnapshot before = engine.snapshot();
//   ... a second later
//   for (const Diagnosis& d : find_hangs(before.runs, engine.snapshot().runs)) ...
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <troupe/actors/observe/snapshot.hpp>

namespace troupe {

/// Returns a sentence for each cause why a run has not ended, the likeliest first. A partition that
/// waits for another one is no cause if the other one can be asked.
std::vector<std::string> diagnose(const RunSnapshot& run);
std::vector<detail::Diagnosis> verdicts(const RunSnapshot& run);
/// Returns the runs that hang, and why. `before` and `now` are two looks, a second or so apart. A
/// run that is merely slow is not returned. A run hangs in two cases:
/// - It has fired nothing between the looks, and no large token is in flight to it. The cause is
///   neither a computing kernel, nor a user's actor or a queue that has taken as long before.
/// - It is in a loop whose predicate is seen to stay true for ever. The predicate depends on
///   nothing that the loop changes, on comparisons that are settled (decision.hpp), or on values
///   that repeat (recurrence.hpp).
/// `withheld` receives the runs that these looks could not judge, and later ones may.
std::vector<detail::Diagnosis> find_hangs(const std::vector<RunSnapshot>& before,
                                          const std::vector<RunSnapshot>& now,
                                          std::set<RunId>* withheld = nullptr);
namespace detail {

/// Returns the verdicts without each `no_turn` that `later`, the result of `hangs` for two later
/// looks, does not repeat. It adds none, because looks close to each other prove no other hang.
std::vector<Diagnosis> keep_what_still_stands(std::vector<Diagnosis> verdicts,
                                              const std::vector<Diagnosis>& later);
/// Finds hangs by several looks at the same nodes. The first two are `apart`. More looks follow
/// soon after each other. They withdraw verdicts about partitions that have had a turn meanwhile.
/// They also judge runs that the first two looks could not judge, because a partition answered late
/// or the run had waited only briefly. For that they need two looks that are `apart`. In these, and
/// between them, all partitions of the run have answered, or their earlier answers are current.
///
///   HangDetector looks(400ms);
///   do looks.add(joined_runs(...), asked, answered);
///   while (looks.wants_more() && wait(looks.pause()));
class HangDetector {
 public:
  explicit HangDetector(std::chrono::nanoseconds apart) : apart_(apart) {}
  /// Adds a look. `began`: when the answers were asked for; `ended`: when the last answer came or
  /// was given up. Both are on one clock.
  void add(std::vector<RunSnapshot> runs, std::chrono::nanoseconds began,
           std::chrono::nanoseconds ended);
  bool wants_more() const;
  /// Returns the time until the next look begins.
  std::chrono::nanoseconds pause() const { return count_ < 2 ? apart_ : apart_ / 4; }
  const std::vector<Diagnosis>& verdicts() const { return verdicts_; }

 private:
  struct Look {
    std::vector<RunSnapshot> runs;
    std::chrono::nanoseconds began{}, ended{};
  };
  void judge(const Look& look);

  const std::chrono::nanoseconds apart_;
  int count_ = 0;
  std::chrono::nanoseconds first_{};  // when the first ended
  std::shared_ptr<const Look> last_;
  // the first look since which all partitions of a run have answered each time
  std::map<RunId, std::shared_ptr<const Look>> whole_;
  std::set<RunId> withheld_;
  std::vector<Diagnosis> verdicts_;
};

}  // namespace detail

/// Diagnoses all runs. Each sentence names its run.
std::vector<std::string> diagnose(const EngineSnapshot& engine);

}  // namespace troupe
