#include <troupe/devices/base/device_name.hpp>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace troupe {
namespace {

constexpr std::string_view kAnyIndex = "*";

// The part behind the kind and its ':'; empty if there is none.
std::string_view index_text(std::string_view device) {
  const std::string_view name = short_name(device);
  const std::size_t colon = name.find(':');
  return colon == std::string_view::npos ? std::string_view() : name.substr(colon + 1);
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_kind(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

}  // namespace

std::string_view node_of(std::string_view device) {
  if (!device.starts_with(kNodePrefix)) return {};
  device.remove_prefix(kNodePrefix.size());
  return device.substr(0, device.find('/'));
}

std::string_view short_name(std::string_view device) {
  if (!device.starts_with(kNodePrefix)) return device;
  const std::size_t slash = device.find('/', kNodePrefix.size());
  return slash == std::string_view::npos ? kHostDevice : device.substr(slash + 1);
}

std::string full_name(std::string_view device, std::string_view node) {
  if (device.empty() || node.empty()) return std::string(device);
  const std::string_view on = node_of(device);
  return fmt::format("{}{}/{}", kNodePrefix, on.empty() ? node : on, short_name(device));
}

std::string_view kind_of(std::string_view device) {
  const std::string_view name = short_name(device);
  return name.substr(0, name.find(':'));
}

std::optional<std::int32_t> index_of(std::string_view device) {
  constexpr std::size_t kMostDigits = 9;
  const std::string_view text = index_text(device);
  if (!is_kind(kind_of(device)) || !is_number(text) || text.size() > kMostDigits ||
      (text.size() > 1 && text[0] == '0'))
    return std::nullopt;
  std::int32_t index = 0;
  std::from_chars(text.data(), text.data() + text.size(), index);
  return index;
}

bool is_on_host(std::string_view device) { return kind_of(device) == kind_of(kHostDevice); }

bool is_any_index(std::string_view device) { return index_text(device) == kAnyIndex; }

bool looks_like_device(std::string_view text) {
  const std::string_view index = index_text(text);
  return is_kind(kind_of(text)) && (index == kAnyIndex || is_number(index));
}

}  // namespace troupe
