#include <troupe/ops/mesh/mesh.hpp>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <troupe/devices/base/error.hpp>

namespace troupe::mesh {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(Code::invalid_argument, why); }

// The pairs of "a:b;c:d". `what` names them in errors.
std::vector<Layout::Rule> pairs_of(std::string_view text, const char* what, const char* second) {
  std::vector<Layout::Rule> pairs;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(";., \t\n", at), text.size());
    const std::string_view pair = text.substr(at, end - at);
    at = end + 1;
    if (pair.empty()) continue;
    const std::size_t colon = pair.find(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == pair.size())
      refuse(fmt::format("{} '{}': '{}' is not NAME:{}", what, text, pair, second));
    pairs.emplace_back(pair.substr(0, colon), pair.substr(colon + 1));
  }
  return pairs;
}

void refuse_repeated(const std::vector<std::string>& names, const std::string& what) {
  for (auto it = names.begin(); it != names.end(); ++it)
    if (std::find(names.begin(), it, *it) != it)
      refuse(fmt::format("{} names '{}' twice", what, *it));
}

}  // namespace

Dims parse_dims(std::string_view text) {
  Dims dims;
  std::vector<std::string> names;
  for (const auto& [name, size] : pairs_of(text, "dimensions", "SIZE")) {
    Dim dim{name, 0};
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), dim.size);
    if (error != std::errc() || end != size.data() + size.size() || dim.size < 1)
      refuse(fmt::format("dimensions '{}': the size '{}' of '{}' is no number from 1 on", text,
                         size, name));
    names.push_back(name);
    dims.push_back(std::move(dim));
  }
  refuse_repeated(names, fmt::format("'{}'", text));
  return dims;
}

std::string text_of(const Dims& dims) {
  std::string text;
  for (const Dim& d : dims) text += fmt::format("{}{}:{}", text.empty() ? "" : ";", d.name, d.size);
  return text;
}

Mesh::Mesh(Dims axes, std::vector<std::string> devices)
    : axes_(std::move(axes)), devices_(std::move(devices)) {
  std::int64_t product = 1;
  std::vector<std::string> names;
  for (const Dim& axis : axes_) {
    if (axis.name.empty()) refuse("an axis of a mesh has no name");
    if (axis.size < 1 || axis.size > std::int64_t{1} << 20)
      refuse(fmt::format("axis '{}' of mesh {} has size {}; a size is 1 to 2^20", axis.name,
                         text_of(axes_), axis.size));
    product = std::min(product * axis.size, std::int64_t{1} << 40);
    names.push_back(axis.name);
  }
  refuse_repeated(names, fmt::format("mesh {}", text_of(axes_)));
  refuse_repeated(devices_, fmt::format("mesh {}", text_of(axes_)));
  if (product != static_cast<std::int64_t>(devices_.size()))
    refuse(fmt::format("mesh {} has {} places and got {} devices; give one device for each place",
                       text_of(axes_), product, devices_.size()));
}

int Mesh::axis(std::string_view name) const {
  for (int i = 0; i < rank(); ++i)
    if (axes_[static_cast<std::size_t>(i)].name == name) return i;
  return -1;
}

std::int64_t Mesh::coordinate(int device, int axis) const {
  std::int64_t rest = device;
  for (int i = rank() - 1; i > axis; --i) rest /= axes_[static_cast<std::size_t>(i)].size;
  return rest % axes_[static_cast<std::size_t>(axis)].size;
}

std::vector<int> Mesh::line(int device, int axis) const {
  int stride = 1;
  for (int i = rank() - 1; i > axis; --i)
    stride *= static_cast<int>(axes_[static_cast<std::size_t>(i)].size);
  const int first = device - stride * static_cast<int>(coordinate(device, axis));
  std::vector<int> members;
  for (std::int64_t k = 0; k < axes_[static_cast<std::size_t>(axis)].size; ++k)
    members.push_back(first + stride * static_cast<int>(k));
  return members;
}

Layout::Layout(std::string_view rules) : Layout(pairs_of(rules, "layout", "AXIS")) {}

Layout::Layout(std::vector<Rule> rules) : rules_(std::move(rules)) {
  std::vector<std::string> names;
  for (const auto& [dimension, axis] : rules_) {
    if (dimension.empty() || axis.empty())
      refuse(fmt::format("layout '{}': a rule is DIMENSION:AXIS", text()));
    names.push_back(dimension);
  }
  refuse_repeated(names, fmt::format("layout '{}'", text()));
}

std::optional<std::string> Layout::axis_of(std::string_view dimension) const {
  for (const auto& [name, axis] : rules_)
    if (name == dimension) return axis;
  return std::nullopt;
}

std::vector<int> Layout::axes_of(const Dims& dims, const Mesh& mesh) const {
  std::vector<int> axes;
  for (const Dim& dim : dims) {
    const std::optional<std::string> rule = axis_of(dim.name);
    const int axis = rule ? mesh.axis(*rule) : -1;
    if (rule && axis < 0)
      refuse(fmt::format("layout '{}' splits dimension '{}' along axis '{}', which mesh {} lacks",
                         text(), dim.name, *rule, text_of(mesh.axes())));
    if (axis >= 0) {
      const std::int64_t parts = mesh.axes()[static_cast<std::size_t>(axis)].size;
      if (dim.size % parts != 0)
        refuse(fmt::format("axis '{}' of {} devices does not divide dimension '{}' of size {}",
                           *rule, parts, dim.name, dim.size));
      for (std::size_t other = 0; other < axes.size(); ++other)
        if (axes[other] == axis)
          refuse(
              fmt::format("dimensions '{}' and '{}' of one tensor are both split along axis "
                          "'{}'; give one of them another axis, or none",
                          dims[other].name, dim.name, *rule));
    }
    axes.push_back(axis);
  }
  return axes;
}

std::string Layout::text() const {
  std::string text;
  for (const auto& [dimension, axis] : rules_)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ";", dimension, axis);
  return text;
}

}  // namespace troupe::mesh
