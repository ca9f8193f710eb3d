#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// log(sum(exp(x))) over `axes` (none given: all), without overflow.
TROUPE_DSL(Expr logsumexp(Operand x, detail::Axes axes = {}, bool keep_dims = false))
Expr logsumexp(Operand x, detail::Axes axes, bool keep_dims) {
  return reduce("LogSumExp", x, std::move(axes), keep_dims);
}

TROUPE_OP(LogSumExp) {
  op.doc("log(sum(exp(x))) over the axes, without overflow.");
  define_reduction(op, Reduction::logsumexp);
  op.gradient([](Gradient& g) {
    // Softmax of x. The output y is rounded, by as much as 4 for 1e8 in f32. It serves only as the
    // shift, so that no exponential overflows; the sum of the exponentials corrects its error.
    const Expr x = widened_half(g.x()), y = stop_gradient(widened_half(g.y())),
               e = exp(x - spread(g, y)), share = e / spread(g, reduce_alike(g, "Sum", e));
    g.set(0, cast(spread(g, widened_half(g.dy())) * share, g.x().dtype()));
  });
}

}  // namespace troupe
