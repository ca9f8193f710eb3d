#include <troupe/functions.hpp>
#include <troupe/ops/composite.hpp>
#include <troupe/ops/gradient.hpp>
#include <troupe/ops/op.hpp>

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace troupe {

/// The sum of the rows of x with each of `ids` (i32 or i64 [rows], in [0, segments), in any order); a segment without rows is 0. Extents of x behind the rows
/// are known while the graph is built. Result: [segments, ...].
TROUPE_DSL(Expr segment_sum(Operand x, Operand ids, std::int64_t segments))
/// Their mean; 0 without rows.
TROUPE_DSL(Expr segment_mean(Operand x, Operand ids, std::int64_t segments))
/// Their largest elements; -inf (the lowest integer) without rows. The gradient goes in equal parts to the largest.
TROUPE_DSL(Expr segment_max(Operand x, Operand ids, std::int64_t segments))

namespace {

Shape segmented(const Composite& c, std::int64_t segments) {
  c.require(c.rank(0) >= 1 && c.rank(1) == 1, fmt::format("needs rows and their ids, not {} and {}", c[0].shape().text(), c[1].shape().text()));
  c.require(segments >= 0, fmt::format("there cannot be {} segments", segments));
  Shape s = c[0].shape();
  s.set(0, segments);
  c.require(s.is_known(), "needs all extents of x but the first while the graph is built: " + c[0].shape().text());
  return s;
}

// Sums of f16 and bf16 are made in f32: 256 + 1 is 256 in bf16.
Expr widened_half(const Expr& x) { return x.dtype() == DType::f16 || x.dtype() == DType::bf16 ? cast(x, DType::f32) : x; }

}  // namespace

Expr segment_sum(Operand x, Operand ids, std::int64_t segments) {
  Composite c("segment_sum", {x, ids});
  Expr wide = widened_half(c[0]);
  return cast(scatter_add(c.reader().zeros(wide.dtype(), segmented(c, segments)), c[1], wide), c[0].dtype());
}

Expr segment_mean(Operand x, Operand ids, std::int64_t segments) {
  Composite c("segment_mean", {x, ids});
  c.require(is_floating(c[0].dtype()), "needs a floating dtype");
  Shape s = segmented(c, segments), column = s;
  for (int i = 1; i < s.rank(); ++i) column.set(i, 1);
  Expr count = scatter_add(c.reader().zeros(DType::f32, {segments}), c[1], cast(ones_like(c[1]), DType::f32));
  Expr wide = widened_half(c[0]);
  return cast(segment_sum(wide, c[1], segments) / cast(reshape(maximum(count, 1.0), column), wide.dtype()), c[0].dtype());
}

Expr segment_max(Operand x, Operand ids, std::int64_t segments) {
  Composite c("segment_max", {x, ids});
  segmented(c, segments);
  return bind1("SegmentMax", {c[0], c[1]}, Attrs{{"segments", segments}});
}

namespace {
Tensor lowest_of(DType t) {
  Tensor out;
  visit_dtype(t, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_integral_v<T>) out = Tensor::scalar(std::numeric_limits<T>::lowest());
    else out = Tensor::scalar_as(t, -INFINITY);
  });
  return out;
}
}  // namespace

TROUPE_OP(SegmentMax) {
  op.doc("The largest elements of the rows of each segment, which the second input names.");
  op.inputs(2);
  op.attr<std::int64_t>("segments");
  op.infer([](Inference& c) {
    c.require(c.dtype(0) != DType::boolean && !is_complex(c.dtype(0)), std::string(name_of(c.dtype(0))) + " has no order here; cast it");
    c.require_index(1, "ids");
    c.require_rank(1, 1, "ids");
    Shape s = c.shape(0);
    if (!s.has_rank()) return c.output(c.dtype(0), s);
    c.require(s.rank() >= 1, "a scalar has no rows");
    c.require(s[0] < 0 || !c.shape(1).has_rank() || c.shape(1)[0] < 0 || s[0] == c.shape(1)[0],
              fmt::format("{} and ids {} differ in rows", s.text(), c.shape(1).text()));
    s.set(0, c.attrs().get<std::int64_t>("segments"));
    c.output(c.dtype(0), s);
  });
  op.gradient([](Gradient& g) {
    const Expr ids = g.x(1);
    Expr is_largest = cast(g.x(0) == gather(g.y(), ids), g.x(0).dtype());
    Expr count = scatter_add(zeros_like(widened_half(g.y())), ids, widened_half(is_largest));
    g.set(0, is_largest * gather(cast(widened_half(g.dy()) / maximum(count, 1.0), g.dy().dtype()), ids));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView x(c.input(0)), ids(c.input(1));
    Shape s = x.shape;
    if (s.rank() < 1 || s[0] != ids.shape[0]) throw Error(Code::invalid_argument, fmt::format("{} and ids {} differ in rows", s.text(), ids.shape.text()));
    s.set(0, attrs.get<std::int64_t>("segments"));
    Tensor out = c.allocate(x.dtype, s);
    c.primitives().fill(c.stream(), lowest_of(x.dtype), View(out));
    c.primitives().scatter(c.stream(), Scatter::max, ids, x, View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
