// A user's own gradient for a value.
//
//   Expr y = with_gradient(round(x), {x}, [](Expr dy, const std::vector<Expr>&, Expr) {
//     return std::vector{dy};
//   });
#pragma once

#include <functional>
#include <vector>

#include <troupe/ops/graph/expr.hpp>

namespace troupe {

/// (dL/dy, the inputs, y) to one gradient an input; an empty expression is zero.
using GradientFunction =
    std::function<std::vector<Expr>(const Expr& dy, const std::vector<Expr>& xs, const Expr& y)>;

/// Returns y with `gradient` as its gradient with respect to `xs`. No gradient flows through y's
/// own inputs.
Expr with_gradient(Operand y, std::initializer_list<Operand> xs, GradientFunction gradient);

namespace detail {

/// As above, for any number of inputs.
Expr with_gradient_of(const Operand& y, const std::vector<Expr>& xs, GradientFunction gradient);

}  // namespace detail

}  // namespace troupe
