#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>
#include <troupe/ops/reduction.hpp>

namespace troupe {

/// log(sum(exp(x))) over `axes` (none given: all), without overflow.
TROUPE_DSL(Expr logsumexp(Operand x, std::vector<std::int64_t> axes = {}, bool keep_dims = false))
Expr logsumexp(Operand x, std::vector<std::int64_t> axes, bool keep_dims) { return reduce("LogSumExp", x, std::move(axes), keep_dims); }

TROUPE_OP(LogSumExp) {
  op.doc("log(sum(exp(x))) over the axes, without overflow.");
  define_reduction(op, Reduction::logsumexp);
  op.gradient([](Gradient& g) { g.set(0, spread(g, g.dy()) * exp(g.x() - spread(g, g.y()))); });
}

}  // namespace troupe
