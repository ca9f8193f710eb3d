#include <troupe/ops/mesh/tiling.hpp>

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <troupe/devices/base/internal.hpp>

namespace troupe::mesh {
namespace {

using Extents = std::vector<std::int64_t>;

std::int64_t product_of(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}
Extents place_of(std::int64_t number, const Extents& extents) {
  Extents place(extents.size());
  for (std::size_t i = extents.size(); i-- > 0; number /= extents[i])
    place[i] = number % extents[i];
  return place;
}
std::int64_t number_of(const Extents& place, const Extents& extents) {
  std::int64_t number = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) number = number * extents[i] + place[i];
  return number;
}

[[noreturn]] void refuse(const std::string& why) { throw Error(Code::invalid_argument, why); }

void require_levels(const std::vector<TilingLevel>& levels) {
  if (levels.empty()) refuse("a tiling has no level");
  for (const TilingLevel& level : levels) {
    for (const Extents* extents : {&level.logical, &level.physical})
      for (std::int64_t extent : *extents)
        if (extent < 1) refuse(fmt::format("a tiling's level has the extent {}", extent));
    if (level.logical.size() != levels[0].logical.size() ||
        level.physical.size() != levels[0].physical.size())
      refuse("the levels of a tiling have different numbers of axes");
    if (product_of(level.logical) != product_of(level.physical))
      refuse(fmt::format("a tiling's level has {} logical tiles, {}, and {} physical ones, {}",
                         product_of(level.logical), fmt::join(level.logical, "x"),
                         product_of(level.physical), fmt::join(level.physical, "x")));
  }
}

// The extents of all levels together.
Extents all_of(const std::vector<TilingLevel>& levels, Extents TilingLevel::*which) {
  Extents all((levels[0].*which).size(), 1);
  for (const TilingLevel& level : levels)
    for (std::size_t i = 0; i < all.size(); ++i) all[i] *= (level.*which)[i];
  return all;
}

}  // namespace

std::vector<std::int64_t> hierarchical_tiling(const std::vector<TilingLevel>& levels) {
  require_levels(levels);
  const Extents logical = all_of(levels, &TilingLevel::logical),
                physical = all_of(levels, &TilingLevel::physical);
  std::vector<std::int64_t> numbers;
  for (std::int64_t n = 0; n < product_of(logical); ++n) {
    Extents rest = place_of(n, logical), place(physical.size(), 0), size(physical.size(), 1);
    for (std::size_t l = levels.size(); l-- > 0;) {
      const TilingLevel& level = levels[l];
      Extents tile(rest.size());
      for (std::size_t i = 0; i < rest.size(); ++i) {
        tile[i] = rest[i] % level.logical[i];
        rest[i] /= level.logical[i];
      }
      const Extents there = place_of(number_of(tile, level.logical), level.physical);
      for (std::size_t i = 0; i < place.size(); ++i) {
        place[i] += there[i] * size[i];
        size[i] *= level.physical[i];
      }
    }
    numbers.push_back(number_of(place, physical));
  }
  return numbers;
}

Mesh over_hosts(const Dims& axes, const std::vector<std::vector<std::string>>& hosts) {
  if (hosts.empty()) refuse("a mesh over hosts has no host");
  const auto each = static_cast<std::int64_t>(hosts[0].size());
  std::vector<std::string> devices;
  for (const std::vector<std::string>& host : hosts) {
    if (static_cast<std::int64_t>(host.size()) != each)
      refuse(
          fmt::format("a mesh over hosts has {} devices of one host and {} of another; give as "
                      "many of each",
                      each, host.size()));
    devices.insert(devices.end(), host.begin(), host.end());
  }
  const auto count = static_cast<std::int64_t>(hosts.size());
  Extents box(axes.size(), 1), grid(axes.size(), 1);
  std::int64_t left = each, size = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    box[i] = std::gcd(left, axes[i].size);
    grid[i] = axes[i].size / box[i];
    left /= box[i];
    size *= axes[i].size;
  }
  if (size != each * count || left != 1)
    refuse(
        fmt::format("mesh {} has {} places, of which {} hosts with {} devices each cannot have "
                    "equal boxes",
                    text_of(axes), size, count, each));
  std::vector<std::string> placed;
  for (std::int64_t n : hierarchical_tiling({{grid, {count, 1}}, {box, {1, each}}}))
    placed.push_back(devices[static_cast<std::size_t>(n)]);
  return {axes, std::move(placed)};
}

}  // namespace troupe::mesh
