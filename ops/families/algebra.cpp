#include <troupe/ops/families/algebra.hpp>

#include <fmt/format.h>

#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

namespace troupe::detail {

std::int64_t rows_of(const Shape& s) { return s[s.rank() - 2]; }
std::int64_t columns_of(const Shape& s) { return s[s.rank() - 1]; }
std::int64_t smaller_side(const Shape& s) {
  return rows_of(s) < 0 || columns_of(s) < 0 ? kAny : std::min(rows_of(s), columns_of(s));
}

namespace {

void check_matrices(const Shape& s, bool square) {
  if (s.rank() < 2)
    throw Error(Code::invalid_argument, fmt::format("needs matrices, not {}", s.text()));
  if (square && rows_of(s) >= 0 && columns_of(s) >= 0 && rows_of(s) != columns_of(s))
    throw Error(Code::invalid_argument, fmt::format("needs square matrices, not {}", s.text()));
}

}  // namespace

void require_matrices(const Inference& c, int i, bool square) {
  c.require(c.dtype(i) == DType::f32 || c.dtype(i) == DType::f64,
            fmt::format("linear algebra is for f32 and f64, not {}{}", name_of(c.dtype(i)),
                        is_complex(c.dtype(i)) || c.dtype(i) == DType::string ? "" : "; cast it"));
  if (c.shape(i).has_rank()) check_matrices(c.shape(i), square);
}

Shape batch_and(const Shape& matrices, std::initializer_list<std::int64_t> more) {
  if (!matrices.has_rank()) return Shape::unknown();
  Shape out(matrices.dims().subspan(0, static_cast<std::size_t>(matrices.rank() - 2)));
  for (std::int64_t e : more) out.push_back(e);
  return out;
}

void algebra_kernel(OpBuilder& op, Algebra what, bool square,
                    std::function<std::vector<Shape>(const Shape&, const Shape&)> shapes) {
  op.calls({Primitive::algebra});
  op.kernel([=](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([=, transposed = s.attrs.get_or("transposed", false),
                        lower = s.attrs.get_or("lower", true)](KernelContext& c) {
      const Tensor& a = c.input(0);
      check_matrices(a.shape(), square);
      const Shape b = c.inputs() > 1 ? c.input(1).shape() : Shape();
      const std::vector<Shape> out = shapes(a.shape(), b);
      AlgebraArgs args{what,
                       a,
                       {},
                       {},
                       batch_and(a.shape(), {}).elements(),
                       rows_of(a.shape()),
                       columns_of(a.shape()),
                       0,
                       transposed,
                       lower};
      if (c.inputs() > 1) {
        args.b = c.input(1);
        args.right = columns_of(b);
      }
      std::vector<Tensor> made;
      made.reserve(out.size());  // a view of a host scalar points into its handle
      for (std::size_t i = 0; i < out.size(); ++i) {
        made.push_back(c.allocate(a.dtype(), out[i]));
        args.out[i] = View(made.back());
      }
      c.primitives().algebra(c.stream(), args);
      for (std::size_t i = 0; i < out.size(); ++i) c.set(static_cast<int>(i), std::move(made[i]));
    });
  });
}

Exprs computed_wide(std::string_view name, std::initializer_list<Operand> operands,
                    const std::function<Exprs(const Exprs&)>& f) {
  Composite c(name, operands);
  const DType type = c[0].dtype();
  const bool is_stored_only = type == DType::f16 || type == DType::bf16;
  Exprs wide;
  for (std::size_t i = 0; i < c.operands(); ++i) {
    c.require(c[i].dtype() == type,
              fmt::format("works on one dtype, not {} and {}; cast one of them", name_of(type),
                          name_of(c[i].dtype())));
    wide.push_back(is_stored_only ? cast(c[i], DType::f32) : c[i]);
  }
  Exprs made = f(wide);
  if (is_stored_only)
    for (Expr& e : made) e = cast(e, type);
  return made;
}

Expr matrix_transpose(const Expr& x) {
  if (!x.shape().has_rank())
    throw Error(Code::unimplemented,
                "the gradient of linear algebra needs the ranks of its inputs; give them shapes");
  std::vector<std::int64_t> order;
  for (int i = 0; i < x.shape().rank(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return transpose(x, order);
}

Expr identity_like(const Expr& x) { return tril(triu(ones_like(x))); }

Expr onto_lower_half(const Expr& symmetric) {
  return tril(symmetric) + tril(matrix_transpose(symmetric), -1);
}

}  // namespace troupe::detail
