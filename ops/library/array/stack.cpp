#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <fmt/format.h>

namespace troupe {

/// Tensors of one shape side by side along a new axis.
TROUPE_DSL(Expr stack(const std::vector<Expr>& xs, std::int64_t axis = 0,
                      std::source_location at = std::source_location::current()))
Expr stack(const std::vector<Expr>& xs, std::int64_t axis, std::source_location at) {
  if (xs.empty())
    throw Error(
        Code::invalid_argument,
        fmt::format("stack at {}: there are no operands; give it at least one", Site(at).text()));
  const Composite c("stack", {Operand(xs[0], at)});
  for (const Expr& x : xs)
    c.require(
        x.dtype() == xs[0].dtype() && x.shape().is_compatible(xs[0].shape()),
        fmt::format("{} does not go with the first, {}", x.spec().text(), xs[0].spec().text()));
  std::vector<Expr> expanded;
  for (const Expr& x : xs) expanded.push_back(expand_dims(Operand(x, at), axis));
  return concat(expanded, axis, at);
}

/// The slices of x along `axis`, without that axis. The extent must be known.
TROUPE_DSL(Exprs unstack(Operand x, std::int64_t axis = 0))
Exprs unstack(Operand x, std::int64_t axis) {
  const Composite c("unstack", {x});
  const std::int64_t extent = c.extent(0, axis);
  Exprs out;
  for (const Expr& piece :
       split(c[0], std::vector<std::int64_t>(static_cast<std::size_t>(extent), 1), axis))
    out.push_back(squeeze(piece, axis));
  return out;
}

}  // namespace troupe
