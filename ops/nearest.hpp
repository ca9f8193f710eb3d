// What somebody who misspelt a name may have meant.
#pragma once

#include <string_view>
#include <vector>

namespace troupe {

/// The name among `names` that differs in the fewest characters put in, left out or changed, in three at most; empty if all differ in more.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace troupe
