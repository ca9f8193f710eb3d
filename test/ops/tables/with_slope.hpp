// A function's value and slope, of shapes that are known when it is built or when it runs.
#pragma once

#include <string>
#include <vector>

#include <troupe/autodiff/gradients.hpp>
#include <troupe/functions.hpp>
#include <troupe/test/ops/tables/computed.hpp>
#include <troupe/test/support/callable.hpp>

namespace troupe::test {

/// f(x) and the gradient of its sum, weighted so that no row's gradient cancels.
inline std::vector<Tensor> with_slope(const Function& f, const std::vector<Tensor>& xs,
                                      bool known = true) {
  Graph g;
  Exprs in;
  Feeds feeds;
  for (const Tensor& x : xs) {
    in.push_back(g.input(
        "x" + std::to_string(in.size()), x.dtype(),
        known ? x.shape()
              : Shape(std::vector<std::int64_t>(static_cast<std::size_t>(x.rank()), kAny))));
    feeds.emplace_back(in.back(), x);
  }
  Expr y = f(in);
  if (!is_floating(y.dtype())) return Engine({.workers = 1}).run(g, feeds, {y});
  Expr weight = cast(cos(cast(reshape_like(positions_along(reshape(y, {kAny}), 0), y), DType::f64)),
                     y.dtype());
  return Engine({.workers = 1}).run(g, feeds, {y, gradients(sum(y * weight), {in[0]})[0]});
}

}  // namespace troupe::test
