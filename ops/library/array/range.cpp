#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/base/representable.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace troupe {

/// start, start + step, ... as far as it is before stop, in a graph or an eager scope: `arange(g,
/// 0, 10)`.
TROUPE_DSL(Expr arange(detail::Reader& in, double start, double stop, double step = 1,
                       DType dtype = DType::i64,
                       std::source_location at = std::source_location::current()))
/// start, start + step, ... as far as it is before stop, of expressions, which are scalars of one
/// dtype and may be known to a run alone: `arange(0, n)`. Differentiable if they are floats.
TROUPE_DSL(Expr arange(Operand start, Operand stop, Operand step = 1))
/// 0, 1, ... before `stop`, an expression.
TROUPE_DSL(Expr arange(Operand stop))
/// These numbers in `in`, as of the function above.
TROUPE_DSL(Expr arange(detail::Reader& in, Operand start, Operand stop, Operand step = 1))
/// `count` numbers from start to stop, both of them among these, at equal distances.
TROUPE_DSL(Expr linspace(detail::Reader& in, double start, double stop, std::int64_t count,
                         DType dtype = DType::f32,
                         std::source_location at = std::source_location::current()))
/// Ones on the main diagonal of zeros [rows, columns].
TROUPE_DSL(Expr eye(detail::Reader& in, std::int64_t rows, std::int64_t columns,
                    DType dtype = DType::f32,
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

Expr arange(Operand start, Operand stop, Operand step) {
  const Composite c("arange", {start, stop, step});
  return bind1("RangeBetween", {c[0], c[1], c[2]});
}

Expr arange(Operand stop) {
  const Composite c("arange", {stop});
  const DType t = c[0].dtype();
  c.require(is_integer(t) || is_floating(t),
            fmt::format("{} has no ranges between expressions; cast it to i64 or f32", name_of(t)));
  const auto number = [&](double value) {
    return c.reader().constant(Tensor::scalar_as(t, value));
  };
  return bind1("RangeBetween", {number(0), c[0], number(1)});
}

Expr arange(Reader&, Operand start, Operand stop, Operand step) {
  return arange(std::move(start), std::move(stop), std::move(step));
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
  op.doc("start, start + step, ...: `count` numbers.");
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
      require_representable(t, first, "the first number");
      require_representable(t, first + static_cast<double>(count - 1) * by, "the last number");
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

namespace {

// How many numbers from `start` on are before `stop`.
template <class T>
double count_between(T start, T stop, T step) {
  if constexpr (std::is_integral_v<T>) {
    const __int128 gap = static_cast<__int128>(stop) - start, by = step;
    if (by == 0) return gap == 0 ? 0 : std::numeric_limits<double>::infinity();
    const __int128 count = gap / by + (gap % by != 0 && (gap > 0) == (by > 0));
    return static_cast<double>(std::max<__int128>(count, 0));
  } else {
    return std::max(std::ceil((static_cast<double>(stop) - static_cast<double>(start)) /
                              static_cast<double>(step)),
                    0.0);
  }
}

}  // namespace

TROUPE_OP(RangeBetween) {
  op.doc("start, start + step, ... before stop, which are the inputs, in this order.");
  op.inputs(3);
  op.infer([](Inference& c) {
    const DType t = c.dtype(0);
    c.require(
        t == DType::i32 || t == DType::i64 || t == DType::f32 || t == DType::f64,
        fmt::format("{} has no ranges between expressions; cast them to i64 or f32", name_of(t)));
    for (int i = 0; i < 3; ++i) {
      c.require_dtype(i, t, "start, stop and step");
      c.require_rank(i, 0, "start, stop and step");
    }
    c.output(t, {kAny});
  });
  op.gradient([](Gradient& g) {
    if (!is_floating(g.x().dtype())) return;
    const Expr places = cast(positions_along(g.y(), 0), g.x().dtype());
    g.set(0, reshape_like(sum(g.dy()), g.x(0)));
    g.set(2, reshape_like(sum(g.dy() * places), g.x(2)));
  });
  op.kernel([](const KernelSetup&) {
    return with_host_inputs({0, 1, 2}, [](KernelContext& c) {
      const DType t = c.input(0).dtype();
      for (int i = 0; i < 3; ++i)
        if (c.input(i).elements() != 1)
          throw Error(Code::invalid_argument,
                      "start, stop and step must be scalars, not " + c.input(i).shape().text());
      double count = 0, start = 0, step = 0;
      visit_dtype(t, [&]<class T>(type_tag<T>) {
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
          const T from = c.input(0).item<T>(), by = c.input(2).item<T>();
          count = count_between<T>(from, c.input(1).item<T>(), by);
          start = static_cast<double>(from), step = static_cast<double>(by);
        }
      });
      constexpr double most = 0x1p53;
      if (!(count <= most) || (step == 0 && count != 0))
        throw Error(Code::invalid_argument, fmt::format("there is no end to {}, {}, ... before {}",
                                                        start, start + step, c.input(1).at(0)));
      const double last = start + (count - 1) * step;
      if (t == DType::i64 && count > 0 && std::max(std::abs(start), std::abs(last)) > most)
        throw Error(Code::invalid_argument,
                    fmt::format("a range from {} to {} is not exact beyond {}", start, last, most));
      Tensor out = c.allocate(t, {static_cast<std::int64_t>(count)});
      c.primitives().range(c.stream(), start, step, View(out));
      c.set(0, std::move(out));
    });
  });
}

}  // namespace troupe
