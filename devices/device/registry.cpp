#include <troupe/devices/device/registry.hpp>

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include <troupe/devices/base/device_name.hpp>
#include <troupe/devices/base/error.hpp>
#include <troupe/devices/device/plugin.hpp>

namespace troupe {
namespace {

// Made by the first registration, which precedes main; never destroyed, because engines of static
// lifetime may outlive any object here.
struct DeviceKinds {
  std::mutex mutex;  // guards kinds; an entry does not change once it is there
  std::map<std::string, DeviceKind, std::less<>> kinds;
  static DeviceKinds& all() {
    static auto* const kinds = new DeviceKinds;
    return *kinds;
  }
};

// "cpu:0 to cpu:99, which share its cores, and simulated sim:N"
std::string devices_there_are() {
  std::vector<std::string> names;
  for (const DeviceKind* kind : device_kinds()) names.push_back(kind->devices);
  if (names.size() > 1) {
    const std::string last = std::move(names.back());
    names.pop_back();
    names.push_back("and " + last);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const DeviceKind& register_device_kind(DeviceKind kind) {
  if (!index_of(kind.name + ":0"))
    throw Error(
        Code::invalid_argument,
        fmt::format("the device kind '{}' has no valid name; use lower-case letters", kind.name));
  if (!kind.has || !kind.make)
    throw Error(Code::invalid_argument,
                fmt::format("the device kind '{}' lacks `has` or `make`; give it both", kind.name));
  DeviceKinds& all = DeviceKinds::all();
  std::lock_guard lock(all.mutex);
  auto [it, is_new] = all.kinds.try_emplace(kind.name, kind);
  if (!is_new)
    throw Error(Code::already_exists,
                fmt::format("the device kind '{}' is registered already; load its plug-in once",
                            kind.name));
  return it->second;
}

const DeviceKind* find_device_kind(std::string_view name) {
  load_device_plugins();
  DeviceKinds& all = DeviceKinds::all();
  std::lock_guard lock(all.mutex);
  const auto it = all.kinds.find(name);
  return it == all.kinds.end() ? nullptr : &it->second;
}

std::vector<const DeviceKind*> device_kinds() {
  load_device_plugins();
  DeviceKinds& all = DeviceKinds::all();
  std::lock_guard lock(all.mutex);
  std::vector<const DeviceKind*> kinds;
  for (const auto& [name, kind] : all.kinds) kinds.push_back(&kind);
  return kinds;
}

std::unique_ptr<Device> make_device(const std::string& name, const DeviceSetup& setup) {
  const DeviceKind* const kind = find_device_kind(kind_of(name));
  const std::optional<std::int32_t> index = index_of(name);
  if (kind && index && node_of(name).empty() && kind->has(*index))
    return kind->make(name, *index, setup);
  std::string remedy = kind ? "" : "; name one of these";
  for (const PluginReport& plugin : load_device_plugins())
    if (!kind && !plugin.problem.empty() && (plugin.kind.empty() || plugin.kind == kind_of(name)))
      remedy += fmt::format("; of {} there is none, because {}", kind_of(name), plugin.problem);
  throw Error(Code::not_found, fmt::format("there is no device '{}'; this machine has {}{}", name,
                                           devices_there_are(), remedy));
}

}  // namespace troupe
