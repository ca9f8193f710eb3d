#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/reduction.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The product over `axes` (none given: all).
TROUPE_DSL(Expr product(Operand x, detail::Axes axes = {}, bool keep_dims = false))
Expr product(Operand x, detail::Axes axes, bool keep_dims) {
  return reduce("Product", x, std::move(axes), keep_dims);
}

namespace {

struct Others {
  Expr of_each;  // the product of all elements along the axis but this one
  Expr product;  // the product of all elements, the axis kept as 1
};

// Halves are multiplied with each other, down to one element; on the way back each half is
// multiplied with the product beside it. There is no division, so that it holds where elements are
// zero, and so do its own derivatives, of any order.
Others product_of_others(const Expr& x, std::int64_t axis, std::int64_t extent) {
  auto part = [&](const Expr& e, std::int64_t from, std::int64_t count) {
    std::vector<std::int64_t> starts(static_cast<std::size_t>(x.shape().rank()), 0),
        extents(starts.size(), -1);
    starts[static_cast<std::size_t>(axis)] = from;
    extents[static_cast<std::size_t>(axis)] = count;
    return slice(e, starts, extents);
  };
  if (extent == 1) return {ones_like(x), x};
  const std::int64_t half = extent / 2, odd = extent % 2;
  const Expr left = part(x, 0, half), right = part(x, half, half);
  const Expr both = left * right;
  const Others above = product_of_others(odd ? concat({both, part(x, extent - 1, 1)}, axis) : both,
                                         axis, half + odd);
  const Expr beside = part(above.of_each, 0, half), of_left = beside * right,
             of_right = beside * left;
  return {odd ? concat({of_left, of_right, part(above.of_each, half, 1)}, axis)
              : concat({of_left, of_right}, axis),
          above.product};
}

// For an extent that is unknown or 0: the product before each element times the product after it.
Others product_of_others(const Expr& x, std::int64_t axis) {
  return {cumprod(x, axis, true) * cumprod(x, axis, true, true), product(x, {axis}, true)};
}

Expr product_of_others(const Gradient& g) {
  const Expr x = g.x();
  std::vector<std::int64_t> axes = reduction_axes(g);
  if (!x.shape().has_rank() && axes.empty())
    return reshape_like(product_of_others(reshape(x, {kAny}), 0).of_each, x);
  if (axes.empty())
    for (int a = 0; a < x.shape().rank(); ++a) axes.push_back(a);
  Expr others = ones_like(x), so_far = x;
  for (std::int64_t a : axes) {
    const std::int64_t extent =
        x.shape().has_rank() ? x.shape()[normalize_axis(a, x.shape().rank())] : kAny;
    Others along = extent < 1
                       ? product_of_others(so_far, a)
                       : product_of_others(so_far, normalize_axis(a, x.shape().rank()), extent);
    others = others * along.of_each;
    so_far = along.product;
  }
  return others;
}

}  // namespace

TROUPE_OP(Product) {
  op.doc("The product over the axes. Derivatives of any order are exact where elements are zero.");
  define_reduction(op, Reduction::product);
  op.gradient([](Gradient& g) { g.set(0, spread(g, g.dy()) * product_of_others(g)); });
}

}  // namespace troupe
