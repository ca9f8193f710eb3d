// Suggests a known name for an unknown one, which a user may have misspelt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// `; did you mean 'w1'?` with the name among `names` that differs in the fewest characters put in,
/// left out or changed; empty if all differ in more than three, or in all of it.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace troupe
