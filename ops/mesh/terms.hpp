// How the axes of an operation's inputs and outputs belong together.
//
// An operation is described as loops over terms, as an einsum is by letters: MatMul of a[m, k] and
// b[k, n] has the terms m, k and n, of which k is in no output and is summed over. The names of
// dimensions and the layouts of results follow from the terms alone. An operation without terms is
// computed whole on each device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <troupe/ops/collectives/collectives.hpp>
#include <troupe/ops/graph/graph.hpp>

namespace troupe::mesh::detail {

struct Terms {
  static constexpr int kNone = -1;  // an axis of extent 1 that is repeated, made or dropped

  /// Pieces of a term that is split are computed apart; a term that is whole is not split.
  std::vector<char> is_whole;
  std::vector<std::vector<int>> inputs;   // for each input, the term of each axis
  std::vector<std::vector<int>> outputs;  // for each output
  /// How values meet along terms that no output has.
  collective::Combine combine = collective::Combine::sum;
  /// The inputs in each of which the result is linear while the others are fixed: bit i. A sum over
  /// devices may be taken after the node.
  std::uint32_t linear = 0;
  /// The result is a sum of its inputs, up to their signs.
  bool is_sum = false;
  /// True if nothing is reduced: an output lacks terms of inputs that it does not come from.
  bool are_apart = false;
  /// Adapts attributes that speak of extents to those of a piece.
  std::function<void(troupe::detail::Attrs&, const std::vector<Shape>& outputs)> localise;

  int add(bool whole = false) {
    is_whole.push_back(whole);
    return static_cast<int>(is_whole.size()) - 1;
  }
};

/// The terms of a node whose values have known shapes; none: it is computed whole.
std::optional<Terms> terms_of(const Graph& graph, const troupe::detail::Node& node);

/// Reshape and its kin, which regroup the dimensions of their input.
bool is_reshape(const troupe::detail::Node& node);

}  // namespace troupe::mesh::detail
