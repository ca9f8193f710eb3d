#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/scan.hpp>
#include <troupe/ops/graph/composite.hpp>

namespace troupe {

/// Running sums along `axis`; exclusive: without the element itself; reverse: from the end. f32 and
/// smaller add in double, integers wrap, bools count in i64.
TROUPE_DSL(Expr cumsum(Operand x, std::int64_t axis = -1, bool exclusive = false,
                       bool reverse = false))
Expr cumsum(Operand x, std::int64_t axis, bool exclusive, bool reverse) {
  return bind1("CumSum", {counted(x)},
               Attrs{{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}});
}

TROUPE_OP(CumSum) {
  op.doc("Running sums along one axis.");
  define_scan(op, Scan::sum);
  op.gradient([](Gradient& g) {
    const Attrs& a = g.attrs();
    g.set(0, cumsum(g.dy(), a.get<std::int64_t>("axis"), a.get<bool>("exclusive"),
                    !a.get<bool>("reverse")));
  });
}

}  // namespace troupe
