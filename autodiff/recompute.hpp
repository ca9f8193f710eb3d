// Values that the backward pass computes again in place of reading saved ones (checkpointing; Chen
// et al. 2016, "Training deep nets with sublinear memory cost").
//
//   Expr h = recompute([&](Expr x) { return relu(matmul(relu(matmul(x, w1)), w2)); })(x);
//   std::vector<Expr> d = gradients(loss, {w1, w2});    // runs the function again, from x
//
// The function may use values and variables from outside; all of them have gradients. These values
// are saved, and so are draws and results of effects: they are the same both times. The values
// between are not. The work is done again when the cotangents of the results have arrived.
// Works in graphs, loops, branches, traced functions and on meshes. In eager code f simply runs; if
// a tape records, each call traces f and runs it as a staged program.
#pragma once

#include <functional>
#include <source_location>
#include <type_traits>
#include <utility>

#include <troupe/controlflow/structure.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe {

namespace detail {

/// `given` are the arguments, by which the reader is found.
Exprs recomputed(const Operands& given, const std::function<Operands()>& code, const Site& at);

template <class F>
class Recomputed {
 public:
  Recomputed(F f, std::source_location at) : f_(std::move(f)), at_(at) {}

  template <class... X>
  auto operator()(const X&... xs) const {
    static_assert(std::is_invocable_v<const F&, const X&...>,
                  "recompute: the function does not take these arguments");
    using Result = std::decay_t<std::invoke_result_t<const F&, const X&...>>;
    if constexpr (!require_structure<Result>()) {
      return never_made<Expr>();
    } else {
      Operands given;
      (Structure<std::decay_t<X>>::flatten(xs, given, Site(at_)), ...);
      return built<Result>(recomputed(
          given, [&] { return flattened(f_(xs...), at_); }, Site(at_)));
    }
  }

 private:
  const F f_;
  const std::source_location at_;
};

}  // namespace detail

/// Returns f with the gradient that computes f again. f: of expressions or structures of them, one
/// of which has to be an expression, to an expression or a structure; f(x...) has no effect but
/// those of its nodes. Throws invalid_argument, naming the caller's line, if no argument is an
/// expression.
template <class F>
detail::Recomputed<F> recompute(F f, std::source_location at = std::source_location::current()) {
  return {std::move(f), at};
}

}  // namespace troupe
