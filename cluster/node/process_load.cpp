#include <troupe/cluster/node/process_load.hpp>

#include <algorithm>
#include <fstream>
#include <thread>

#include <sys/resource.h>
#include <unistd.h>

#include <troupe/actors/runtime/clock.hpp>

namespace troupe {
namespace {

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t process_cpu_ns() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto ns = [](const timeval& t) {
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(t.tv_usec) * 1000u;
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

}  // namespace

ProcessLoad::ProcessLoad() : at_ns_(steady_ns()), cpu_ns_(process_cpu_ns()) {}

void ProcessLoad::measure(NodeReport& r) {
  constexpr std::int64_t kShortest = 1'000'000'000;  // ns that a load is averaged over, at least
  r.cpu_ns = process_cpu_ns();
  r.cores = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  r.resident = resident_bytes();
  r.total = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
            static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::int64_t now = steady_ns();
  std::lock_guard lock(mutex_);
  const std::int64_t span = now - at_ns_;
  if (span < kShortest && is_known_) {
    r.cpu = cores_;
    return;
  }
  r.cpu = static_cast<double>(r.cpu_ns - cpu_ns_) /
          static_cast<double>(std::max<std::int64_t>(span, 1));
  if (span >= kShortest) at_ns_ = now, cpu_ns_ = r.cpu_ns, cores_ = r.cpu, is_known_ = true;
}

const std::string& this_boot() {
  static const std::string boot = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id;
  }();
  return boot;
}

}  // namespace troupe
