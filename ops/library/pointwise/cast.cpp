#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Each element as `dtype`: floats to integers are cut towards zero, anything but 0 is true.
TROUPE_DSL(Expr cast(Operand x, DType dtype))
Expr cast(Operand x, DType dtype) {
  if (x.is_expr() && x.expr().dtype() == dtype) return x.expr();
  return bind1("Cast", {x}, Attrs{{"dtype", dtype}});
}

TROUPE_OP(Cast) {
  op.doc("Each element converted to another dtype.");
  op.attr<DType>("dtype");
  op.pointwise_recorded(1, [](Recorder& r, const Attrs& attrs) {
    r.finish(r.cast(r.input(0), attrs.get<DType>("dtype")));
  });
  op.gradient([](Gradient& g) {
    if (is_floating(g.x().dtype()) || is_complex(g.x().dtype()))
      g.set(0, cast(g.dy(), g.x().dtype()));
  });
}

}  // namespace troupe
