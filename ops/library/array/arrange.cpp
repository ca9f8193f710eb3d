#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace troupe {

/// x with its elements in reverse order along each of `axes`.
TROUPE_DSL(Expr flip(Operand x, detail::Axes axes))
/// x with its elements moved on by `shift` along `axis`, those that leave at the end coming back at
/// the front.
TROUPE_DSL(Expr roll(Operand x, std::int64_t shift, std::int64_t axis))
/// x `times[i]` times one after the other along axis i.
TROUPE_DSL(Expr tile(Operand x, std::vector<std::int64_t> times))
/// Each slice along `axis` `times` times in a row.
TROUPE_DSL(Expr repeat(Operand x, std::int64_t times, std::int64_t axis = 0))
/// x [a], y [b], ... as tensors [a, b, ...] in which each varies along its own axis.
TROUPE_DSL(Exprs meshgrid(const std::vector<Expr>& xs,
                          std::source_location at = std::source_location::current()))
/// Diagonal `k` of each matrix (0: the main one, 1: the next above, -1: below).
TROUPE_DSL(Expr diagonal(Operand x, std::int64_t k = 0))
/// Square matrices with x [..., n] on their main diagonal and 0 elsewhere.
TROUPE_DSL(Expr diagonal_matrix(Operand x))
/// The sum of each matrix's main diagonal.
TROUPE_DSL(Expr trace(Operand x))
/// x[i] y[j]: [n, m] of vectors [n] and [m].
TROUPE_DSL(Expr outer(Operand x, Operand y))
/// The Kronecker product of two matrices.
TROUPE_DSL(Expr kronecker(Operand x, Operand y))
/// How often each of 0, 1, ..., bins - 1 occurs in x (i32 or i64, each in [0, bins)): i64 [bins].
TROUPE_DSL(Expr bincount(Operand x, std::int64_t bins))
/// How many elements of x lie in each of `bins` parts of [low, high], the last of which holds high;
/// others count nowhere: i64 [bins].
TROUPE_DSL(Expr histogram(Operand x, double low, double high, std::int64_t bins))

namespace {

Expr chosen(const Composite& c, const Expr& x, std::vector<std::int64_t> which, int axis) {
  const auto n = static_cast<std::int64_t>(which.size());
  return gather(x, c.reader().constant(Tensor::of(which, Shape{n})), axis);
}

void require_matrices(const Composite& c, std::size_t i) {
  c.require(c.rank(i) >= 2, "needs matrices, not " + c[i].shape().text());
}

// 1 on diagonal k of matrices like x, in x's dtype.
Expr on_diagonal(const Expr& x, std::int64_t k) {
  Expr one = ones_like(cast(stop_gradient(x), DType::i64));
  return cumsum(one, -1) - cumsum(one, -2) == k;
}

}  // namespace

Expr flip(Operand x, detail::Axes axes) {
  Composite c("flip", {x});
  Expr y = c[0];
  std::vector<int> done;
  for (std::int64_t axis : axes) {
    // Positions counted from the end; the extent may be unknown.
    const int at = c.axis(0, axis);
    c.require(std::find(done.begin(), done.end(), at) == done.end(),
              fmt::format("axis {} is named twice", axis));
    done.push_back(at);
    Expr one = ones_like(cast(stop_gradient(y), DType::i64));
    y = take_along(y, cumsum(one, at, true, true), at);
  }
  return y;
}

Expr roll(Operand x, std::int64_t shift, std::int64_t axis) {
  Composite c("roll", {x});
  const int at = c.axis(0, axis);
  const std::int64_t n = c[0].shape()[at];
  if (n < 0) {
    // Each element comes from `shift` places before it, around an end that is known only at run
    // time.
    Expr one = ones_like(cast(stop_gradient(c[0]), DType::i64));
    return take_along(
        c[0], mod(cumsum(one, at, true) - c.reader().constant(shift), sum(one, {at}, true)), at);
  }
  const std::int64_t by = n == 0 ? 0 : (shift % n + n) % n;
  if (by == 0) return identity(c[0]);
  Exprs parts = split(c[0], {n - by, by}, at);
  return concat({parts[1], parts[0]}, at);
}

