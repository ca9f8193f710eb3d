#include <troupe/devices/base/device_name.hpp>

#include <fmt/format.h>

namespace troupe {

std::string_view node_of(std::string_view device) {
  if (!device.starts_with(kNodePrefix)) return {};
  device.remove_prefix(kNodePrefix.size());
  return device.substr(0, device.find('/'));
}

std::string_view short_name(std::string_view device) {
  if (!device.starts_with(kNodePrefix)) return device;
  const std::size_t slash = device.find('/', kNodePrefix.size());
  return slash == std::string_view::npos ? "cpu:0" : device.substr(slash + 1);
}

std::string full_name(std::string_view device, std::string_view node) {
  if (device.empty() || node.empty()) return std::string(device);
  const std::string_view on = node_of(device);
  return fmt::format("{}{}/{}", kNodePrefix, on.empty() ? node : on, short_name(device));
}

}  // namespace troupe
