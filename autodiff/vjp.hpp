// Derivatives of C++ functions in a direction: products with the Jacobian from both sides.
//
//   auto f = [](Expr x) { return square(x); };
//   auto pull = vjp(f, x);                       // pull.value() is f(x)
//   Expr dx = pull(dy);                          // dy J: reverse mode, any number of times
//   auto [y, dy] = jvp(f, x, dx);                // J dx: forward mode
//   Expr hv = hessian_vector_product(f, x, v);   // H v, without H
//
// A function takes and yields expressions or structures of them; a tuple is spread over the
// parameters. Values are eager, or of a graph that is being built or traced. Variables that the
// function reads count as constants. Forward mode needs no rules of its own: g(w) = w J is linear
// in w, and its gradient in the direction dx is J dx (Townsend, "A new trick for calculating
// Jacobian vector products", 2017). So each op that has a second derivative has a forward mode, and
// a custom gradient holds for both.
// **Threads**: those of a tape. A value on which the result does not depend has zeros.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <troupe/autodiff/tape.hpp>

namespace troupe {

struct VjpOptions {
  /// False: the records are dropped after the first product, and a second one throws.
  bool persistent = true;
};

namespace detail {

using ExprFunction = std::function<Exprs(const Exprs& xs)>;

/// A function's value and what its products with a cotangent need.
class Pullback {
 public:
  Pullback(const ExprFunction& f, Exprs xs, const VjpOptions& options, const Site& at);
  const Exprs& values() const { return ys_; }
  /// One gradient an x; zeros where none arrives. `dys`: as many as values, an empty one is ones.
  Exprs products(const Exprs& dys, const std::source_location& at);

 private:
  GradientTape tape_;
  Exprs xs_, ys_;
};

/// The values of f at xs, then their tangents. An empty expression among `dxs` is zero.
Exprs jvp(const ExprFunction& f, const Exprs& xs, const Exprs& dxs, const std::source_location& at);
Exprs hessian_vector_product(const ExprFunction& f, const Exprs& xs, const Exprs& vs,
                             const std::source_location& at);

/// The expressions that a structure is made of; a variable is read. Refuses other operands.
Exprs expressions_of(const Operands& operands, const char* what, const Site& at);

template <class F, class X>
using ResultAt = decltype(apply_to(std::declval<F&>(), std::declval<Built<X>>()));

template <class F, class X>
ExprFunction on_expressions(F& f, const Site& at) {
  return [&f, at](const Exprs& xs) {
    return expressions_of(flattened(apply_to(f, built<X>(xs)), at), "result", at);
  };
}
template <class T>
Exprs parts_of(const T& structure, const char* what, const std::source_location& at) {
  return expressions_of(flattened(structure, at), what, at);
}

}  // namespace detail

/// The result of `vjp`: the function's value, and its products with cotangents of that value.
template <class Y, class X>
class Vjp {
 public:
  explicit Vjp(std::shared_ptr<detail::Pullback> core) : core_(std::move(core)) {}
  Y value() const { return detail::built<Y>(core_->values()); }
  /// The gradient of the sum over dy * value, in the structure of x.
  X operator()(const Y& dy, std::source_location at = std::source_location::current()) const {
    return detail::built<X>(core_->products(detail::parts_of(dy, "cotangent", at), at));
  }

 private:
  std::shared_ptr<detail::Pullback> core_;
};

/// Computes f(x) and keeps what its products with cotangents need.
template <class F, class X>
auto vjp(F f, const X& x, const VjpOptions& options = {},
         std::source_location at = std::source_location::current()) {
  using Y = detail::Built<detail::ResultAt<F, X>>;
  return Vjp<Y, detail::Built<X>>(std::make_shared<detail::Pullback>(
      detail::on_expressions<F, X>(f, at), detail::parts_of(x, "argument", at), options, at));
}

/// The pair of f(x) and its derivative in the direction dx, which has the structure, dtypes and
/// shapes of x; an empty expression in it is zero.
template <class F, class X>
auto jvp(F f, const X& x, const detail::Built<X>& dx,
         std::source_location at = std::source_location::current()) {
  using Y = detail::Built<detail::ResultAt<F, X>>;
  const Exprs all =
      detail::jvp(detail::on_expressions<F, X>(f, at), detail::parts_of(x, "argument", at),
                  detail::parts_of(dx, "tangent", at), at);
  const auto half = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  return std::pair<Y, Y>(detail::built<Y>(Exprs(all.begin(), half)),
                         detail::built<Y>(Exprs(half, all.end())));
}

/// The Hessian of the sum of f's results at x, times v, in the structure of x.
template <class F, class X>
detail::Built<X> hessian_vector_product(F f, const X& x, const detail::Built<X>& v,
                                        std::source_location at = std::source_location::current()) {
  return detail::built<X>(detail::hessian_vector_product(detail::on_expressions<F, X>(f, at),
                                                         detail::parts_of(x, "argument", at),
                                                         detail::parts_of(v, "vector", at), at));
}

}  // namespace troupe
