#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/scan.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <utility>

#include <fmt/format.h>

namespace troupe {

/// The elements of each row along `axis` in rising order, and where they were (i64). Equals keep
/// their order; NaN is the largest.
TROUPE_DSL(Exprs sort(Operand x, bool descending = false, std::int64_t axis = -1))
/// The former positions (i64) of the elements of each row when sorted along `axis`.
TROUPE_DSL(Expr argsort(Operand x, bool descending = false, std::int64_t axis = -1))
/// The `k` largest elements of each row along `axis`, the largest first, and where they were (i64);
/// the first of equals first.
TROUPE_DSL(Exprs top_k(Operand x, std::int64_t k, bool largest = true, std::int64_t axis = -1))

namespace {

// Returns both outputs of an op on rows along the last axis, for rows along any axis.
Exprs ordered_along(const char* name, const char* op, Operand x, std::int64_t axis, Attrs attrs) {
  if (axis == -1) {
    const Operand all[] = {x};
    return bind_op(op, all, std::move(attrs), x.site());
  }
  Composite c(name, {x});
  const int at = c.axis(0, axis);
  const Exprs made = bind_op(op, {exchanged_with_last(c[0], at)}, std::move(attrs));
  return {exchanged_with_last(made[0], at), exchanged_with_last(made[1], at)};
}

}  // namespace

Exprs sort(Operand x, bool descending, std::int64_t axis) {
  return ordered_along("sort", "Sort", x, axis, Attrs{{"descending", descending}});
}
Expr argsort(Operand x, bool descending, std::int64_t axis) {
  const Composite c("argsort", {x});
  return sort(c[0], descending, axis)[1];
}
Exprs top_k(Operand x, std::int64_t k, bool largest, std::int64_t axis) {
  return ordered_along("top_k", "TopK", x, axis, Attrs{{"k", k}, {"largest", largest}});
}

namespace {

void require_rows(const Inference& c) {
  c.require(c.dtype(0) != DType::boolean && !is_complex(c.dtype(0)),
            std::string(name_of(c.dtype(0))) + " has no order here; cast it");
  c.require(!c.shape(0).has_rank() || c.shape(0).rank() >= 1, "a scalar has no rows");
}

void sort_rows(KernelContext& c, std::int64_t k, bool descending) {
  const Tensor& x = c.input(0);
  if (x.shape().rank() == 0) throw Error(Code::invalid_argument, "a scalar has no rows");
  const AroundAxis a = around_axis(x.shape(), -1);
  if (k > a.extent)
    throw Error(Code::out_of_range, fmt::format("k is {}, but a row has {} elements", k, a.extent));
  Shape shape = x.shape();
  if (k >= 0) shape.set(shape.rank() - 1, k);
  Tensor values = c.allocate(x.dtype(), shape), indices = c.allocate(DType::i64, shape);
  c.primitives().sort(c.stream(), {x, View(values), View(indices), a.outer, a.extent,
                                   k < 0 ? a.extent : k, descending});
  c.set(0, std::move(values));
  c.set(1, std::move(indices));
}

// Adds the cotangents back at the positions that the indices name.
void take_back(Gradient& g) {
  if (g.has_dy(0))
    g.set(0, bind1("AddAlong", {g.dy(0), g.y(1), g.x()}, Attrs{{"axis", std::int64_t{-1}}}));
}

}  // namespace

TROUPE_OP(Sort) {
  op.doc("Each row along the last axis in order, and the positions its elements had.");
  op.inputs(1);
  op.attr<bool>("descending", false);
  op.infer([](Inference& c) {
    require_rows(c);
    c.output(c.dtype(0), c.shape(0));
    c.output(DType::i64, c.shape(0));
  });
  op.gradient(take_back);
  op.calls({Primitive::sort});
  op.run([](KernelContext& c, const Attrs& attrs) {
    sort_rows(c, -1, attrs.get<bool>("descending"));
  });
}

TROUPE_OP(TopK) {
  op.doc("The k largest elements of each row along the last axis, and their positions.");
  op.inputs(1);
  op.attr<std::int64_t>("k");
  op.attr<bool>("largest", true);
  op.infer([](Inference& c) {
    require_rows(c);
    const std::int64_t k = c.attrs().get<std::int64_t>("k");
    c.require(k >= 0, fmt::format("k must be at least 0, not {}", k));
    Shape out = c.shape(0);
    if (out.has_rank()) {
      const std::int64_t extent = out[out.rank() - 1];
      c.require(extent < 0 || k <= extent,
                fmt::format("k is {}, but a row has {} elements", k, extent));
      out.set(out.rank() - 1, k);
    }
    c.output(c.dtype(0), out);
    c.output(DType::i64, out);
  });
  op.gradient(take_back);
  op.calls({Primitive::sort});
  op.run([](KernelContext& c, const Attrs& attrs) {
    sort_rows(c, attrs.get<std::int64_t>("k"), attrs.get<bool>("largest"));
  });
}

}  // namespace troupe
