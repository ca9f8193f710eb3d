#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/scan.hpp>

namespace troupe {

/// The recurrence s[i] = b[i] + a[i] s[i-1] along `axis`, from nothing; reverse: s[i] = b[i] +
/// a[i+1] s[i+1]. a and b have one shape.
TROUPE_DSL(Expr linear_scan(Operand a, Operand b, std::int64_t axis = -1, bool reverse = false))
Expr linear_scan(Operand a, Operand b, std::int64_t axis, bool reverse) {
  return bind1("LinearScan", {a, b}, Attrs{{"axis", axis}, {"reverse", reverse}});
}

TROUPE_OP(LinearScan) {
  op.doc("The linear recurrence s[i] = b[i] + a[i] s[i-1] along one axis.");
  define_scan(op, Scan::linear);
  op.gradient([](Gradient& g) {
    // The adjoint is the same recurrence the other way: a[i] joins the elements i-1 and i in both.
    const std::int64_t axis = g.attrs().get<std::int64_t>("axis");
    const bool reverse = g.attrs().get<bool>("reverse");
    Expr carried = linear_scan(g.x(0), g.dy(), axis, !reverse);
    if (g.needs(0))
      g.set(0, reverse ? shifted(carried, axis, false) * g.y()
                       : carried * shifted(g.y(), axis, false));
    if (g.needs(1)) g.set(1, carried);
  });
}

}  // namespace troupe
