#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>
#include <troupe/ops/reduction.hpp>

namespace troupe {

/// The product over `axes` (none given: all).
TROUPE_DSL(Expr product(Operand x, std::vector<std::int64_t> axes = {}, bool keep_dims = false))
Expr product(Operand x, std::vector<std::int64_t> axes, bool keep_dims) { return reduce("Product", x, std::move(axes), keep_dims); }

TROUPE_OP(Product) {
  op.doc("The product over the axes.");
  define_reduction(op, Reduction::product);
  op.gradient([](Gradient& g) {
    // The product of the others (whose own gradient, and so second derivatives, miss what crosses zeros): exclusive of zeros only where there is none; with one zero its
    // own element alone has a gradient, with two none has.
    Expr x = g.x(), is_zero = x == 0.0;
    Expr zeros = spread(g, reduce_alike(g, "Sum", cast(is_zero, x.dtype())));
    Expr rest = spread(g, reduce_alike(g, "Product", where(is_zero, 1.0, x)));
    Expr others = where(zeros == 0.0, rest / where(is_zero, 1.0, x), where(logical_and(is_zero, zeros == 1.0), rest, 0.0));
    g.set(0, spread(g, g.dy()) * others);
  });
}

}  // namespace troupe
