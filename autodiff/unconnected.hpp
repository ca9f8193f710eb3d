// Errors for paths that end without a gradient (`Unconnected`): some requests are refused at once,
// others when the loop or the function around them is finished.
//
// A gradient inside a loop's body has neither the initial nor the later values of the loop's
// variables, and a gradient inside a function has no caller. If its y depends on such an argument,
// and its x is outside, it holds the argument constant and registers a check. When the loop is
// bound or the function is called, the check refuses an argument that depends on x.
#pragma once

#include <vector>

#include <troupe/autodiff/activity.hpp>
#include <troupe/autodiff/gradients.hpp>

namespace troupe {

/// The first nodes of a graph: of the innermost graph that has a gradient taken, or of a graph
/// around it that may contain xs.
struct GraphPart {
  const Graph* graph;
  std::int32_t size;
};
using Graphs = std::vector<GraphPart>;

/// Throws invalid_argument if a path from an x to a y leads through an op that yields floats and
/// has no gradient; names all three.
void refuse_ends_at_ops(const Graphs& graphs, const std::vector<Expr>& ys,
                        const std::vector<Independent>& xs, const Site& at);
/// Throws invalid_argument if a y depends on an x by integers only.
void refuse_ends_at_integers(const Graphs& graphs, const std::vector<Expr>& ys,
                             const std::vector<Independent>& xs, const Site& at);

/// True if x is a value of the outermost graph and the gradient is taken inside a function. A sweep
/// sees all such values as one list, and may give zeros to an x that y does not use: `reaches`
/// finds these.
bool is_from_environment(const Independent& x, const Graphs& graphs);
/// True if some y depends on x by a path with a gradient.
bool reaches(const Independent& x, const std::vector<Expr>& ys, const Graphs& graphs);

/// Leaves checks for the arguments of the graphs that the ys depend on.
void hold_arguments(const Graphs& graphs, const std::vector<Expr>& ys,
                    const std::vector<Independent>& xs, Flows& flows, const Site& at);

}  // namespace troupe
