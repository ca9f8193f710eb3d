// The guarantees of a query's sources, and which of them are idle (`SourceOptions::idle_after`).
//
//   progress.note(source, g, [&](std::size_t idle, Time follows) { return feed(idle, follows); });
//
// An operator with two inputs waits for the lesser guarantee, so a source that gives none, as that
// of a dead node does, would hold the query for ever. The measure is application time: equal
// input gives equal output. A source that has ended makes no other one idle.
//
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <troupe/actors/events/query.hpp>

namespace troupe::events {

class SourceProgress {
 public:
  explicit SourceProgress(const Query& query) : guarantees_(query.sources().size(), kNever) {
    for (const Query::Port& source : query.sources()) idle_after_.push_back(source.idle_after);
  }

  /// Notes a guarantee of a source. Calls `feed(idle, g)` for each source that is idle now; it
  /// returns false if the source has no room, and then a later call tries again.
  template <class Feed>
  void note(std::size_t source, Time g, Feed feed) {
    guarantees_[source] = std::max(guarantees_[source], g);
    if (g == kForever) return;
    for (std::size_t s = 0; s < guarantees_.size(); ++s) {
      const Time follows = s == source || g == kNever ? kNever : earlier(g, idle_after_[s]);
      if (follows > guarantees_[s] && feed(s, follows)) guarantees_[s] = follows;
    }
  }

 private:
  std::vector<Time> guarantees_, idle_after_;  // by source
};

}  // namespace troupe::events
