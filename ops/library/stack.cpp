#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

namespace troupe {

/// Tensors of one shape side by side along a new axis.
TROUPE_DSL(Expr stack(const std::vector<Expr>& xs, std::int64_t axis = 0, std::source_location at = std::source_location::current()))
Expr stack(const std::vector<Expr>& xs, std::int64_t axis, std::source_location at) {
  for (const Expr& x : xs)
    if (x.dtype() != xs[0].dtype() || !x.shape().is_compatible(xs[0].shape()))
      throw Error(Code::invalid_argument, "stack at " + Site(at).text() + ": " + x.spec().text() + " does not go with the first, " + xs[0].spec().text());
  std::vector<Expr> expanded;
  for (const Expr& x : xs) expanded.push_back(expand_dims(Operand(x, at), axis));
  return concat(expanded, axis, at);
}

/// The slices of x along `axis`, without that axis. The extent must be known.
TROUPE_DSL(Exprs unstack(Operand x, std::int64_t axis = 0))
Exprs unstack(Operand x, std::int64_t axis) {
  Shape s = x.expr().shape();
  int a = normalize_axis(axis, s.rank());
  if (s[a] < 0)
    throw Error(Code::invalid_argument, "unstack at " + x.site().text() + ": axis " + std::to_string(a) + " of " + s.text() + " is unknown");
  Exprs out;
  for (const Expr& piece : split(x, std::vector<std::int64_t>(static_cast<std::size_t>(s[a]), 1), a))
    out.push_back(squeeze(Operand(piece), a));
  return out;
}

}  // namespace troupe
