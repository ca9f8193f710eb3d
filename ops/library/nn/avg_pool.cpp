#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/pooling.hpp>

namespace troupe {

/// The mean of each window, channel by channel. x: [batch, space..., channels], floating; `size`:
/// the window's extents; strides default to `size`. Padding is not counted: at the border the mean
/// covers existing elements only. To count zeros around x, `pad` it first.
TROUPE_DSL(Expr avg_pool(Operand x, std::vector<std::int64_t> size, WindowOptions window = {}))
Expr avg_pool(Operand x, std::vector<std::int64_t> size, WindowOptions window) {
  if (window.strides.empty()) window.strides = size;
  return bind1("AvgPool", {x}, attrs_of_pooling(std::move(size), window));
}

TROUPE_OP(AvgPool) {
  op.doc("The mean of each window over [batch, space..., channels], without padding.");
  define_pooling(op, Pool::mean);
  op.gradient([](Gradient& g) { g.set(0, bind1("AvgPoolGradient", {g.dy(), g.x()}, g.attrs())); });
}

TROUPE_OP(AvgPoolGradient) {
  op.doc("Each element of dy in equal parts where its window of the second input lies.");
  define_pooling(op, Pool::mean_gradient);
  op.gradient([](Gradient& g) { g.set(0, bind1("AvgPool", {g.dy()}, g.attrs())); });
}

}  // namespace troupe
