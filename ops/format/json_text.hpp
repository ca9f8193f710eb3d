// JSON as text that is always valid: names and texts come from users, and may be no UTF-8.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace troupe {

/// `j` on one line; bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const nlohmann::json& j) {
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace troupe