Expr tile(Operand x, std::vector<std::int64_t> times) {
  Composite c("tile", {x});
  c.require(times.size() == static_cast<std::size_t>(c.rank(0)),
            fmt::format("needs a number for each of the {} axes, not {}", c.rank(0), times.size()));
  Expr y = c[0];
  Shape made = c[0].shape();
  for (std::size_t i = 0; i < times.size(); ++i) {
    c.require(times[i] >= 0, fmt::format("there cannot be {} pieces along axis {}", times[i], i));
    const int axis = static_cast<int>(i);
    std::int64_t extent = std::max<std::int64_t>(1, made[axis]);
    c.require(
        !__builtin_mul_overflow(extent, times[i], &extent),
        fmt::format("{} pieces along axis {} of {} fit nowhere", times[i], i, c[0].shape().text()));
    made.set(axis, made[axis] == 0 ? 0 : extent);
  }
  c.require_fits(made);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (times[i] == 0) {
      std::vector<std::int64_t> starts(times.size(), 0), extents(times.size(), -1);
      extents[i] = 0;
      y = slice(y, starts, extents);
    } else if (times[i] > 1) {
      // By doubling: a few nodes, however many pieces.
      Exprs parts;
      Expr power = y;
      for (std::int64_t left = times[i]; left > 0; left >>= 1) {
        if (left & 1) parts.push_back(power);
        if (left > 1) power = concat({power, power}, at);
      }
      y = parts.size() == 1 ? parts[0] : concat(parts, at);
    }
  }
  return y;
}

Expr repeat(Operand x, std::int64_t times, std::int64_t axis) {
  Composite c("repeat", {x});
  const int at = c.axis(0, axis);
  const std::int64_t n = c[0].shape()[at];
  c.require(times >= 0, fmt::format("there cannot be {} of each", times));
  c.require(n == 0 || times <= (std::int64_t{1} << 28) / std::max<std::int64_t>(1, n),
            fmt::format("makes at most 2^28 slices, not {} of each{}", times,
                        n < 0 ? "" : fmt::format(" of {}", n)));
  if (n < 0) {
    // Beside each other, then as one axis, whose extent is known only at run time.
    std::vector<std::int64_t> beside(static_cast<std::size_t>(c.rank(0)) + 1, 1),
        larger(beside.size() - 1, 1);
    beside[static_cast<std::size_t>(at) + 1] = larger[static_cast<std::size_t>(at)] = times;
    Expr extents = shape_of(c[0]) * c.reader().constant(Tensor::of(larger, {c.rank(0)}));
    return reshape_to(tile(expand_dims(c[0], at + 1), beside), extents, c[0].shape());
  }
  std::vector<std::int64_t> which;
  for (std::int64_t i = 0; i < n; ++i)
    which.insert(which.end(), static_cast<std::size_t>(times), i);
  return chosen(c, c[0], which, at);
}

Exprs meshgrid(const std::vector<Expr>& xs, std::source_location at) {
  if (xs.empty())
    throw Error(Code::invalid_argument,
                fmt::format("meshgrid at {}: needs at least one vector", Site(at).text()));
  Composite c("meshgrid", {Operand(xs[0], at)});
  Exprs apart, out;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    c.require(!xs[i].shape().has_rank() || xs[i].shape().rank() == 1,
              "needs vectors, not " + xs[i].shape().text());
    Expr e = xs[i];
    for (std::size_t k = 0; k < xs.size(); ++k)
      if (k != i) e = expand_dims(e, static_cast<std::int64_t>(k));
    apart.push_back(e);
  }
  // Zeros of the common shape, for any dtypes.
  Expr all = zeros_like(cast(stop_gradient(apart[0]), DType::i64));
  for (std::size_t i = 1; i < apart.size(); ++i)
    all = all + zeros_like(cast(stop_gradient(apart[i]), DType::i64));
  for (const Expr& e : apart) out.push_back(broadcast_like(e, all));
  return out;
}

