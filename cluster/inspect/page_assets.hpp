// The files of the web page, which are inside the library: cluster/inspect/page/, dagre and d3.
//
//   if (const PageAsset* asset = find_page_asset("index.html")) answer(asset->type, asset->bytes);
//
// They hold no data, so they need no token. All of them are text, alive as long as the process.
#pragma once

#include <span>
#include <string_view>

namespace troupe {

struct PageAsset {
  std::string_view path;  // "index.html", "main.js": below /assets/ of the server
  std::string_view type;  // for Content-Type
  std::string_view bytes;
  std::string_view etag;  // in quotes, for ETag and If-None-Match; changes with the bytes
};

/// By its path, or null. Nothing but these few names is ever found: no part of a path is read as a
/// file's.
const PageAsset* find_page_asset(std::string_view path);

/// All of them, in the order of their paths.
std::span<const PageAsset> page_assets();

/// The Content-Security-Policy of the page: its own files and its own node, nothing inline, nothing
/// evaluated.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' "
    "data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace troupe
