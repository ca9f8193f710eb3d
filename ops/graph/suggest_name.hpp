// Suggests a known name for an unknown one, which a user may have misspelt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The name among `names` that differs from `name` in the fewest characters put in, left out or
/// changed; empty if all differ in more than three, or in all of it.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& names);

/// `; did you mean 'w1'?` with the nearest name; empty if there is none.
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace troupe
