#include <fmt/format.h>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// The matrix product of the last two axes; leading axes are batches and broadcast. An operand may
/// be read transposed. a: [..., m, k], b: [..., k, n], result: [..., m, n].
TROUPE_DSL(Expr matmul(Operand a, Operand b, bool transpose_a = false, bool transpose_b = false))
Expr matmul(Operand a, Operand b, bool transpose_a, bool transpose_b) {
  return bind1("MatMul", {a, b}, Attrs{{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

namespace {

Shape matmul_shape(const Shape& a, const Shape& b, bool ta, bool tb) {
  if (!a.has_rank() || !b.has_rank()) return Shape::unknown();
  if (a.rank() < 2 || b.rank() < 2)
    throw Error(
        Code::invalid_argument,
        fmt::format("both operands need at least two axes, not {} and {}", a.text(), b.text()));
  int ra = a.rank(), rb = b.rank();
  std::int64_t m = a[ra - (ta ? 1 : 2)], ka = a[ra - (ta ? 2 : 1)], kb = b[rb - (tb ? 1 : 2)],
               n = b[rb - (tb ? 2 : 1)];
  if (ka >= 0 && kb >= 0 && ka != kb)
    throw Error(Code::invalid_argument,
                fmt::format("inner extents {} and {} differ: {}{} times {}{}", ka, kb, a.text(),
                            ta ? " transposed" : "", b.text(), tb ? " transposed" : ""));
  Shape batch_a(a.dims().subspan(0, ra - 2)), batch_b(b.dims().subspan(0, rb - 2));
  Shape out = broadcast(batch_a, batch_b);
  out.push_back(m);
  out.push_back(n);
  return out;
}

std::int64_t last_extent(const Expr& e) { return e.shape()[e.shape().rank() - 1]; }

// True for batches of rows times one matrix, with both inner extents known.
bool are_rows(const Expr& a, const Expr& b) {
  if (!a.shape().has_rank() || a.shape().rank() < 3 || !b.shape().has_rank() ||
      b.shape().rank() != 2)
    return false;
  return last_extent(a) > 0 && b.shape()[0] > 0 && b.shape()[1] > 0;
}

class MatMulKernel final : public Kernel {
 public:
  explicit MatMulKernel(const Attrs& attrs)
      : transpose_a_(attrs.get<bool>("transpose_a")), transpose_b_(attrs.get<bool>("transpose_b")),
        b_recurs_(attrs.get<bool>("b_recurs")) {}

  void run(KernelContext& c) override {
    MatmulArgs args{c.input(0),          c.input(1),   {},
                    transpose_a_,        transpose_b_, b_recurs_ ? &kept_ : nullptr,
                    c.input(1).content()};
    Tensor out = c.allocate(args.a.dtype,
                            matmul_shape(args.a.shape, args.b.shape, transpose_a_, transpose_b_));
    args.out = View(out);
    c.primitives().matmul(c.stream(), args);
    c.set(0, std::move(out));
  }

 private:
  bool transpose_a_, transpose_b_, b_recurs_;
  RepackedSlot kept_;
};

}  // namespace

TROUPE_OP(MatMul) {
  op.doc(
      "Matrix product over the last two axes, batched over the others; either operand may be "
      "transposed.");
  op.inputs(2);
  op.attr<bool>("transpose_a", false);
  op.attr<bool>("transpose_b", false);
  // b is the same in many firings: a device may keep it in its own layout
  op.attr<bool>("b_recurs", false);
  op.infer([](Inference& c) {
    c.require_same_dtype(0, 1);
    c.require(c.dtype(0) != DType::boolean, "bool has no matrix product");
    c.output(c.dtype(0), matmul_shape(c.shape(0), c.shape(1), c.attrs().get<bool>("transpose_a"),
                                      c.attrs().get<bool>("transpose_b")));
  });
  op.gradient([](Gradient& g) {
    bool ta = g.attrs().get<bool>("transpose_a"), tb = g.attrs().get<bool>("transpose_b");
    Expr a = g.x(0), b = g.x(1), dy = g.dy();
    // The gradient of b, mostly weights, comes first, for order_gradients: its computation frees a,
    // mostly activations.
    if (!ta && are_rows(a, b)) {
      // The sum over batches is over rows as well: one product, not one a batch.
      Expr rows = reshape(a, {kAny, last_extent(a)}), d_rows = reshape(dy, {kAny, last_extent(dy)});
      if (g.needs(1))
        g.set(1, tb ? matmul(d_rows, rows, true, false) : matmul(rows, d_rows, true, false));
      if (g.needs(0)) g.set(0, matmul(dy, b, false, !tb));
      return;
    }
    // Two matrices have no batches, so nothing was broadcast.
    bool may_broadcast = a.shape().rank() != 2 || b.shape().rank() != 2;
    auto reduced = [&](const Expr& dx, const Expr& x) {
      return may_broadcast ? sum_to(dx, x) : dx;
    };
    if (g.needs(1)) g.set(1, reduced(tb ? matmul(dy, a, true, ta) : matmul(a, dy, !ta, false), b));
    if (g.needs(0)) g.set(0, reduced(ta ? matmul(b, dy, tb, true) : matmul(dy, b, false, !tb), a));
  });
  op.calls({Primitive::matmul});
  op.kernel([](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return std::make_unique<MatMulKernel>(s.attrs);
  });
}

}  // namespace troupe
