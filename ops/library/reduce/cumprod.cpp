#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/scan.hpp>

namespace troupe {

/// Running products along `axis`; exclusive: without the element itself; reverse: from the end.
TROUPE_DSL(Expr cumprod(Operand x, std::int64_t axis = -1, bool exclusive = false,
                        bool reverse = false))
Expr cumprod(Operand x, std::int64_t axis, bool exclusive, bool reverse) {
  return bind1("CumProd", {x},
               Attrs{{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}});
}

TROUPE_OP(CumProd) {
  op.doc(
      "Running products along one axis. Derivatives of any order are exact where elements are "
      "zero.");
  define_scan(op, Scan::product);
  op.gradient([](Gradient& g) {
    // With p the product of the elements before k: dx[k] = p[k] s[k], where s[k] = dy[k] + x[k+1]
    // s[k+1]; no division. Exclusive, dy[k] reaches only elements before it, so s[k] = dy[k+1] +
    // x[k+1] s[k+1].
    const std::int64_t axis = g.attrs().get<std::int64_t>("axis");
    const bool exclusive = g.attrs().get<bool>("exclusive"),
               reverse = g.attrs().get<bool>("reverse");
    Expr before = cumprod(g.x(), axis, true, reverse),
         dy = exclusive ? shifted(g.dy(), axis, !reverse) : g.dy();
    // The scan's factor stands at the higher position of the two it joins.
    g.set(0,
          before * linear_scan(reverse ? shifted(g.x(), axis, false) : g.x(), dy, axis, !reverse));
  });
}

}  // namespace troupe
