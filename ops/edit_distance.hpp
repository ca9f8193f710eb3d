// What somebody may have meant who wrote a name that nothing has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// How many characters are added, taken away or changed between the two (Levenshtein).
int edit_distance(std::string_view a, std::string_view b);
/// `; did you mean 'w1'?` with the nearest of `names`; empty if none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& names);

}  // namespace troupe
