#include <troupe/ops/families/reduction.hpp>

#include <bit>

#include <fmt/format.h>

#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

namespace troupe::detail {

Expr reduce(std::string_view op, Operand x, std::vector<std::int64_t> axes, bool keep_dims) {
  return bind1(op, {x}, Attrs{{"axes", std::move(axes)}, {"keep_dims", keep_dims}});
}

std::uint32_t reduced_axes(const std::vector<std::int64_t>& axes, int rank) {
  std::uint32_t mask = 0;
  for (std::int64_t a : axes) {
    const std::uint32_t bit = 1u << normalize_axis(a, rank);
    if (mask & bit) throw Error(Code::invalid_argument, fmt::format("axis {} is named twice", a));
    mask |= bit;
  }
  return axes.empty() ? (1u << rank) - 1 : mask;
}

Shape reduced_shape(const Shape& in, std::uint32_t axes, bool keep_dims) {
  Shape out;
  for (int i = 0; i < in.rank(); ++i) {
    if (!(axes >> i & 1)) out.push_back(in[i]);
    else if (keep_dims) out.push_back(1);
  }
  return out;
}

ValueSpec reduced_spec(const Inference& c, Reduction kind, const ValueSpec& in) {
  const bool is_index = kind == Reduction::argmin || kind == Reduction::argmax;
  const bool takes_complex =
      kind == Reduction::sum || kind == Reduction::mean || kind == Reduction::product;
  const DType t = in.dtype;
  if (kind == Reduction::any || kind == Reduction::all)
    c.require(t == DType::boolean,
              [&] { return "the input must be bool, not " + std::string(name_of(t)); });
  else
    c.require(t != DType::boolean && (takes_complex || !is_complex(t)),
              std::string(name_of(t)) + " cannot be reduced so; cast it");
  if (kind == Reduction::logsumexp || kind == Reduction::mean)
    c.require(is_floating(t) || is_complex(t),
              [&] { return "needs a floating dtype, not " + std::string(name_of(t)); });
  const DType out = is_index ? DType::i64 : t;
  const auto& wanted = c.attrs().get<std::vector<std::int64_t>>("axes");
  const bool keep_dims = c.attrs().get<bool>("keep_dims");
  if (!in.shape.has_rank())
    return {out, wanted.empty() && !keep_dims && !is_index ? Shape{} : Shape::unknown()};
  const std::uint32_t axes = reduced_axes(wanted, in.shape.rank());
  c.require(!is_index || std::popcount(axes) == 1, "needs exactly one axis");
  if (is_index || kind == Reduction::max || kind == Reduction::min) {
    // An empty axis is an error only if it is known that there are results.
    const bool has_results = reduced_shape(in.shape, axes, true).elements() > 0;
    for (int i = 0; i < in.shape.rank(); ++i)
      c.require(!(axes >> i & 1) || in.shape[i] != 0 || !has_results,
                fmt::format("there is none among no elements: axis {} of {}", i, in.shape.text()));
  }
  return {out, reduced_shape(in.shape, axes, keep_dims)};
}

void define_reduction(OpBuilder& op, Reduction kind) {
  op.inputs(1);
  op.attr<std::vector<std::int64_t>>("axes", {});
  op.attr<bool>("keep_dims", false);
  op.infer([=](Inference& c) { c.output(reduced_spec(c, kind, c.input(0))); });
  op.kernel([=](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    auto wanted = s.attrs.get<std::vector<std::int64_t>>("axes");
    bool keep_dims = s.attrs.get<bool>("keep_dims");
    return make_kernel([=](KernelContext& c) {
      ConstView in(c.input(0));
      std::uint32_t axes = reduced_axes(wanted, in.shape.rank());
      const bool is_index = kind == Reduction::argmin || kind == Reduction::argmax;
      Tensor out =
          c.allocate(is_index ? DType::i64 : in.dtype, reduced_shape(in.shape, axes, keep_dims));
      c.primitives().reduce(c.stream(), kind, in, View(out), axes);
      c.set(0, std::move(out));
    });
  });
}

std::vector<std::int64_t> reduction_axes(const Gradient& g) {
  return g.attrs().get<std::vector<std::int64_t>>("axes");
}

Expr spread(const Gradient& g, const Expr& reduced) {
  // Axes that were removed are inserted first. If they were kept as 1, or all were removed,
  // broadcasting alone is enough.
  Shape in = g.x().shape();
  bool keep_dims = g.attrs().get<bool>("keep_dims");
  if (keep_dims || reduction_axes(g).empty()) return broadcast_like(reduced, g.x());
  // If the rank is unknown, x is reduced once more, for the shape with the axes kept.
  if (!in.has_rank())
    return broadcast_like(
        reshape_like(reduced, reduce("Any", cast(g.x(), DType::boolean), reduction_axes(g), true)),
        g.x());
  Expr aligned = reduced;
  std::uint32_t axes = reduced_axes(reduction_axes(g), in.rank());
  for (int i = 0; i < in.rank() && std::popcount(axes) != in.rank(); ++i)
    if (axes >> i & 1) aligned = expand_dims(aligned, i);
  return broadcast_like(aligned, g.x());
}

Expr divided_by_count(const Gradient& g, const Expr& value) {
  // Counts above 65504 are infinite as f16, and rounded above 256 as bf16.
  DType t = value.dtype();
  std::int64_t x = g.x().shape().elements(), y = g.y().shape().elements();
  Expr wider = widened_half(value);
  if (x >= 0 && y > 0) return cast(wider / (x / y), t);
  return cast(wider / cast(size_of(g.x()) / size_of(g.y()), wider.dtype()), t);
}

Expr reduce_alike(const Gradient& g, std::string_view op, const Expr& value) {
  return reduce(op, value, reduction_axes(g), g.attrs().get<bool>("keep_dims"));
}

Expr spread_to_extremes(const Gradient& g) {
  // Counts above 65504 are infinite as f16, and rounded above 256 as bf16.
  Expr is_extreme = g.x() == spread(g, g.y()), wide = widened_half(g.dy());
  Expr count = reduce_alike(g, "Sum", cast(is_extreme, wide.dtype()));
  return spread(g, cast(wide / count, g.dy().dtype())) * cast(is_extreme, g.x().dtype());
}

}  // namespace troupe::detail
