// WorkAccount: estimates the time and the output bytes of a partition's nodes from the few firings
// that are timed.
//
//   account.timed(node, ns, bytes, true);      // adds the measured values
//   account.settle(fires, turns_ns);           // on request: adds the other firings since the last
//   account.busy_ns(node), account.bytes_out(node)
//
// A firing that was not timed is estimated once, when it is settled, at its node's usual cost. So
// later samples do not change it, and sums never fall. The usual cost follows samples by a quarter
// of the difference. A sample counts as at most about four times the usual cost, because a thread
// that the operating system suspends must not price a million other firings. Scalar operations that
// are computed in place are never timed; they cost kInPlace. The firings that were not timed take
// at most the measured time of their turns. So a partition's actors are never busier than its turns
// and the workers that run its kernels.
//
// Threads: the partition's turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

class WorkAccount {
 public:
  explicit WorkAccount(std::size_t nodes) : nodes_(nodes) {}

  /// Adds a timed firing, in a turn or on a worker.
  void timed(std::size_t node, std::int64_t ns, std::uint64_t bytes, bool in_turn) {
    Node& n = nodes_[node];
    ns = std::max<std::int64_t>(ns, 0);
    if (in_turn) in_turns_ns_ += ns;
    n.busy_ns += static_cast<std::uint64_t>(ns);
    n.bytes_out += bytes;
    ++n.timed;
    n.timed_bytes += bytes;
    // The first firings warm caches up: their least counts.
    if (n.samples < kWarming) n.usual_ns = n.samples++ == 0 ? ns : std::min(n.usual_ns, ns);
    else n.usual_ns += (std::min(ns, kOutlier * n.usual_ns + kOutlier) - n.usual_ns) / kOutlier;
  }

  /// Adds the firings that were not timed. `fires`: by node, since the plan was made; `turns_ns`:
  /// time of turns since the last call.
  void settle(const std::vector<std::uint64_t>& fires, std::int64_t turns_ns) {
    double all = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      Node& n = nodes_[i];
      const std::uint64_t fresh = fires[i] > n.settled ? fires[i] - n.settled : 0;
      n.settled += fresh;
      n.untimed = fresh > n.timed ? fresh - n.timed : 0;
      if (n.samples == 0) n.usual_ns = kInPlace;
      all += static_cast<double>(n.untimed) * static_cast<double>(n.usual_ns);
    }
    const double left = static_cast<double>(std::max<std::int64_t>(turns_ns - in_turns_ns_, 0));
    const double share = all > left ? left / all : 1.0;
    for (Node& n : nodes_) {
      if (n.timed > 0) n.usual_bytes = n.timed_bytes / n.timed;
      n.busy_ns += static_cast<std::uint64_t>(share * static_cast<double>(n.untimed) *
                                              static_cast<double>(n.usual_ns));
      n.bytes_out += n.untimed * n.usual_bytes;
      n.timed = n.timed_bytes = n.untimed = 0;
    }
    in_turns_ns_ = 0;
  }

  std::uint64_t busy_ns(std::size_t node) const { return nodes_[node].busy_ns; }
  std::uint64_t bytes_out(std::size_t node) const { return nodes_[node].bytes_out; }

 private:
  static constexpr int kWarming = 3;
  static constexpr std::int64_t kOutlier = 4;
  // ns, with the delivery of its token (RESULTS.md: firing)
  static constexpr std::int64_t kInPlace = 25;

  struct Node {
    std::uint64_t busy_ns = 0, bytes_out = 0;
    std::int64_t usual_ns = 0;
    std::uint64_t usual_bytes = 0;
    std::uint64_t settled = 0;                 // firings
    std::uint64_t timed = 0, timed_bytes = 0;  // since the last `settle`
    std::uint64_t untimed = 0;
    int samples = 0;
  };
  std::vector<Node> nodes_;
  std::int64_t in_turns_ns_ = 0;  // timed firings in turns since the last `settle`
};

}  // namespace troupe
