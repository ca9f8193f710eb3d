// A loop that ends because its condition compares NaN has not reached its goal: its run fails.
//
//   // x becomes NaN: the run fails, naming the loop, x and this line
//   while_loop([](Expr x) { return x < 10.0; }, ...)
//
// A comparison with NaN is false (IEEE 754). So, once a loop has ended, the check evaluates its
// condition once more, on the values with which it ended. Each <, <=, >, >= of floats that met NaN
// counts as true: if the loop would have gone on, NaN has ended it. A condition that uses
// is_finite, is_nan or x != x has one value either way, and is not affected. An iteration costs
// nothing more: variables are known when the loop has ended. The predicate is computed again from
// the comparisons, and so are their operands if that takes time linear in the inputs: pointwise
// ops, sums, cuts. Only costlier operands (a product, an element of a list) leave the loop as
// values of their own, or their operands do, if they are smaller. Recomputed values have the same
// bits. Comparisons that reach the predicate through a list, a state or a functional node are not
// watched. At once, the user's condition is called once more.
//
// Invariant: a loop's value and its number of iterations are the same with and without the check.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

struct Comparisons {
  // the condition, with compared values that the check cannot compute again as further outputs
  std::shared_ptr<const SubGraph> condition;
  /// Takes the condition's arguments and its further outputs. Yields whether the loop would have
  /// gone on, then the compared values, as `holds_nan` takes them.
  std::shared_ptr<const SubGraph> check;
  std::string what;  // a line for each compared value
};

/// Returns none if the predicate does not depend on comparisons of floats. `variables`: the number
/// of arguments before the captures. `numbers`: the user's numbers of the variables, if passes have
/// removed some; empty: their places.
std::optional<Comparisons> comparisons_of(const SubGraph& condition, int variables,
                                          const std::vector<std::int64_t>& numbers = {});

/// Returns true if a compared value is NaN. `compared`: the number, or for a tensor a bool that is
/// true if it contains NaN.
bool holds_nan(const Tensor& compared);
/// `while_loop 'train' (train.cpp:41)`: how errors name a While node.
std::string name_of_loop(const Node& node);
/// Returns the error text about the `i`th compared value.
std::string ended_by_nan(const std::string& what, std::size_t i);

/// The pass: gives every While that compares floats its check, as a third sub-graph.
Program check_nan_predicates(Program program);

}  // namespace troupe
