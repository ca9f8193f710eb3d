// JSON as text that is always valid: names and texts come from users, and may be no UTF-8.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace troupe {

/// `j` on one line; bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const nlohmann::json& j) {
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Text of another process as JSON, whose values lie at most 16 deep; deeper ones are left out, as
/// code that walks a value recurs. Discarded if it is no JSON.
inline nlohmann::json parse_shallow(const std::string& text) {
  constexpr int kDeepest = 16;
  return nlohmann::json::parse(
      text,
      [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth < kDeepest; },
      false);
}

}  // namespace troupe
