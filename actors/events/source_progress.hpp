// The guarantees of a query's sources, and which of them are idle (`SourceOptions::idle_after`).
//
//   batch.guarantee = progress.carried(source, g);  // g: what the user gives
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
  explicit SourceProgress(const Query& query)
      : given_(query.sources().size(), kNever), followed_(given_), due_(given_) {
    for (const Query::Port& source : query.sources()) idle_after_.push_back(source.idle_after);
  }

  /// Returns the guarantee that a batch of the source carries: a source that returns gives lesser
  /// ones than that which was given in its place. One below the user's own last one stays, and is
  /// refused.
  Time carried(std::size_t source, Time g) const {
    return g == kNever || g < given_[source] ? g : std::max(g, followed_[source]);
  }

  /// Notes a guarantee that the user has given for a source. Calls `feed(idle, g)` for each source
  /// that is idle now; it returns false if the source has no room, and then a later call tries
  /// again.
  template <class Feed>
  void note(std::size_t source, Time g, Feed feed) {
    if (g == kNever) return;
    given_[source] = std::max(given_[source], g);
    for (std::size_t s = 0; s < given_.size(); ++s) {
      if (s != source && g != kForever) due_[s] = std::max(due_[s], earlier(g, idle_after_[s]));
      if (due_[s] > std::max(given_[s], followed_[s]) && feed(s, due_[s])) followed_[s] = due_[s];
    }
  }

 private:
  std::vector<Time> given_, followed_;  // by source: by the user, and in the user's place
  std::vector<Time> due_;               // to be followed to, with those without room
  std::vector<Time> idle_after_;
};

}  // namespace troupe::events
