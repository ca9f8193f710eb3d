#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace troupe {

/// The sum of the rows of x with each of `ids` (i32 or i64 [rows], in [0, segments), in any order);
/// a segment without rows is 0. Result: [segments, ...].
TROUPE_DSL(Expr segment_sum(Operand x, Operand ids, std::int64_t segments))
/// Their mean; 0 without rows.
TROUPE_DSL(Expr segment_mean(Operand x, Operand ids, std::int64_t segments))
/// Their largest elements; -inf (the lowest integer) without rows. The gradient goes in equal parts
/// to the largest.
TROUPE_DSL(Expr segment_max(Operand x, Operand ids, std::int64_t segments))
/// Their smallest elements; inf (the highest integer) without rows. The gradient goes in equal
/// parts to the smallest.
TROUPE_DSL(Expr segment_min(Operand x, Operand ids, std::int64_t segments))
/// Their product; 1 without rows. Derivatives of any order are exact where elements are zero.
TROUPE_DSL(Expr segment_product(Operand x, Operand ids, std::int64_t segments))
/// Their sum over the square root of how many they are; 0 without rows.
TROUPE_DSL(Expr segment_sqrt_n(Operand x, Operand ids, std::int64_t segments))
/// The segment of each row of a ragged batch, for the functions above. splits: i64 [segments + 1],
/// where segments begin, and where the last ends: 0 first, rising, as many as there are rows last;
/// x: [rows, ...]; result: i64 [rows].
TROUPE_DSL(Expr ragged_ids(Operand splits, Operand x))

namespace {

void require_segments(const Composite& c, std::int64_t segments) {
  c.require(c.rank(0) >= 1 && c.rank(1) == 1,
            fmt::format("needs rows and their ids, not {} and {}", c[0].shape().text(),
                        c[1].shape().text()));
  c.require(segments >= 0, fmt::format("there cannot be {} segments", segments));
  c.require_numbers(0);
}

// Zeros, or ones, a row for each segment and otherwise as the rows of x, of which extents may be
// unknown.
Expr segments_of(const Composite& c, const Expr& x, std::int64_t segments, bool ones) {
  require_segments(c, segments);
  Shape s = x.shape();
  s.set(0, segments);
  if (s.is_known()) return ones ? c.reader().ones(x.dtype(), s) : c.reader().zeros(x.dtype(), s);
  Shape column = s;
  for (int i = 1; i < s.rank(); ++i) column.set(i, 1);
  Expr row = zeros_like(sum(stop_gradient(x), {0}, true));
  return row + (ones ? c.reader().ones(x.dtype(), column) : c.reader().zeros(x.dtype(), column));
}

}  // namespace

Expr segment_sum(Operand x, Operand ids, std::int64_t segments) {
  Composite c("segment_sum", {x, ids});
  Expr wide = widened_half(c[0]);
  return cast(scatter_add(segments_of(c, wide, segments, false), c[1], wide), c[0].dtype());
}

namespace {

// The sum of each segment over f(how many rows it has).
Expr shared(const Composite& c, std::int64_t segments, Expr (*f)(Operand)) {
  c.require_floating_or_complex(0);
  require_segments(c, segments);
  Shape column(std::vector<std::int64_t>(static_cast<std::size_t>(c.rank(0)), 1));
  column.set(0, segments);
  Expr wide = widened_half(c[0]);
  const DType counted = is_floating(wide.dtype()) ? wide.dtype() : DType::f64;
  Expr count =
      scatter_add(c.reader().zeros(counted, {segments}), c[1], cast(ones_like(c[1]), counted));
  return cast(segment_sum(wide, c[1], segments) /
                  cast(reshape(f(maximum(count, 1.0)), column), wide.dtype()),
              c[0].dtype());
}

Expr extreme(const char* name, const char* op, const Operand& x, const Operand& ids,
             std::int64_t segments) {
  Composite c(name, {x, ids});
  require_segments(c, segments);
  return bind1(op, {c[0], c[1]}, Attrs{{"segments", segments}});
}

}  // namespace

Expr segment_mean(Operand x, Operand ids, std::int64_t segments) {
  return shared(Composite("segment_mean", {x, ids}), segments, identity);
}
Expr segment_sqrt_n(Operand x, Operand ids, std::int64_t segments) {
  return shared(Composite("segment_sqrt_n", {x, ids}), segments, sqrt);
}
Expr segment_max(Operand x, Operand ids, std::int64_t segments) {
  return extreme("segment_max", "SegmentMax", x, ids, segments);
}
Expr segment_min(Operand x, Operand ids, std::int64_t segments) {
  return extreme("segment_min", "SegmentMin", x, ids, segments);
}

Expr segment_product(Operand x, Operand ids, std::int64_t segments) {
  Composite c("segment_product", {x, ids});
  Expr wide = widened_half(c[0]);
  return cast(scatter(segments_of(c, wide, segments, true), c[1], wide, "mul"), c[0].dtype());
}

Expr ragged_ids(Operand splits, Operand x) {
  Composite c("ragged_ids", {splits, x});
  c.require(c[0].dtype() == DType::i64 && c.rank(0) == 1 && c.rank(1) >= 1,
            fmt::format("needs splits i64 [segments + 1] and rows, not {}{} and {}",
                        name_of(c[0].dtype()), c[0].shape().text(), c[1].shape().text()));
  return bind1("RaggedIds", {c[0], c[1]});
}

