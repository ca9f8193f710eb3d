#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/scan.hpp>

#include <fmt/format.h>

namespace troupe {

/// For each value how many elements of its row of `sorted`, which rises along the last axis, are
/// below it; right: or equal to it. Rows: axes before the last agree. NaN is the largest. Result:
/// i64 in values' shape.
TROUPE_DSL(Expr search_sorted(Operand sorted, Operand values, bool right = false))
Expr search_sorted(Operand sorted, Operand values, bool right) {
  return bind1("SearchSorted", {sorted, values}, Attrs{{"right", right}});
}

namespace {
void require_rows_alike(const Shape& sorted, const Shape& values) {
  if (!sorted.has_rank() || !values.has_rank()) return;
  bool alike = sorted.rank() == values.rank() && sorted.rank() >= 1;
  for (int i = 0; alike && i + 1 < sorted.rank(); ++i)
    alike = sorted[i] < 0 || values[i] < 0 || sorted[i] == values[i];
  if (!alike)
    throw Error(Code::invalid_argument,
                fmt::format("sorted {} and values {} must agree in all axes but the last",
                            sorted.text(), values.text()));
}
}  // namespace

TROUPE_OP(SearchSorted) {
  op.doc("For each value the number of elements of a sorted row that are below it.");
  op.inputs(2);
  op.attr<bool>("right", false);
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require(c.dtype(0) != DType::boolean && !is_complex(c.dtype(0)),
              std::string(name_of(c.dtype(0))) + " has no order here; cast it");
    c.require_same_dtype(0, 1);
    require_rows_alike(c.shape(0), c.shape(1));
    c.output(DType::i64, c.shape(1));
  });
  op.calls({Primitive::search});
  op.run([](KernelContext& c, const Attrs& attrs) {
    const Tensor &sorted = c.input(0), &values = c.input(1);
    require_rows_alike(sorted.shape(), values.shape());
    const AroundAxis rows = around_axis(sorted.shape(), -1),
                     wanted = around_axis(values.shape(), -1);
    Tensor out = c.allocate(DType::i64, values.shape());
    c.primitives().search(c.stream(), {sorted, values, View(out), rows.outer, rows.extent,
                                       wanted.extent, attrs.get<bool>("right")});
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
