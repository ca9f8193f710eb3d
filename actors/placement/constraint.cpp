#include <troupe/actors/placement/constraint.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>
#include <troupe/ops/graph/colocation.hpp>

namespace troupe {
namespace {

// Removes the text up to the first `by` from `rest`, with `by`, and returns it without `by`.
std::string_view next(std::string_view& rest, char by) {
  const std::size_t end = std::min(rest.find(by), rest.size());
  const std::string_view found = rest.substr(0, end);
  rest.remove_prefix(std::min(rest.size(), end + 1));
  return found;
}

}  // namespace

bool NodeLabels::has(std::string_view key, std::string_view value) const {
  for (std::string_view rest = labels; !rest.empty();) {
    std::string_view label = next(rest, ' ');
    if (next(label, '=') == key && (value.empty() || label == value)) return true;
  }
  return false;
}

Constraint parse_constraint(std::string_view text, std::string_view here) {
  Constraint c;
  const auto refuse = [&](const std::string& why) -> void {
    throw Error(Code::invalid_argument,
                fmt::format("the device constraint '{}' {}; it is a device such as cpu:0, or parts "
                            "out of /node:NAME, /label:KEY, /label:KEY=VALUE, and at the end "
                            "/cpu:0 or /cpu:*",
                            text, why));
  };
  std::string_view rest = text;
  if (const std::size_t with = find_colocation(rest); with != std::string_view::npos) {
    c.group = rest.substr(with + 5);
    rest = rest.substr(0, with == 0 ? 0 : with - 1);
  }
  if (rest.empty()) return c;
  const bool is_whole = rest[0] == '/';
  if (is_whole) rest.remove_prefix(1);
  if (rest.empty() || rest.ends_with('/')) refuse("ends with '/'");
  while (!rest.empty()) {
    std::string_view value = next(rest, '/');
    const std::string_view part = value, key = next(value, ':');
    if (!c.device.empty()) refuse(fmt::format("goes on after its device, {}", c.device));
    if (!is_whole || (key != "node" && key != "label")) {
      if (!looks_like_device(part))
        refuse(fmt::format("has a part '{}', which means nothing", part));
      c.device = part;
    } else if (value.empty()) {
      refuse(fmt::format("does not name the {}", key));
    } else if (key == "label") {
      const std::string_view label = next(value, '=');
      c.labels.emplace_back(label, value);
    } else if (!c.node.empty()) {
      refuse(fmt::format("names two nodes, {} and {}", c.node, value));
    } else {
      c.node = value;
    }
  }
  if (!is_whole) c.node = here;
  c.is_anywhere = is_whole && c.node.empty();
  return c;
}

bool Constraint::allows(std::string_view device_name, const NodeLabels& where) const {
  if (!node.empty() && node != where.name) return false;
  for (const auto& [key, value] : labels)
    if (!where.has(key, value)) return false;
  if (is_any_index(device)) return kind_of(device) == kind_of(device_name);
  return device.empty() || device == short_name(device_name);
}

}  // namespace troupe
