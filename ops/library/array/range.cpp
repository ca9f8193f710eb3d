#include <troupe/functions.hpp>
#include <troupe/ops/families/held.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/op.hpp>

#include <cmath>

#include <fmt/format.h>

namespace troupe {

/// start, start + step, ... as far as it is before stop, in a graph or an eager scope: `arange(g,
/// 0, 10)`.
TROUPE_DSL(Expr arange(Reader& in, double start, double stop, double step = 1,
                       DType dtype = DType::i64,
                       std::source_location at = std::source_location::current()))
/// `count` numbers from start to stop, both of them among these, at equal distances.
TROUPE_DSL(Expr linspace(Reader& in, double start, double stop, std::int64_t count,
                         DType dtype = DType::f32,
                         std::source_location at = std::source_location::current()))
/// Ones on the main diagonal of zeros [rows, columns].
TROUPE_DSL(Expr eye(Reader& in, std::int64_t rows, std::int64_t columns, DType dtype = DType::f32,
                    std::source_location at = std::source_location::current()))
/// 0, 1, ... along `axis` of x's shape, i64; extents may be unknown.
TROUPE_DSL(Expr positions_along(Operand x, std::int64_t axis))

namespace {

Expr range(const Composite& c, double start, double step, std::int64_t count, DType dtype) {
  return c.source("Range",
                  Attrs{{"start", start}, {"step", step}, {"count", count}, {"dtype", dtype}});
}

}  // namespace

Expr arange(Reader& in, double start, double stop, double step, DType dtype,
            std::source_location at) {
  const Composite c("arange", in, at);
  const double count = std::ceil((stop - start) / step);
  c.require(step != 0 && std::isfinite(count),
            fmt::format("there is no end to {}, {}, ... before {}", start, start + step, stop));
  constexpr double most = 0x1p53;  // beyond, the positions themselves are no whole numbers
  c.require(count <= most,
            fmt::format("there are {:g} numbers from {} to {} in steps of {}; there can "
                        "be {} at most",
                        count, start, stop, step, most));
  return range(c, start, step, count < 0 ? 0 : static_cast<std::int64_t>(count), dtype);
}

Expr linspace(Reader& in, double start, double stop, std::int64_t count, DType dtype,
              std::source_location at) {
  const Composite c("linspace", in, at);
  c.require(count >= 0, fmt::format("there cannot be {} numbers", count));
  if (count < 2) return cast(range(c, start, 0, count, DType::f64), dtype);
  // From either end as far as the middle, so that both ends are exact; and the difference of the
  // two need not be finite.
  const double last = static_cast<double>(count - 1), all = stop - start;
  const Expr i = range(c, 0, 1, count, DType::f64), left = last - i, is_first = i < last / 2;
  if (std::isfinite(all * last))
    return cast(where(is_first, start + i * all / last, stop - left * all / last), dtype);
  const double step = count > 2 ? stop / last - start / last : 0;
  return cast(where(is_first, start + i * step, stop - left * step), dtype);
}

Expr eye(Reader& in, std::int64_t rows, std::int64_t columns, DType dtype,
         std::source_location at) {
  const Composite c("eye", in, at);
  c.require(rows >= 0 && columns >= 0, fmt::format("there cannot be {} rows of {}", rows, columns));
  return cast(
      expand_dims(range(c, 0, 1, rows, DType::i64), 1) == range(c, 0, 1, columns, DType::i64),
      dtype);
}

Expr positions_along(Operand x, std::int64_t axis) {
  const Composite c("positions_along", {x});
  return cumsum(ones_like(cast(stop_gradient(c[0]), DType::i64)), axis, true);
}

TROUPE_OP(Range) {
  op.doc("start, start + step, ...: as many numbers as `count` says.");
  op.inputs(0);
  op.attr<double>("start", 0.0);
  op.attr<double>("step", 1.0);
  op.attr<std::int64_t>("count");
  op.attr<DType>("dtype", DType::i64);
  op.not_differentiable();
  op.infer([](Inference& c) {
    const DType t = c.attrs().get<DType>("dtype");
    c.require(t != DType::boolean && t != DType::string && !is_complex(t),
              std::string(name_of(t)) + " has no ranges");
    const std::int64_t count = c.attrs().get<std::int64_t>("count");
    c.require(count >= 0, fmt::format("there cannot be {} numbers", count));
    const double first = c.attrs().get<double>("start"), by = c.attrs().get<double>("step");
    c.require(!is_integer(t) || (std::trunc(first) == first && std::trunc(by) == by),
              fmt::format("{} cannot hold {}, {}, ...", name_of(t), first, first + by));
    if (count > 0) {
      require_held(t, first, "the first number");
      require_held(t, first + static_cast<double>(count - 1) * by, "the last number");
    }
    c.output(t, {count});
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    const DType t = attrs.get<DType>("dtype");
    Tensor out = c.allocate(t, {attrs.get<std::int64_t>("count")});
    c.primitives().range(c.stream(), attrs.get<double>("start"), attrs.get<double>("step"),
                         View(out));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
