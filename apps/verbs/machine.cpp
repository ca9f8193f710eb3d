#include <troupe/apps/verbs/machine.hpp>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>

#include <array>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <thread>

namespace troupe::verbs {

namespace {

/// Returns the text after `key` and a colon in a file of such lines; empty if there is none.
std::string value_in(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto from = line.find_first_not_of(" \t", colon + 1);
    return from == std::string::npos ? "" : line.substr(from);
  }
  return {};
}

std::string first_line(const char* file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string gibibytes(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

double kibibytes_in(const char* file, std::string_view key) {
  const std::string text = value_in(file, key);
  return text.empty() ? 0 : std::stod(text);
}

}  // namespace

std::string processor() {
  const std::string name = value_in("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

std::string processor_features() {
  std::istringstream flags(value_in("/proc/cpuinfo", "flags"));
  constexpr std::array<std::string_view, 10> used = {
      "sse4_2",  "avx",         "f16c",        "fma",      "avx2",
      "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16"};
  std::string found;
  for (std::string flag; flags >> flag;)
    for (const std::string_view name : used)
      if (flag == name) found += (found.empty() ? "" : " ") + flag;
  return found.empty() ? "none that matters" : found;
}

std::string cores() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  const unsigned all = std::thread::hardware_concurrency();
  const unsigned usable =
      sched_getaffinity(0, sizeof mine, &mine) == 0 ? static_cast<unsigned>(CPU_COUNT(&mine)) : all;
  const std::string quota = first_line("/sys/fs/cgroup/cpu.max");
  double limit = 0, period = 0;
  std::istringstream(quota) >> limit >> period;  // "max 100000" leaves the limit at 0
  return fmt::format(
      "{} usable{}", usable,
      limit > 0 && period > 0 ? fmt::format(", limited to {:.1f}", limit / period) : "");
}

std::string memory() {
  const double all = 1024 * kibibytes_in("/proc/meminfo", "MemTotal"),
               free = 1024 * kibibytes_in("/proc/meminfo", "MemAvailable");
  const std::string limit = first_line("/sys/fs/cgroup/memory.max");
  const bool limited = !limit.empty() && limit != "max";
  return fmt::format("{}, {} available{}", gibibytes(all), gibibytes(free),
                     limited ? ", limited to " + gibibytes(std::stod(limit)) : "");
}

std::string huge_pages() {
  const std::string mode = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const auto from = mode.find('['), to = mode.find(']');
  const std::string chosen =
      from < to && to != std::string::npos ? mode.substr(from + 1, to - from - 1) : "unknown";
  const std::string reserved = value_in("/proc/meminfo", "HugePages_Total");
  return fmt::format("transparent: {}; reserved: {}", chosen, reserved.empty() ? "0" : reserved);
}

std::string gpu() {
  const std::unique_ptr<void, int (*)(void*)> driver(dlopen("libcuda.so.1", RTLD_NOW), dlclose);
  if (!driver) return "none: the NVIDIA driver's libcuda.so.1 is not installed";
  const auto function = [&]<class F>(F, const char* name) {
    return reinterpret_cast<F>(dlsym(driver.get(), name));
  };
  using Init = int (*)(unsigned);
  using Count = int (*)(int*);
  using Name = int (*)(char*, int, int);
  const Init init = function(Init{}, "cuInit");
  const Count count = function(Count{}, "cuDeviceGetCount");
  const Name name = function(Name{}, "cuDeviceGetName");
  if (!init || !count || !name) return "none: libcuda.so.1 lacks functions every driver has";
  if (const int code = init(0); code != 0)
    return fmt::format("none: the driver is there, but cuInit gave error {}", code);
  int devices = 0;
  if (const int code = count(&devices); code != 0 || devices == 0)
    return "none: the driver is there, but it shows no device";
  std::string found;
  for (int i = 0; i < devices; ++i) {
    std::array<char, 128> text{};
    name(text.data(), text.size(), i);
    found += (i ? ", " : "") + std::string(text.data());
  }
  return found;
}

}  // namespace troupe::verbs
