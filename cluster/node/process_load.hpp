// The memory and the processor time that this process takes.
//
//   ProcessLoad load;  load.measure(report);
//
// Threads: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include <troupe/cluster/protocol/node_report.hpp>

namespace troupe {

class ProcessLoad {
 public:
  /// Measures the load from now on.
  ProcessLoad();
  /// Fills in cpu_ns, cpu, cores, resident and total. The load is an average over a second at
  /// least, so that frequent questions do not disturb it; the first is over the time since it was
  /// made.
  void measure(NodeReport& report);

 private:
  std::mutex mutex_;  // guards everything below
  std::int64_t at_ns_;
  std::uint64_t cpu_ns_;
  double cores_ = 0;  // average over the last second or so that was measured
  bool is_known_ = false;
};

/// Names the boot of this machine's kernel: processes of one boot read the same clock. Empty if the
/// machine has no such name.
const std::string& this_boot();

}  // namespace troupe
