// What gradients say of paths that end (`Unconnected`): which requests are refused at once, and
// which when the loop or the function around them is finished.
//
// A gradient inside a loop's body sees neither what the loop's variables start as nor what becomes
// of them, and one inside a function sees no caller. If its y depends on such an argument, and its
// x is outside, it holds the argument constant, and leaves a check behind: once the loop is bound,
// or the function called, the argument must not come of x.
#pragma once

#include <vector>

#include <troupe/autodiff/activity.hpp>
#include <troupe/autodiff/gradients.hpp>

namespace troupe {

/// The first nodes of the innermost graph that a gradient is taken of, and of those around it as
/// far as there are xs.
struct GraphPart {
  const Graph* graph;
  std::int32_t size;
};
using Graphs = std::vector<GraphPart>;

/// Throws invalid_argument if a way from an x to a y leads through an op that yields floats and has
/// no gradient, naming all three.
void refuse_ends_at_ops(const Graphs& graphs, const std::vector<Expr>& ys,
                        const std::vector<Independent>& xs, const Site& at);
/// Throws invalid_argument if a y depends on an x by integers only.
void refuse_ends_at_integers(const Graphs& graphs, const std::vector<Expr>& ys,
                             const std::vector<Independent>& xs, const Site& at);

/// True for an x of the outermost graph, of which a function takes its environment: all of that is
/// one list to a sweep.
bool is_from_environment(const Independent& x, const Graphs& graphs);
/// True if some y depends on x by a path with a gradient.
bool reaches(const Independent& x, const std::vector<Expr>& ys, const Graphs& graphs);

/// Leaves checks for the arguments of the graphs that the ys depend on.
void hold_arguments(const Graphs& graphs, const std::vector<Expr>& ys,
                    const std::vector<Independent>& xs, Flows& flows, const Site& at);

}  // namespace troupe
