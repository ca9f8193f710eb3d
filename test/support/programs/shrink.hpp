// Makes a failing recipe small: takes parts away for as long as it still fails.
//
// A candidate may crash or hang what is tested, so each runs in a process of its own (`apart`).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <troupe/test/support/programs/recipe.hpp>

namespace troupe::test {

/// Returns the error that `f` reports, computed in a process of its own; also reports if `f`
/// crashes or hangs. A hang is a run of `seconds`, or of so much processor time, which a crowded
/// machine does not use up.
std::optional<std::string> apart(const std::function<std::optional<std::string>()>& f,
                                 unsigned seconds = 20,
                                 std::chrono::milliseconds processor = std::chrono::hours(1));

/// `budget`: candidates that are tried at most.
Recipe shrunk(Recipe recipe, const std::function<bool(const Recipe&)>& fails, int budget);

}  // namespace troupe::test
