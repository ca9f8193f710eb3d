#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/pooling.hpp>

namespace troupe {

/// The largest element of each window, channel by channel; NaN where one is. x: [batch, space...,
/// channels]; `size`: the window's extents; strides default to `size`. Padding is ignored, and
/// fills no window.
TROUPE_DSL(Expr max_pool(Operand x, std::vector<std::int64_t> size, WindowOptions window = {}))
Expr max_pool(Operand x, std::vector<std::int64_t> size, WindowOptions window) {
  if (window.strides.empty()) window.strides = size;
  return bind1("MaxPool", {x}, attrs_of_pooling(std::move(size), window));
}

// The position of each window's largest element depends on x alone. So the gradient is linear in
// dy, and its own gradient takes the elements at these positions.

TROUPE_OP(MaxPool) {
  op.doc(
      "The largest element of each window over [batch, space..., channels], the first of equals.");
  define_pooling(op, Pool::max);
  op.gradient([](Gradient& g) { g.set(0, bind1("MaxPoolGradient", {g.x(), g.dy()}, g.attrs())); });
}

TROUPE_OP(MaxPoolGradient) {
  op.doc("Zeros of x's shape with each element of dy added where its window of x is largest.");
  define_pooling(op, Pool::max_gradient);
  op.gradient([](Gradient& g) {
    if (g.needs(1)) g.set(1, bind1("MaxPoolAt", {g.x(0), g.dy()}, g.attrs()));
  });
}

TROUPE_OP(MaxPoolAt) {
  op.doc("The element of the second input in each window where the first input is largest.");
  define_pooling(op, Pool::max_at);
  op.gradient([](Gradient& g) {
    if (g.needs(1)) g.set(1, bind1("MaxPoolGradient", {g.x(0), g.dy()}, g.attrs()));
  });
}

}  // namespace troupe
