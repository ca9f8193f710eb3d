#include <troupe/devices/device/plugin.hpp>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include <dlfcn.h>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe {
namespace {

// A plug-in cannot register before it is opened: the build gathers the descriptors from the folders
// of the kinds, devices/*/plugin.def.
struct KnownPlugin {
  const char* kind;
  const char* library;
  const char* driver;    // a library that exists wherever the hardware does
  const char* hardware;  // for people
};
constexpr KnownPlugin kKnownPlugins[] = {
#include <troupe/known_plugins.def>
};

std::string folder_of_this_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&load_device_plugins), &info) == 0 || !info.dli_fname)
    return {};
  std::error_code none;
  return std::filesystem::canonical(info.dli_fname, none).parent_path().string();
}

// Opens a library and lets it register its kinds; throws Error with the cause.
const DevicePlugin* load_library(void* library) {
  using Entry = const DevicePlugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "troupe_device_plugin"));
  if (!entry)
    throw Error(Code::invalid_argument,
                "is no plug-in: it does not export troupe_device_plugin; name the right file");
  const DevicePlugin* const plugin = entry();
  if (plugin->abi != kDevicePluginAbi)
    throw Error(
        Code::failed_precondition,
        fmt::format("was built for plug-in interface {}, and this libtroupe has {}; install "
                    "the plug-in of this version",
                    plugin->abi, kDevicePluginAbi));
  plugin->load();
  return plugin;
}

PluginReport load_file(const std::string& file, std::string kind) {
  PluginReport report{.kind = std::move(kind), .file = file, .problem = {}};
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    report.problem = fmt::format("{} cannot be opened: {}", file, dlerror());
    return report;
  }
  try {
    report.plugin = load_library(library);
    report.kind = report.plugin->name;
  } catch (const std::exception& e) { report.problem = fmt::format("{} {}", file, e.what()); }
  return report;
}

PluginReport load_known(const KnownPlugin& known) {
  if (void* const driver = dlopen(known.driver, RTLD_LAZY | RTLD_LOCAL); !driver)
    return {.kind = known.kind,
            .file = {},
            .problem =
                fmt::format("there is no {} ({} cannot be opened)", known.hardware, known.driver)};
  else dlclose(driver);
  const std::string here = folder_of_this_library();
  for (const std::string& file : {here + "/" + known.library, here + "/troupe/" + known.library})
    if (std::filesystem::exists(file)) return load_file(file, known.kind);
  PluginReport report = load_file(known.library, known.kind);
  if (!report.problem.empty())
    report.problem += fmt::format("; install the package that holds {}", known.library);
  return report;
}

std::vector<PluginReport> load_all() {
  std::vector<PluginReport> reports;
  if (const char* const listed = std::getenv("TROUPE_DEVICE_PLUGINS")) {
    for (std::string_view rest = listed; !rest.empty();) {
      const std::size_t end = std::min(rest.find(':'), rest.size());
      if (end > 0) reports.push_back(load_file(std::string(rest.substr(0, end)), {}));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return reports;
  }
  for (const KnownPlugin& known : kKnownPlugins) reports.push_back(load_known(known));
  return reports;
}

}  // namespace

const std::vector<PluginReport>& load_device_plugins() {
  // Never destroyed: engines of static lifetime may outlive any object here.
  static const auto* const reports = new std::vector<PluginReport>(load_all());
  return *reports;
}

}  // namespace troupe
