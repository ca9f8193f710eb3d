#include <troupe/cluster/inspect/page_assets.hpp>

#include <algorithm>

namespace troupe {

const PageAsset* find_page_asset(std::string_view path) {
  const auto assets = page_assets();
  const auto at =
      std::lower_bound(assets.begin(), assets.end(), path,
                       [](const PageAsset& a, std::string_view p) { return a.path < p; });
  return at != assets.end() && at->path == path ? &*at : nullptr;
}

}  // namespace troupe
