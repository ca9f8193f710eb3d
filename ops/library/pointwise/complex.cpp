#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <cmath>

#include <fmt/format.h>

namespace troupe {

// The gradient of a real number with respect to a complex one is dL/d real + i dL/d imaginary, as
// in PyTorch: the direction of steepest ascent.

/// real + i imaginary: c64 of two f32, c128 of two f64 of one shape.
TROUPE_DSL(Expr complex(Operand real, Operand imaginary))
/// The real part of each element.
TROUPE_DSL(Expr real(Operand x))
/// The imaginary part of each element.
TROUPE_DSL(Expr imaginary(Operand x))
/// Each element with its imaginary part negated; of reals, themselves.
TROUPE_DSL(Expr conjugate(Operand x))
/// The absolute value of each complex element, without overflow; its derivative at 0 is 0.
TROUPE_DSL(Expr magnitude(Operand x))
/// The root of x^2 + y^2 of real numbers, without overflow; its derivatives at 0 are 0.
TROUPE_DSL(Expr hypot(Operand x, Operand y))
/// The angle of each complex element, in radians.
TROUPE_DSL(Expr angle(Operand x))

Expr complex(Operand real, Operand imaginary) { return bind1("Complex", {real, imaginary}); }
Expr real(Operand x) { return bind1("Real", {x}); }
Expr imaginary(Operand x) { return bind1("Imaginary", {x}); }

Expr conjugate(Operand x) {
  Composite c("conjugate", {x});
  c.require_numbers(0);
  return is_complex(c[0].dtype()) ? complex(real(c[0]), -imaginary(c[0])) : c[0];
}

Expr magnitude(Operand x) {
  Composite c("magnitude", {x});
  c.require(
      is_complex(c[0].dtype()),
      fmt::format("needs a complex dtype, not {}; abs takes the others", name_of(c[0].dtype())));
  return hypot(real(c[0]), imaginary(c[0]));
}

Expr hypot(Operand x, Operand y) {
  Composite c("hypot", {x, y});
  c.require(is_floating(c[0].dtype()) && c[1].dtype() == c[0].dtype(),
            fmt::format("needs two of one floating dtype, not {} and {}", name_of(c[0].dtype()),
                        name_of(c[1].dtype())));
  // The elements themselves are squared, not their absolute values, whose second derivative at 0 is
  // lost.
  Expr a = widened_half(c[0]), b = widened_half(c[1]),
       scale = stop_gradient(maximum(abs(a), abs(b)));
  Expr is_plain = logical_and(scale > 0.0, is_finite(scale)),
       by = where(is_plain, scale, ones_like(scale));
  Expr length = by * sqrt(where(is_plain, square(a / by) + square(b / by), ones_like(scale)));
  return cast(where(is_plain, length, where(logical_or(is_inf(a), is_inf(b)), INFINITY, scale)),
              c[0].dtype());
}

Expr angle(Operand x) {
  Composite c("angle", {x});
  c.require(is_complex(c[0].dtype()),
            fmt::format("needs a complex dtype, not {}", name_of(c[0].dtype())));
  return atan2(imaginary(c[0]), real(c[0]));
}

namespace {

DType part_of(DType t) { return t == DType::c64 ? DType::f32 : DType::f64; }

/// Returns n pairs as a matrix of two columns, or one number of each pair as a matrix of one.
ConstView in_columns(ConstView v, DType part, std::int64_t columns) {
  v.shape = {v.elements(), columns};
  v.dtype = part;
  return v;
}
View in_columns(Tensor& t, DType part, std::int64_t columns) {
  View v(t);
  v.shape = {t.elements(), columns};
  v.dtype = part;
  return v;
}
Block from_column(std::int64_t column) {
  Block b = Block::origin(2);
  b.start.set(1, column);
  return b;
}

void define_part(OpBuilder& op, std::int64_t column) {
  op.inputs(1);
  op.infer([](Inference& c) {
    c.require(is_complex(c.dtype(0)),
              fmt::format("needs a complex dtype, not {}", name_of(c.dtype(0))));
    c.output(part_of(c.dtype(0)), c.shape(0));
  });
  op.kernel([column](const KernelSetup&) {
    return make_kernel([column](KernelContext& c) {
      const DType part = part_of(c.input(0).dtype());
      Tensor out = c.allocate(part, c.input(0).shape());
      c.primitives().copy_block(c.stream(), in_columns(ConstView(c.input(0)), part, 2),
                                from_column(column), in_columns(out, part, 1), Block::origin(2),
                                {out.elements(), 1});
      c.set(0, std::move(out));
    });
  });
}

}  // namespace

TROUPE_OP(Real) {
  op.doc("The real part of each element.");
  define_part(op, 0);
  op.gradient([](Gradient& g) { g.set(0, complex(g.dy(), zeros_like(g.dy()))); });
}

TROUPE_OP(Imaginary) {
  op.doc("The imaginary part of each element.");
  define_part(op, 1);
  op.gradient([](Gradient& g) { g.set(0, complex(zeros_like(g.dy()), g.dy())); });
}

TROUPE_OP(Complex) {
  op.doc("Complex numbers of real and imaginary parts.");
  op.inputs(2);
  op.infer([](Inference& c) {
    c.require(c.dtype(0) == DType::f32 || c.dtype(0) == DType::f64,
              fmt::format("needs f32 or f64, not {}", name_of(c.dtype(0))));
    c.require_same_dtype(0, 1);
    c.require(c.shape(0).is_compatible(c.shape(1)),
              fmt::format("real {} and imaginary {} differ in shape", c.shape(0).text(),
                          c.shape(1).text()));
    c.output(c.dtype(0) == DType::f32 ? DType::c64 : DType::c128, c.shape(0).merge(c.shape(1)));
  });
  op.gradient([](Gradient& g) {
    if (g.needs(0)) g.set(0, real(g.dy()));
    if (g.needs(1)) g.set(1, imaginary(g.dy()));
  });
  op.run([](KernelContext& c) {
    const Shape shape = c.input(0).shape();
    if (shape != c.input(1).shape())
      throw Error(Code::invalid_argument, fmt::format("real {} and imaginary {} differ in shape",
                                                      shape.text(), c.input(1).shape().text()));
    const DType part = c.input(0).dtype();
    Tensor out = c.allocate(part == DType::f32 ? DType::c64 : DType::c128, shape);
    for (int i = 0; i < 2; ++i)
      c.primitives().copy_block(c.stream(), in_columns(ConstView(c.input(i)), part, 1),
                                Block::origin(2), in_columns(out, part, 2), from_column(i),
                                {out.elements(), 1});
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
