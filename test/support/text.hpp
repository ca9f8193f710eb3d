// Helpers that search texts.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

namespace troupe::test {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::string joined(const std::vector<std::string>& all) {
  return fmt::format("{}", fmt::join(all, "\n"));
}

}  // namespace troupe::test
