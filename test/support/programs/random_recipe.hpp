// Random recipes: the same seed gives the same program on every platform.
#pragma once

#include <cstdint>

#include <troupe/test/support/programs/recipe.hpp>

namespace troupe::test {

enum class Use : std::uint8_t { none, reads, all };  // use of variables

struct Tastes {
  bool may_fail = false;  // operations that are errors for some operands
  Use variables = Use::all;
  // for finite differences: reals only are differentiated, nothing has a kink
  bool is_smooth = false;
  int depth = 3;          // levels of nested control flow
  int trips = 9;          // most trips of an outermost loop
  bool is_large = false;  // some tensors are of up to 1.3 MB
  int slopes = 30;        // percentage of programs that take gradients anywhere inside
  bool does_all = false;  // the fetches need all effects
};

Recipe random_recipe(std::uint64_t seed, const Tastes& tastes = {});

}  // namespace troupe::test
