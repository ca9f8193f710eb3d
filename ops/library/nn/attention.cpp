#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/device/attention.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/accumulator.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>

#include <cmath>

#include <fmt/format.h>

namespace troupe {

/// softmax(q k^T * scale) v, head by head, without storing the matrix of scores. q:
/// [batch, heads, queries, depth]; k: [batch, groups, keys, depth]; v: [batch, groups, keys,
/// width], each group for heads / groups heads in a row; result: [batch, heads, queries, width].
/// scale 0: 1 / sqrt(depth). Causal: query i uses keys up to i + keys - queries. A query that may
/// use no key yields zeros.
TROUPE_DSL(Expr attention(Operand q, Operand k, Operand v, bool causal = false, double scale = 0))
/// attention with `mask`, [batch, heads, queries, keys], [batch, queries, keys] or [queries, keys];
/// an extent of 1 is broadcast. A bool is true if a query may use a key. A mask of q's dtype is
/// added to the scaled scores (-infinity: not used), and has a gradient.
TROUPE_DSL(Expr masked_attention(Operand q, Operand k, Operand v, Operand mask, bool causal = false,
                                 double scale = 0))

Expr attention(Operand q, Operand k, Operand v, bool causal, double scale) {
  return bind1("Attention", {q, k, v}, Attrs{{"causal", causal}, {"scale", scale}});
}
Expr masked_attention(Operand q, Operand k, Operand v, Operand mask, bool causal, double scale) {
  return bind1("Attention", {q, k, v, mask}, Attrs{{"causal", causal}, {"scale", scale}});
}

namespace {

void check_shapes(const Shape& q, const Shape& k, const Shape& v, const Shape* mask) {
  auto fail = [&](const std::string& why) {
    throw Error(Code::invalid_argument,
                fmt::format("{}: q {}, k {}, v {}", why, q.text(), k.text(), v.text()));
  };
  for (const Shape* s : {&q, &k, &v})
    if (s->has_rank() && s->rank() != 4)
      fail("q, k and v must be [batch, heads, positions, depth]");
  auto differ = [](const Shape& a, int i, const Shape& b, int j) {
    return a.has_rank() && b.has_rank() && a[i] >= 0 && b[j] >= 0 && a[i] != b[j];
  };
  if (differ(q, 0, k, 0) || differ(k, 0, v, 0)) fail("the batches differ");
  if (differ(q, 3, k, 3)) fail("q and k differ in depth");
  if (differ(k, 1, v, 1) || differ(k, 2, v, 2)) fail("k and v differ in heads or keys");
  if (q.has_rank() && q[3] == 0) fail("the depth must not be 0");
  if (q.has_rank() && k.has_rank() && q[1] >= 0 && k[1] >= 0 && (k[1] == 0 || q[1] % k[1] != 0))
    fail("the heads of q are no multiple of k's");
  if (!mask || !mask->has_rank()) return;
  auto unlike = [&](int i, const Shape& s, int j) {
    return (*mask)[i] != 1 && differ(*mask, i, s, j);
  };
  const int rank = mask->rank();
  if (rank < 2 || rank > 4 || (rank > 2 && unlike(0, q, 0)) || (rank == 4 && unlike(1, q, 1)) ||
      unlike(rank - 2, q, 2) || unlike(rank - 1, k, 2))
    fail(
        fmt::format("the mask must be [batch, heads, queries, keys], [batch, queries, keys] or "
                    "[queries, keys], each 1 where it is one for all, not {}",
                    mask->text()));
}

Shape attended(const Shape& q, const Shape& v) {
  return {q.has_rank() ? q[0] : kAny, q.has_rank() ? q[1] : kAny, q.has_rank() ? q[2] : kAny,
          v.has_rank() ? v[3] : kAny};
}
Shape query_rows(const Shape& q) { return q.has_rank() ? q.without(3) : Shape{kAny, kAny, kAny}; }

AttentionArgs args_of(KernelContext& c, const Attrs& attrs, bool has_mask) {
  const Shape &q = c.input(0).shape(), &k = c.input(1).shape(), &v = c.input(2).shape();
  check_shapes(q, k, v, has_mask ? &c.input(3).shape() : nullptr);
  const double scale = attrs.get<double>("scale");
  AttentionArgs a{c.input(0),
                  c.input(1),
                  c.input(2),
                  {},
                  {},
                  {},
                  q[0],
                  q[1],
                  k[1],
                  q[2],
                  k[2],
                  q[3],
                  v[3],
                  scale == 0 ? 1 / std::sqrt(static_cast<double>(q[3])) : scale,
                  attrs.get<bool>("causal")};
  if (has_mask) a.mask = c.input(3);
  return a;
}

void require_operands(const Inference& c, bool has_mask) {
  c.require_floating(0);
  c.require(std::isfinite(c.attrs().get<double>("scale")),
            fmt::format("scale must be finite, not {}", c.attrs().get<double>("scale")));
  c.require_same_dtype(0, 1);
  c.require_same_dtype(0, 2);
  if (has_mask)
    c.require(c.dtype(3) == DType::boolean || c.dtype(3) == c.dtype(0), [&] {
      return fmt::format("the mask must be bool, or {} as q is, not {}", name_of(c.dtype(0)),
                         name_of(c.dtype(3)));
    });
  check_shapes(c.shape(0), c.shape(1), c.shape(2), has_mask ? &c.shape(3) : nullptr);
}

// Repeats the values of each group once for each of its heads; the reverse sums over the heads of
// each group.
struct Heads {
  std::int64_t heads = 1, groups = 1;
  Expr numbers(Reader& in, std::int64_t first, std::int64_t step) const {
    std::vector<std::int64_t> which;
    for (std::int64_t i = first; static_cast<std::int64_t>(which.size()) < (step ? groups : heads);
         i += step ? step : 1)
      which.push_back(step ? i : i / (heads / groups));
    const auto n = static_cast<std::int64_t>(which.size());
    return in.constant(Tensor::of(which, Shape{n}));
  }
  Expr repeated(const Expr& e) const {
    return heads == groups ? e : gather(e, numbers(e.reader(), 0, 0), 1);
  }
  Expr summed(const Expr& e) const {
    if (heads == groups) return e;
    const std::int64_t each = heads / groups;
    Expr total = gather(e, numbers(e.reader(), 0, each), 1);
    for (std::int64_t i = 1; i < each; ++i)
      total = total + gather(e, numbers(e.reader(), i, each), 1);
    return total;
  }
};

// Returns a mask, or a value shaped like one, so that it broadcasts to [batch, heads, queries,
// keys].
Expr beside_scores(const Expr& mask) {
  return mask.shape().rank() == 3 ? expand_dims(mask, 1) : mask;
}

// The operands of the gradient of the gradient, with the scores stored; keys and values once for
// each head.
struct Stored {
  Expr q, k, v, p, may_look;
  double scale;
  Heads heads;
};

Stored stored(const Gradient& g, bool has_mask) {
  const Shape q = g.x(0).shape(), k = g.x(1).shape();
  if (!q.has_rank() || !k.has_rank() || q[1] < 0 || k[1] < 0)
    throw Error(Code::unimplemented,
                "the second derivative of attention needs the numbers of heads while the graph is "
                "built; give q and k shapes");
  double scale = g.attrs().get<double>("scale");
  if (scale == 0) {
    if (q[3] < 0)
      throw Error(Code::unimplemented,
                  "the second derivative of attention needs the depth, or a scale, while the graph "
                  "is built");
    scale = 1 / std::sqrt(static_cast<double>(q[3]));
  }
  const Heads heads{q[1], k[1]};
  Stored s{g.x(0), heads.repeated(g.x(1)), heads.repeated(g.x(2)), {}, {}, scale, heads};
  Expr scores = matmul(s.q, s.k, false, true) * scale;
  s.may_look = ones_like(scores);
  if (g.attrs().get<bool>("causal")) {
    // How many keys are left behind each query's last: row + keys - column - queries, counted from
    // the ends.
    Expr one = ones_like(cast(stop_gradient(scores), DType::i32)),
         left = cumsum(one, -1, true, true), below = cumsum(one, -2, true, true);
    s.may_look = cast(left >= below, scores.dtype());
  }
  if (has_mask) {
    if (!g.x(3).shape().has_rank())
      throw Error(Code::unimplemented,
                  "the second derivative of attention needs the rank of the mask; give it a shape");
    Expr mask = beside_scores(g.x(3)), looks = mask;
    if (mask.dtype() != DType::boolean) {
      scores = scores + mask;
      looks = logical_not(logical_and(is_inf(mask), mask < 0.0));
    }
    s.may_look = s.may_look * cast(looks, scores.dtype());
  }
  // The exponent of a masked score is replaced, so that no infinity meets a zero.
  Expr seen = s.may_look > 0.0,
       top = stop_gradient(reduce_max(where(seen, scores, -INFINITY), {-1}, true));
  Expr e = where(seen, exp(where(seen, scores - top, 0.0)), 0.0), total = sum(e, {-1}, true);
  s.p = e / where(total == 0.0, 1.0, total);
  return s;
}

}  // namespace

TROUPE_OP(Attention) {
  op.doc(
      "Scaled dot-product attention that stores no scores: causal, masked, grouped heads. The "
      "second output is the logarithm of each softmax's sum.");
  op.inputs(3, 4);
  op.attr<bool>("causal", false);
  op.attr<double>("scale", 0.0);
  op.infer([](Inference& c) {
    require_operands(c, c.inputs() == 4);
    c.output(c.dtype(0), attended(c.shape(0), c.shape(2)));
    c.output(accumulator_dtype(c.dtype(0)), query_rows(c.shape(0)));
  });
  op.gradient([](Gradient& g) {
    // Only this gradient uses the second output.
    std::vector<Operand> operands{g.x(0), g.x(1), g.x(2), g.y(0), g.y(1), g.dy(0)};
    if (g.inputs() == 4) operands.insert(operands.begin() + 3, g.x(3));
    Attrs attrs = g.attrs();
    attrs.set("of_mask", g.inputs() == 4 && g.x(3).dtype() != DType::boolean && g.needs(3));
    const Exprs d = bind_op("AttentionGradient", operands, attrs, operands[0].site());
    for (std::size_t i = 0; i < d.size(); ++i)
      if (g.needs(static_cast<int>(i))) g.set(static_cast<int>(i), d[i]);
  });
  op.calls({Primitive::attention});
  op.run([](KernelContext& c, const Attrs& attrs) {
    AttentionArgs a = args_of(c, attrs, c.inputs() == 4);
    Tensor y = c.allocate(a.q.dtype, {a.batch, a.heads, a.queries, a.width}),
           log_sum = c.allocate(accumulator_dtype(a.q.dtype), {a.batch, a.heads, a.queries});
    a.y = View(y);
    a.log_sum = View(log_sum);
    c.primitives().attention(c.stream(), a);
    c.set(0, std::move(y));
    c.set(1, std::move(log_sum));
  });
}

TROUPE_OP(AttentionGradient) {
  op.doc(
      "The gradients of Attention with respect to q, k, v and, on request, the mask, from the "
      "inputs, the outputs and dy; its own gradients store the scores.");
  op.inputs(6, 7);
  op.attr<bool>("causal", false);
  op.attr<double>("scale", 0.0);
  op.attr<bool>("of_mask", false);
  op.infer([](Inference& c) {
    require_operands(c, c.inputs() == 7);
    const bool of_mask = c.attrs().get<bool>("of_mask");
    c.require(!of_mask || (c.inputs() == 7 && c.dtype(3) != DType::boolean),
              "only a mask that is added has a gradient");
    for (int i = 0; i < (of_mask ? 4 : 3); ++i) c.output(c.dtype(i), c.shape(i));
  });
  op.gradient([](Gradient& g) {
    // With dp = dy v^T, ds = p (dp - sum(p dp)): dq = ds k scale, dk = ds^T q scale, dv = p^T dy,
    // and the mask's is ds. y and log_sum are functions of q, k, v and the mask: their derivatives
    // are included in these.
    const bool has_mask = g.inputs() == 7;
    const Stored s = stored(g, has_mask);
    Expr dy = g.x(g.inputs() - 1), a = g.dy(0), b = s.heads.repeated(g.dy(1)),
         c = s.heads.repeated(g.dy(2));
    auto over_keys = [](const Expr& e) { return sum(e, {-1}, true); };
    Expr dp = matmul(dy, s.v, false, true), inner = over_keys(s.p * dp),
         ds = s.p * (dp - inner) * s.scale;
    Expr of_ds = (matmul(a, s.k, false, true) + matmul(s.q, b, false, true)) * s.scale;
    if (g.outputs() == 4) of_ds = of_ds + beside_scores(g.dy(3));
    Expr weighted = over_keys(of_ds * s.p), of_dp = s.p * (of_ds - weighted);
    Expr of_p = matmul(dy, c, false, true) + of_ds * (dp - inner) - weighted * dp;
    Expr of_sums = s.p * (of_p - over_keys(s.p * of_p)), of_scores = of_sums * s.scale;
    if (g.needs(0)) g.set(0, matmul(ds, b) + matmul(of_scores, s.k));
    if (g.needs(1))
      g.set(1, s.heads.summed(matmul(ds, a, true, false) + matmul(of_scores, s.q, true, false)));
    if (g.needs(2)) g.set(2, s.heads.summed(matmul(of_dp, dy, true, false)));
    if (has_mask && g.x(3).dtype() != DType::boolean && g.needs(3))
      g.set(3, reshape_like(sum_to(of_sums, beside_scores(g.x(3))), g.x(3)));
    if (g.needs(g.inputs() - 1)) g.set(g.inputs() - 1, matmul(s.p, c) + matmul(of_dp, s.v));
  });
  op.calls({Primitive::attention_gradient});
  op.run([](KernelContext& c, const Attrs& attrs) {
    const bool has_mask = c.inputs() == 7;
    const int after = has_mask ? 4 : 3;
    AttentionGradientArgs g{args_of(c, attrs, has_mask),
                            c.input(after),
                            c.input(after + 1),
                            c.input(after + 2),
                            {},
                            {},
                            {},
                            {}};
    const Shape y{g.of.batch, g.of.heads, g.of.queries, g.of.width};
    if (c.input(after).shape() != y || c.input(after + 1).shape() != y.without(3) ||
        c.input(after + 2).shape() != y)
      throw Error(Code::invalid_argument,
                  fmt::format("y, log_sum and dy must have shapes {}, {} and {}", y.text(),
                              y.without(3).text(), y.text()));
    Tensor d[] = {c.allocate(g.of.q.dtype, g.of.q.shape), c.allocate(g.of.q.dtype, g.of.k.shape),
                  c.allocate(g.of.q.dtype, g.of.v.shape)};
    g.dq = View(d[0]);
    g.dk = View(d[1]);
    g.dv = View(d[2]);
    Tensor dmask;
    if (attrs.get<bool>("of_mask")) {
      dmask = c.allocate(g.of.q.dtype, g.of.mask.shape);
      g.dmask = View(dmask);
    }
    c.primitives().attention_gradient(c.stream(), g);
    for (int i = 0; i < 3; ++i) c.set(i, std::move(d[i]));
    if (g.dmask.data) c.set(3, std::move(dmask));
  });
}

}  // namespace troupe
