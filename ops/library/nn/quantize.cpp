#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace troupe {

// A quantized tensor holds q for (q - zero) * scale. Scales and zero points are scalars, or
// broadcast against x: [columns] for one of each column.

/// x / scale + zero to the nearest whole number (halves to even), cut to the range of `dtype`, i8
/// or u8. scale: x's dtype, above 0; zero: integers.
TROUPE_DSL(Expr quantize(Operand x, Operand scale, Operand zero, DType dtype = DType::i8))
/// (x - zero) * scale, in scale's dtype.
TROUPE_DSL(Expr dequantize(Operand x, Operand scale, Operand zero))
/// x as it would be after quantize and dequantize; the gradient goes through where x was not cut
/// (Bengio et al., 2013).
TROUPE_DSL(Expr fake_quantize(Operand x, Operand scale, Operand zero, DType dtype = DType::i8))
/// A scale and a zero point (i32) with which `dtype` holds all of x, and 0 exactly; over `axes`
/// (none given: all), which are kept as 1.
TROUPE_DSL(Exprs quantization_of(Operand x, DType dtype = DType::i8, detail::Axes axes = {}))
/// The product of (a - zero_a) and (b - zero_b), exact in i32 (where 2^31 is not reached). a: i8 or
/// u8 [..., m, k]; b: i8 [k, n]; zero_a: i32 scalar; zero_b: i32 scalar or [n].
TROUPE_DSL(Expr int8_matmul(Operand a, Operand b, Operand zero_a = 0, Operand zero_b = 0))

namespace {

struct Held {
  double low, high;
};
Held held_by(const Composite& c, DType t) {
  c.require(t == DType::i8 || t == DType::u8,
            fmt::format("quantizes to i8 or u8, not {}", name_of(t)));
  return t == DType::i8 ? Held{-128, 127} : Held{0, 255};
}

// Checks operands that are written as numbers while the graph is built.
void require_written(const Composite& c, const Operand& scale, const Operand& zero,
                     const Held* held) {
  const auto all = [](const Operand& o, auto holds) {
    if (o.is_expr() || is_complex(o.literal().dtype()) || o.literal().dtype() == DType::string)
      return true;
    bool yes = true;
    for (std::int64_t i = 0; i < o.literal().elements(); ++i) yes = yes && holds(o.literal().at(i));
    return yes;
  };
  c.require(all(scale, [](double s) { return s > 0 && std::isfinite(s); }),
            "scale must be above 0, and finite");
  if (held)
    c.require(
        all(zero,
            [&](double z) { return z >= held->low && z <= held->high && std::trunc(z) == z; }),
        fmt::format("zero must be a whole number in [{}, {}]", held->low, held->high));
}

void require_scale(const Composite& c, const Expr& scale, const Expr& zero) {
  c.require(is_floating(scale.dtype()),
            fmt::format("scale must be floating, not {}", name_of(scale.dtype())));
  c.require(is_integer(zero.dtype()) || is_floating(zero.dtype()),
            fmt::format("zero must be a number, not {}", name_of(zero.dtype())));
}

}  // namespace

Expr quantize(Operand x, Operand scale, Operand zero, DType dtype) {
  Composite c("quantize", {x, scale, zero});
  const Held held = held_by(c, dtype);
  require_written(c, scale, zero, &held);
  require_scale(c, c[1], c[2]);
  c.require(c[0].dtype() == c[1].dtype(),
            fmt::format("x is {}, but scale {}", name_of(c[0].dtype()), name_of(c[1].dtype())));
  return cast(clip(round(c[0] / c[1]) + cast(c[2], c[0].dtype()), held.low, held.high), dtype);
}

Expr dequantize(Operand x, Operand scale, Operand zero) {
  Composite c("dequantize", {x, scale.as_written(), zero.as_written()});
  require_written(c, scale, zero, nullptr);
  c.require(is_integer(c[0].dtype()),
            fmt::format("x must be integers, not {}", name_of(c[0].dtype())));
  Expr by = c[1].dtype() == DType::f64 && !scale.is_expr() ? cast(c[1], DType::f32) : c[1];
  require_scale(c, by, c[2]);
  return (cast(c[0], by.dtype()) - cast(c[2], by.dtype())) * by;
}

