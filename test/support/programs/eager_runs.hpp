// Recipes as C++ code on an eager scope: computed at once, or staged by a traced function. Compares
// values with the oracle and, to the bit, with the interpreter of the recipe's graph; gradients of
// tapes with those of that graph.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <troupe/test/support/programs/compare.hpp>

namespace troupe::test {

/// The quickest first.
const std::vector<Way>& eager_ways();

/// Programs that may be compared: eager code and traced functions leave out no effect.
inline Tastes eager_tastes() { return {.does_all = true}; }

/// Throws Unfit if the fetches leave out an effect.
std::optional<std::string> eager_difference(const Recipe& r, const Expected& e, const Way& way);

/// Compares the derivatives of that order by the recipe's real inputs, from nested tapes. A traced
/// way computes them inside the function for even seeds, and around its call for odd ones. Throws
/// Unfit where nothing is differentiated, or an effect is left out.
std::optional<std::string> tape_difference(const Recipe& r, const Way& way, int order);

}  // namespace troupe::test
