// Two checks of gradients that do not use the formulas under test.
//
//   CheckReport r = check_gradients([](Graph&, const Exprs& x) { return tanh(x[0]) * x[1]; },
//                                   {tx, ty});
//   if (!r.ok()) std::puts(r.text.c_str());
//
// Both compute in f64: floating inputs are converted to it first; inputs of other dtypes are passed
// through and not differentiated. The function may be called several times, on several graphs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/ops/eager/eager.hpp>

namespace troupe {

namespace detail {

/// Builds y from xs on a graph.
using Differentiable = std::function<Expr(Graph&, const Exprs& xs)>;
/// Runs a graph: the fetched values, on the host.
using Evaluator = std::function<std::vector<Tensor>(const Graph&, const Feeds&,
                                                    const std::vector<Expr>& fetches)>;

}  // namespace detail

/// Replays the graph on a fresh Eager scope.
std::vector<Tensor> evaluate_eagerly(const Graph& graph, const Feeds& feeds,
                                     const std::vector<Expr>& fetches);

struct CheckOptions {
  double tolerance = 1e-6;   // bound of |a - b| / max(1, |a|, |b|)
  int order = 1;             // 2: checks the gradient's gradient as well
  bool open_shapes = false;  // builds the function on inputs whose extents are not known
  detail::Evaluator evaluate = evaluate_eagerly;
  std::uint64_t seed = 1;  // for the weights that make a scalar of y, and for directions
};

struct CheckReport {
  // relative error, infinite if a value is not a number on one side only
  double worst = 0;
  double tolerance = 0;
  std::int64_t compared = 0;  // numbers
  std::string text;           // the worst place: which input, which element, both values
  bool ok() const { return worst <= tolerance; }
};

/// Central differences of <w, y> for every element of every floating input, w random. The step is
/// chosen for each element: cbrt(epsilon) * max(1, |x|), where the error of rounding meets that of
/// truncation (Press et al., Numerical Recipes, §5.7), made exactly representable.
CheckReport check_gradients(const detail::Differentiable& f, const std::vector<Tensor>& xs,
                            const CheckOptions& options = {});

/// <J v, w> == <v, J^T w> for random v and w. J v is got without finite differences, by going
/// backwards twice: g(w) = J^T w is linear in w, so the gradient of <g(w), v> in w is J v.
CheckReport check_dot_product(const detail::Differentiable& f, const std::vector<Tensor>& xs,
                              const CheckOptions& options = {});

}  // namespace troupe