Expr fake_quantize(Operand x, Operand scale, Operand zero, DType dtype) {
  Composite c("fake_quantize", {x, scale, zero});
  c.require_floating(0);
  const Held held = held_by(c, dtype);
  require_written(c, scale, zero, &held);
  Expr at = cast(c[2], c[0].dtype()), by = c[1];
  Expr cut = minimum(maximum(c[0], (held.low - at) * by), (held.high - at) * by);
  return cut + stop_gradient(dequantize(quantize(c[0], by, c[2], dtype), by, c[2]) - cut);
}

Exprs quantization_of(Operand x, DType dtype, detail::Axes axes) {
  Composite c("quantization_of", {x});
  const Held held = held_by(c, dtype);
  c.require_floating(0);
  Expr wide = widened_half(c[0]), low = minimum(reduce_min(wide, axes, true), 0.0),
       high = maximum(reduce_max(wide, axes, true), 0.0);
  // By the scale that is handed out, rounded as it may be.
  // the difference of the two may be no number
  Expr scale = cast((0.5 * high - 0.5 * low) / (0.5 * (held.high - held.low)), c[0].dtype());
  scale = where(scale > 0.0, scale, ones_like(scale));
  return {scale,
          cast(clip(round(held.low - low / widened_half(scale)), held.low, held.high), DType::i32)};
}

Expr int8_matmul(Operand a, Operand b, Operand zero_a, Operand zero_b) {
  Composite c("int8_matmul", {a, b, zero_a.as_written(), zero_b.as_written()});
  Expr raw = bind1("Int8MatMul", {c[0], c[1]});
  // (a - za)(b - zb) = a b - za (sum of b's columns) - zb (sum of a's rows) + k za zb
  auto is_zero = [](const Operand& o) { return o.is_number() && o.literal().at(0) == 0; };
  auto wide = [](const Expr& e) { return cast(e, DType::i32); };
  if (!is_zero(zero_a)) raw = raw - wide(c[2]) * sum(wide(c[1]) - wide(c[3]), {0}, true);
  if (!is_zero(zero_b)) raw = raw - wide(c[3]) * sum(wide(c[0]), {-1}, true);
  return raw;
}

TROUPE_OP(Int8MatMul) {
  op.doc("The product of 8-bit integers [..., m, k] and signed ones [k, n], in i32.");
  op.inputs(2);
  op.not_differentiable();
  op.infer([](Inference& c) {
    c.require(c.dtype(0) == DType::i8 || c.dtype(0) == DType::u8,
              fmt::format("a must be i8 or u8, not {}", name_of(c.dtype(0))));
    c.require_dtype(1, DType::i8, "b");
    c.require_rank(1, 2, "b");
    const Shape &a = c.shape(0), &b = c.shape(1);
    if (!a.has_rank()) return c.output(DType::i32, Shape::unknown());
    c.require(a.rank() >= 2, "a needs at least two axes, not " + a.text());
    c.require(!b.has_rank() || a[a.rank() - 1] < 0 || b[0] < 0 || a[a.rank() - 1] == b[0],
              fmt::format("inner extents differ: {} times {}", a.text(), b.text()));
    Shape out = a;
    out.set(a.rank() - 1, b.has_rank() ? b[1] : kAny);
    c.output(DType::i32, out);
  });
  op.calls({Primitive::matmul});
  op.run([](KernelContext& c) {
    ConstView a(c.input(0)), b(c.input(1));
    const int last = a.shape.rank() - 1;
    if (last < 1 || b.shape.rank() != 2 || a.shape[last] != b.shape[0])
      throw Error(Code::invalid_argument,
                  fmt::format("inner extents differ: {} times {}", a.shape.text(), b.shape.text()));
    Shape shape = a.shape;
    shape.set(last, b.shape[1]);
    Tensor out = c.allocate(DType::i32, shape);
    // One product of all rows.
    View rows(out);
    a.shape = {b.shape[0] ? a.elements() / b.shape[0]
                          : shape.elements() / std::max<std::int64_t>(1, b.shape[1]),
               b.shape[0]};
    rows.shape = {a.shape[0], b.shape[1]};
    c.primitives().matmul(c.stream(), {a, b, rows});
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
