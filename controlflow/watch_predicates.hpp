// A loop that ends because what its condition compares is NaN has not got where it was going, and
// says so.
//
//   while_loop([](Expr x) { return x < 10.0; }, ...)   // x becomes NaN: the run fails, naming the loop, x and this line
//
// A comparison with NaN is false, as IEEE 754 has it. So, once a loop has ended, its condition is
// looked at once more, on the values with which it ended, with each <, <=, >, >= of floats that saw
// NaN taken as true: if the loop would have gone on, NaN is what ended it. A condition that asks
// is_finite, is_nan or x != x itself is false, or true, either way, and none of this concerns it.
// Nothing is done in an iteration: variables are there when the loop has ended; what the predicate
// makes of comparisons is computed again, and so is what the condition compares where that takes
// time linear in what it reads: pointwise ops, sums, cuts. Only what is made of more (a product, an
// element of a list) leaves the loop as a value of its own, or what it is made of, where that is
// less. What is computed again has the same bits. Not watched is what reaches the predicate by a
// list, a state or a functional node. At once the user's condition is called once more.
//
// Invariant: a loop's value, and how often it runs, are the same with and without.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/program.hpp>
#include <troupe/ops/graph/subgraph.hpp>

namespace troupe {

struct Comparisons {
  // the same, with what it compares and others cannot compute again as further outputs
  std::shared_ptr<const SubGraph> condition;
  /// Of the condition's arguments and its further outputs: would the loop have gone on, then what
  /// is compared, as `holds_nan` takes it.
  std::shared_ptr<const SubGraph> check;
  std::string what;  // of each, a line
};

/// None if the predicate does not come of comparisons of floats. `variables`: the arguments before
/// the captures. `numbers`:
/// what the user calls them by, where passes have removed some; empty: by their places.
std::optional<Comparisons> comparisons_of(const SubGraph& condition, int variables,
                                          const std::vector<std::int64_t>& numbers = {});

/// A number that was compared, or, of a tensor, whether it holds NaN.
bool holds_nan(const Tensor& compared);
/// `while_loop 'train' (train.cpp:41)`: how errors name a While node.
std::string name_of_loop(const Node& node);
/// What an error says that is about the `i`th thing compared.
std::string ended_by_nan(const std::string& what, std::size_t i);

/// The pass: gives every While that compares floats its check, as a third sub-graph.
Program watch_predicates(Program program);

}  // namespace troupe
