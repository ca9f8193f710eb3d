// What the benchmarks share: a clock, medians over interleaved repetitions, one JSON object a line.
//
//   Comparison c{.name = "message_1_worker", .unit = "ns", .peer = "CAF ping-pong", .budget = 0.2};
//   for (int i = 0; i < 7; ++i) { c.ours.push_back(run_ours()); c.theirs.push_back(run_peer()); }
//   c.print();
//
// Ours and the peer alternate within one process, so that both see the same machine; a budget bounds
// the ratio of the medians. Benchmarks print, they never fail: a timed assertion would be a flaky test.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace troupe::bench {

/// Steady time in nanoseconds.
inline double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The middle value; `values` must not be empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One measurement of ours against one of a peer in the same run. `ratio` is ours ÷ peer, or peer ÷
/// ours where `speed_up` is set (the budget is then a lower bound).
struct Comparison {
  std::string name;
  std::string unit;
  std::string peer;
  std::string peer_version;
  double budget = 0;
  int threads = 1;
  bool speed_up = false;
  std::vector<double> ours;
  std::vector<double> theirs;

  void print() const {
    const double value = median(ours), peer_value = median(theirs);
    const auto [least, most] = std::minmax_element(ours.begin(), ours.end());
    std::printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"peer\": \"%s\", \"peer_value\": %.6g, "
                "\"ratio\": %.4g, \"budget\": %.4g, \"threads\": %d, \"peer_version\": \"%s\", "
                "\"min\": %.6g, \"max\": %.6g}\n",
                name.c_str(), value, unit.c_str(), peer.c_str(), peer_value,
                speed_up ? peer_value / value : value / peer_value, budget, threads, peer_version.c_str(), *least, *most);
    std::fflush(stdout);
  }
};

}  // namespace troupe::bench