Expr diagonal(Operand x, std::int64_t k) {
  Composite c("diagonal", {x});
  require_matrices(c, 0);
  const std::int64_t rows = c.extent(0, -2), columns = c.extent(0, -1),
                     first_row = std::max<std::int64_t>(0, -k),
                     first_column = std::max<std::int64_t>(0, k);
  const std::int64_t n =
      std::max<std::int64_t>(0, std::min(rows - first_row, columns - first_column));
  const int rank = c.rank(0);
  // Matrices as rows: along the diagonal every columns + 1st element.
  std::vector<std::int64_t> which, shape;
  for (std::int64_t i = 0; i < n; ++i)
    which.push_back((first_row + i) * columns + first_column + i);
  int unknown = 0;
  for (int i = 0; i + 2 < rank; ++i) {
    shape.push_back(c[0].shape()[i]);
    unknown += c[0].shape()[i] < 0;
  }
  c.require(unknown <= 1,
            "needs all extents but one while the graph is built: " + c[0].shape().text());
  shape.push_back(rows * columns);
  return chosen(c, reshape(c[0], Shape(shape)), which, rank - 2);
}

Expr diagonal_matrix(Operand x) {
  Composite c("diagonal_matrix", {x});
  c.require(c.rank(0) >= 1, "a scalar is no diagonal");
  Expr number = positions_along(c[0], -1),
       is_on = expand_dims(number, -1) == expand_dims(number, -2);
  return where(is_on, expand_dims(c[0], -1), zeros_like(expand_dims(c[0], -1)));
}

Expr trace(Operand x) {
  Composite c("trace", {x});
  require_matrices(c, 0);
  return sum(where(on_diagonal(c[0], 0), c[0], zeros_like(c[0])), {-2, -1});
}

Expr outer(Operand x, Operand y) {
  Composite c("outer", {x, y});
  c.require(c.rank(0) == 1 && c.rank(1) == 1,
            fmt::format("needs vectors, not {} and {}", c[0].shape().text(), c[1].shape().text()));
  return expand_dims(c[0], 1) * c[1];
}

Expr kronecker(Operand x, Operand y) {
  Composite c("kronecker", {x, y});
  c.require(c.rank(0) == 2 && c.rank(1) == 2,
            fmt::format("needs matrices, not {} and {}", c[0].shape().text(), c[1].shape().text()));
  auto product = [](std::int64_t n, std::int64_t m) { return n < 0 || m < 0 ? kAny : n * m; };
  const Shape made{product(c[0].shape()[0], c[1].shape()[0]),
                   product(c[0].shape()[1], c[1].shape()[1])};
  const Expr all = expand_dims(expand_dims(c[0], 1), 3) * expand_dims(expand_dims(c[1], 0), 2);
  return made.is_known() ? reshape(all, made)
                         : reshape_to(all, shape_of(c[0]) * shape_of(c[1]), made);
}

Expr bincount(Operand x, std::int64_t bins) {
  Composite c("bincount", {x});
  c.require(c[0].dtype() == DType::i32 || c[0].dtype() == DType::i64,
            fmt::format("needs i32 or i64, not {}", name_of(c[0].dtype())));
  c.require(bins >= 0, fmt::format("there cannot be {} bins", bins));
  return scatter_add(c.reader().zeros(DType::i64, {bins}), c[0], ones_like(cast(c[0], DType::i64)));
}

Expr histogram(Operand x, double low, double high, std::int64_t bins) {
  Composite c("histogram", {x});
  c.require_floating(0);
  c.require(low < high && bins >= 1,
            fmt::format("needs low below high and at least one bin, not [{}, {}] in {}", low, high,
                        bins));
  Expr wide = cast(stop_gradient(c[0]), DType::f64), is_in = logical_and(wide >= low, wide <= high);
  Expr bin = minimum(
      cast(floor((wide - low) * (static_cast<double>(bins) / (high - low))), DType::i64), bins - 1);
  // Elements outside go to an extra bin, which is cut off.
  Expr counts = bincount(where(is_in, bin, fill_like(bin, static_cast<double>(bins))), bins + 1);
  return slice(counts, {0}, {bins});
}

}  // namespace troupe