namespace {

Tensor bound_of(DType t, bool lowest) {
  Tensor out;
  visit_dtype(t, [&]<class T>(type_tag<T>) {
    if constexpr (std::is_integral_v<T>)
      out =
          Tensor::scalar(lowest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max());
    else out = Tensor::scalar_as(t, lowest ? -INFINITY : INFINITY);
  });
  return out;
}

void define_segment_extreme(OpBuilder& op, bool largest) {
  op.inputs(2);
  op.attr<std::int64_t>("segments");
  op.infer([](Inference& c) {
    c.require(c.dtype(0) != DType::boolean && !is_complex(c.dtype(0)),
              std::string(name_of(c.dtype(0))) + " has no order here; cast it");
    c.require_index(1, "ids");
    c.require_rank(1, 1, "ids");
    const std::int64_t segments = c.attrs().get<std::int64_t>("segments");
    c.require(segments >= 0, fmt::format("there cannot be {} segments", segments));
    Shape s = c.shape(0);
    if (!s.has_rank()) return c.output(c.dtype(0), s);
    c.require(s.rank() >= 1, "a scalar has no rows");
    c.require(s[0] < 0 || !c.shape(1).has_rank() || c.shape(1)[0] < 0 || s[0] == c.shape(1)[0],
              fmt::format("{} and ids {} differ in rows", s.text(), c.shape(1).text()));
    s.set(0, segments);
    c.output(c.dtype(0), s);
  });
  op.gradient([](Gradient& g) {
    const Expr ids = g.x(1);
    Expr is_extreme = cast(g.x(0) == gather(g.y(), ids), g.x(0).dtype());
    Expr count = scatter_add(zeros_like(widened_half(g.y())), ids, widened_half(is_extreme));
    g.set(0, is_extreme *
                 gather(cast(widened_half(g.dy()) / maximum(count, 1.0), g.dy().dtype()), ids));
  });
  op.kernel([largest](const KernelSetup& setup) {
    return make_kernel([largest,
                        segments = setup.attrs.get<std::int64_t>("segments")](KernelContext& c) {
      ConstView x(c.input(0)), ids(c.input(1));
      Shape s = x.shape;
      if (s.rank() < 1 || ids.shape.rank() != 1 || s[0] != ids.shape[0])
        throw Error(Code::invalid_argument,
                    fmt::format("{} and ids {} differ in rows", s.text(), ids.shape.text()));
      s.set(0, segments);
      Tensor out = c.allocate(x.dtype, s);
      c.primitives().fill(c.stream(), bound_of(x.dtype, largest), View(out));
      c.primitives().scatter(c.stream(), largest ? Scatter::max : Scatter::min, ids, x, View(out));
      c.set(0, std::move(out));
    });
  });
}

}  // namespace

TROUPE_OP(SegmentMax) {
  op.doc("The largest elements of the rows of each segment, which the second input names.");
  define_segment_extreme(op, true);
}

TROUPE_OP(SegmentMin) {
  op.doc("The smallest elements of the rows of each segment, which the second input names.");
  define_segment_extreme(op, false);
}

TROUPE_OP(RaggedIds) {
  op.doc(
      "The segment of each row of the second input; the first input has the beginnings of "
      "segments, rising from 0 to the number of rows.");
  op.inputs(2);
  op.shape_only({1});
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require_dtype(0, DType::i64, "splits");
    c.require_rank(0, 1, "splits");
    c.require(!c.shape(0).has_rank() || c.shape(0)[0] != 0,
              "splits need the end of the last segment at least");
    c.require(c.shape(1).rank() != 0, "a scalar has no rows");
    c.output(DType::i64, Shape{c.shape(1).has_rank() ? c.shape(1)[0] : kAny});
  });
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({0}, [](KernelContext& c) {
      const std::vector<std::int64_t> splits = integers_of(c.input(0));
      if (c.input(0).shape().rank() != 1 || splits.empty() || c.input(1).shape().rank() == 0)
        throw Error(Code::invalid_argument,
                    fmt::format("needs splits [segments + 1] and rows, not {} and {}",
                                c.input(0).shape().text(), c.input(1).shape().text()));
      const std::int64_t rows = c.input(1).shape()[0];
      const auto must = [&](std::size_t i, bool holds, const std::string& what) {
        if (!holds)
          throw Error(
              Code::out_of_range,
              fmt::format("splits hold {} at index {}, which must be {}", splits[i], i, what));
      };
      must(0, splits[0] == 0, "0");
      std::vector<std::int64_t> ids;
      for (std::size_t i = 1; i < splits.size(); ++i) {
        must(i, splits[i] >= splits[i - 1] && splits[i] <= rows,
             fmt::format("in [{}, {}]", splits[i - 1], rows));
        ids.insert(ids.end(), static_cast<std::size_t>(splits[i] - splits[i - 1]),
                   static_cast<std::int64_t>(i) - 1);
      }
      must(splits.size() - 1, splits.back() == rows,
           fmt::format("{}, as many as there are rows", rows));
      const Tensor host = Tensor::of(ids, Shape{rows});
      Tensor out = c.allocate(DType::i64, host.shape());
      if (rows) c.device().copy_from_host(c.stream(), host, View(out));
      c.set(0, std::move(out));
    });
  });
}

}  // namespace troupe
