#include <troupe/functions.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>
#include <troupe/ops/reduction.hpp>

namespace troupe {

/// The product over `axes` (none given: all).
TROUPE_DSL(Expr product(Operand x, std::vector<std::int64_t> axes = {}, bool keep_dims = false))
Expr product(Operand x, std::vector<std::int64_t> axes, bool keep_dims) { return reduce("Product", x, std::move(axes), keep_dims); }

namespace {

struct Others {
  Expr of_each;  // the product of all elements along the axis but this one
  Expr product;  // of all, the axis kept as 1
};

// Halves are multiplied with each other, up to one element, and what stands beside each comes down again: no division,
// so that it holds where elements are zero, and so do its own derivatives, of any order.
Others product_of_others(const Expr& x, std::int64_t axis, std::int64_t extent) {
  auto part = [&](const Expr& e, std::int64_t from, std::int64_t count) {
    std::vector<std::int64_t> starts(static_cast<std::size_t>(x.shape().rank()), 0), extents(starts.size(), -1);
    starts[static_cast<std::size_t>(axis)] = from;
    extents[static_cast<std::size_t>(axis)] = count;
    return slice(e, starts, extents);
  };
  if (extent == 1) return {ones_like(x), x};
  const std::int64_t half = extent / 2, odd = extent % 2;
  const Expr left = part(x, 0, half), right = part(x, half, half);
  const Expr both = left * right;
  const Others above = product_of_others(odd ? concat({both, part(x, extent - 1, 1)}, axis) : both, axis, half + odd);
  const Expr beside = part(above.of_each, 0, half), of_left = beside * right, of_right = beside * left;
  return {odd ? concat({of_left, of_right, part(above.of_each, half, 1)}, axis) : concat({of_left, of_right}, axis), above.product};
}

// Where the extents along the axes are known and above 0; else empty.
Expr product_of_others(const Gradient& g) {
  const Expr x = g.x();
  if (!x.shape().has_rank()) return {};
  std::vector<std::int64_t> axes = reduction_axes(g);
  for (std::int64_t& a : axes) a = normalize_axis(a, x.shape().rank());
  if (axes.empty())
    for (int a = 0; a < x.shape().rank(); ++a) axes.push_back(a);
  Expr others = ones_like(x), so_far = x;
  for (std::int64_t a : axes) {
    const std::int64_t extent = x.shape()[static_cast<int>(a)];
    if (extent < 1) return {};
    Others along = product_of_others(so_far, a, extent);
    others = others * along.of_each;
    so_far = along.product;
  }
  return others;
}

}  // namespace

TROUPE_OP(Product) {
  op.doc("The product over the axes. Derivatives are exact where elements are zero; second ones only where the extents along the axes are known.");
  define_reduction(op, Reduction::product);
  op.gradient([](Gradient& g) {
    Expr others = product_of_others(g);
    if (others.is_empty()) {
      // By division: with one zero its own element alone has a gradient, with two none has.
      Expr x = g.x(), is_zero = x == 0.0;
      Expr zeros = spread(g, reduce_alike(g, "Sum", cast(is_zero, x.dtype())));
      Expr rest = spread(g, reduce_alike(g, "Product", where(is_zero, 1.0, x)));
      others = where(zeros == 0.0, rest / where(is_zero, 1.0, x), where(logical_and(is_zero, zeros == 1.0), rest, 0.0));
    }
    g.set(0, spread(g, g.dy()) * others);
  });
}

}  // namespace troupe
