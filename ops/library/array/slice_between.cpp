#include <troupe/functions.hpp>
#include <troupe/ops/families/extents.hpp>
#include <troupe/ops/families/host_inputs.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace troupe {

// `x[i]`, `x[{begin, end}]` and `slice` with bounds that may be known only at run time. Bounds that
// are numbers within known extents become a Slice, which passes can optimise.

namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kOpenEnd = std::numeric_limits<std::int64_t>::max();

// The position of a block, and its extents.
struct SliceBlock {
  Shape start, extent;
};

// [begin, end) of n elements, cut to them.
std::pair<std::int64_t, std::int64_t> cut_interval(std::int64_t n, std::int64_t begin,
                                                   std::int64_t end) {
  const auto within = [n](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + n : at, 0, n);
  };
  const std::int64_t first = within(begin);
  return {first, std::max(within(end) - first, std::int64_t{0})};
}

// `extent` elements from `start` on, all there; -1: as many as there are.
std::pair<std::int64_t, std::int64_t> exact_interval(std::int64_t n, std::int64_t start,
                                                     std::int64_t extent, int axis) {
  const std::int64_t first = start < 0 ? start + n : start;
  if (first < 0 || first > n || extent > n - first)
    throw Error(
        Code::out_of_range,
        fmt::format("axis {}: {} from {} on are not among its {}", axis,
                    extent < 0 ? "the elements" : fmt::format("{} elements", extent), start, n));
  return {first, extent < 0 ? n - first : extent};
}

SliceBlock slice_block(const Shape& x, const Integers& begins, const Integers& ends,
                       const Attrs& attrs) {
  const bool is_cut = attrs.get<bool>("cut");
  const Shape& known = attrs.get<Shape>("shape");
  if (std::ssize(begins) != x.rank() || std::ssize(ends) != x.rank() || known.rank() != x.rank())
    throw Error(Code::invalid_argument,
                fmt::format("{} bounds for a tensor of shape {}", begins.size(), x.text()));
  SliceBlock b;
  for (int i = 0; i < x.rank(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!is_cut && ends[at] < -1)
      throw Error(
          Code::invalid_argument,
          fmt::format("axis {}: there is no extent {}; -1 goes to the axis's end", i, ends[at]));
    const auto [start, extent] = is_cut ? cut_interval(x[i], begins[at], ends[at])
                                        : exact_interval(x[i], begins[at], ends[at], i);
    if (known[i] >= 0 && known[i] != extent)
      throw Error(Code::invalid_argument,
                  fmt::format("axis {}: the slice has {} elements, not {}", i, extent, known[i]));
    b.start.push_back(start);
    b.extent.push_back(extent);
  }
  return b;
}

void require_bounds(Inference& c, int begins, const Shape& known) {
  for (int i = begins; i < begins + 2; ++i) {
    c.require_index(i, "bounds");
    c.require_rank(i, 1, "the vector of bounds");
    c.require(!c.shape(i).has_rank() || c.shape(i)[0] < 0 || c.shape(i)[0] == known.rank(), [&] {
      return fmt::format("there are {} bounds for {} axes", c.shape(i)[0], known.rank());
    });
  }
}

// One bound of an axis: a number, or an operand that is none.
struct SliceEnd {
  std::int64_t number = 0;
  std::optional<Operand> value;
};

SliceEnd slice_end(const std::optional<Operand>& bound, std::int64_t open, const Site& site) {
  if (!bound) return {open, {}};
  if (!bound->is_number()) return {0, bound};
  return {bound->at(site).number_as(DType::i64, "the bound of a slice ").item<std::int64_t>(), {}};
}

Expr ends_vector(const Composite& c, const std::vector<SliceEnd>& ends) {
  Integers numbers;
  for (const SliceEnd& e : ends)
    if (!e.value) numbers.push_back(e.number);
  const auto n = static_cast<std::int64_t>(ends.size());
  if (numbers.size() == ends.size()) return c.reader().constant(Tensor::of(numbers, Shape{n}));
  std::vector<Expr> parts;
  for (const SliceEnd& e : ends)
    parts.push_back(e.value ? integer_vector(c, *e.value, "the bound of a slice")
                            : c.reader().constant(Tensor::of<std::int64_t>({e.number})));
  return parts.size() == 1 ? parts[0] : concat(parts, 0);
}

Expr slice_between(const Composite& c, const std::vector<SliceEnd>& begins,
                   const std::vector<SliceEnd>& ends, const Shape& known, bool is_cut) {
  return bind1("SliceBetween", {c[0], ends_vector(c, begins), ends_vector(c, ends)},
               Attrs{{"shape", known}, {"cut", is_cut}});
}

// The block of `extents` that begins at `starts`, of which some are values.
Expr exact_block(const Composite& c, const std::vector<SliceEnd>& starts, const Integers& extents) {
  const Shape x = c[0].shape();
  Shape known;
  std::vector<SliceEnd> counts;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const bool is_whole = extents[i] < 0 && !starts[i].value && starts[i].number == 0;
    known.push_back(extents[i] >= 0 ? extents[i] : is_whole ? x[static_cast<int>(i)] : kAny);
    counts.push_back({extents[i], {}});
  }
  return slice_between(c, starts, counts, known, false);
}

}  // namespace

/// This slice with starts of which some are expressions, i32 or i64 scalars: `slice(x, {t, 0}, {1,
/// 4})`. A run whose block is not within x fails with out_of_range.
TROUPE_DSL(Expr slice(Operand x, std::initializer_list<Operand> starts,
                      std::vector<std::int64_t> extents))
Expr slice(Operand x, std::initializer_list<Operand> starts, std::vector<std::int64_t> extents) {
  std::vector<SliceEnd> begins;
  Integers numbers;
  for (const Operand& o : starts) {
    begins.push_back(slice_end(o, 0, o.site()));
    if (!begins.back().value) numbers.push_back(begins.back().number);
  }
  if (numbers.size() == begins.size()) return slice(x, std::move(numbers), std::move(extents));
  const Composite c("slice", {x});
  c.require(std::ssize(extents) == c.rank(0) && begins.size() == extents.size(),
            fmt::format("{} starts and {} extents for a tensor of shape {}", begins.size(),
                        extents.size(), c[0].shape().text()));
  for (std::size_t i = 0; i < extents.size(); ++i)
    c.require(extents[i] >= -1, fmt::format("axis {}: there is no extent {}; -1 goes to the axis's "
                                            "end",
                                            i, extents[i]));
  return exact_block(c, begins, extents);
}

Expr Expr::operator[](const detail::Index& index) const {
  const Composite c("operator[]", {Operand(*this, index.operand.site())});
  const int rank = c.rank(0);
  c.require(rank > 0, "a scalar has no elements to choose from");
  const SliceEnd at = slice_end(index.operand, 0, index.operand.site());
  const std::int64_t n = c[0].shape()[0];
  if (!at.value && n >= 0 && (at.number < -n || at.number >= n))
    throw Error(Code::out_of_range, fmt::format("operator[] at {}: index {} is outside [{}, {})",
                                                index.operand.site().text(), at.number, -n, n));
  Integers extents(static_cast<std::size_t>(rank), -1);
  extents[0] = 1;
  if (!at.value) {
    Integers starts(static_cast<std::size_t>(rank), 0);
    starts[0] = at.number;
    return squeeze(slice(c[0], starts, extents), 0);
  }
  std::vector<SliceEnd> starts(static_cast<std::size_t>(rank));
  starts[0] = at;
  return squeeze(exact_block(c, starts, extents), 0);
}

Expr Expr::operator[](const detail::Interval& interval) const { return (*this)[{interval}]; }

Expr Expr::operator[](std::initializer_list<detail::Interval> intervals) const {
  if (intervals.size() == 0) return *this;
  const Composite c("operator[]", {Operand(*this, intervals.begin()->line.site)});
  const Shape x = c[0].shape();
  const int rank = c.rank(0);
  c.require(std::ssize(intervals) <= rank,
            fmt::format("{} slices are given for shape {}", intervals.size(), x.text()));
  std::vector<SliceEnd> begins, ends;
  for (const detail::Interval& i : intervals) {
    begins.push_back(slice_end(i.begin.operand, 0, i.line.site));
    ends.push_back(slice_end(i.end.operand, kOpenEnd, i.line.site));
  }
  begins.resize(static_cast<std::size_t>(rank), {0, {}});
  ends.resize(static_cast<std::size_t>(rank), {kOpenEnd, {}});
  bool is_known = true;
  Integers starts, extents;
  Shape known;
  for (int i = 0; i < rank; ++i) {
    const SliceEnd &b = begins[static_cast<std::size_t>(i)], &e = ends[static_cast<std::size_t>(i)];
    const bool is_whole = !b.value && !e.value && b.number == 0 && e.number == kOpenEnd,
               is_fixed = !b.value && !e.value && x[i] >= 0;
    is_known = is_known && (is_whole || is_fixed);
    const auto [start, extent] =
        is_fixed ? cut_interval(x[i], b.number, e.number) : std::pair(std::int64_t{0}, kAny);
    starts.push_back(start);
    extents.push_back(is_whole ? -1 : extent);
    known.push_back(extent);
  }
  return is_known ? slice(c[0], starts, extents) : slice_between(c, begins, ends, known, true);
}

TROUPE_OP(SliceBetween) {
  op.doc(
      "The block of the first input between the bounds in the second and third, cut to its "
      "extents; without `cut`, the block that begins at the second and has the third's extents.");
  op.inputs(3);
  op.takes_strings();
  op.attr<Shape>("shape");
  op.attr<bool>("cut", true);
  op.infer([](Inference& c) {
    const Shape& known = c.attrs().get<Shape>("shape");
    require_bounds(c, 1, known);
    c.require(!c.shape(0).has_rank() || c.shape(0).rank() == known.rank(), [&] {
      return fmt::format("{} bounds for a tensor of shape {}", known.rank(), c.shape(0).text());
    });
    c.output(c.dtype(0), known);
  });
  op.gradient([](Gradient& g) {
    g.set(0, bind1("SliceBetweenGradient", {g.dy(), g.x(0), g.x(1), g.x(2)}, g.attrs()));
  });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({1, 2}, [attrs = s.attrs](KernelContext& c) {
      ConstView in(c.input(0));
      const SliceBlock b =
          slice_block(in.shape, integers_of(c.input(1)), integers_of(c.input(2)), attrs);
      if (b.extent == in.shape) {
        c.set(0, c.take(0));
        return;
      }
      Block from = Block::origin(in.shape.rank()), to = from;
      from.start = b.start;
      Tensor out = c.allocate(in.dtype, b.extent);
      c.primitives().copy_block(c.stream(), in, from, View(out), to, b.extent);
      c.set(0, std::move(out));
    });
  });
}

TROUPE_OP(SliceBetweenGradient) {
  op.doc("Zeros of the second input's shape with the first where SliceBetween takes it from.");
  op.inputs(4);
  op.shape_only({1});
  op.attr<Shape>("shape");
  op.attr<bool>("cut", true);
  op.infer([](Inference& c) {
    const Shape& known = c.attrs().get<Shape>("shape");
    require_bounds(c, 2, known);
    c.require(c.shape(0).is_compatible(known), [&] {
      return fmt::format("a block {} is none of shape {}", c.shape(0).text(), known.text());
    });
    c.output(c.dtype(0), c.shape(1));
  });
  op.gradient([](Gradient& g) {
    g.set(0, bind1("SliceBetween", {g.dy(), g.x(2), g.x(3)}, g.attrs()));
  });
  op.kernel([](const KernelSetup& s) {
    return with_host_inputs({2, 3}, [attrs = s.attrs](KernelContext& c) {
      ConstView block(c.input(0));
      const Shape shape = c.input(1).shape();
      const SliceBlock b =
          slice_block(shape, integers_of(c.input(2)), integers_of(c.input(3)), attrs);
      if (b.extent != block.shape)
        throw Error(Code::invalid_argument, fmt::format("a block {} does not have shape {}",
                                                        block.shape.text(), b.extent.text()));
      Tensor out = c.allocate(block.dtype, shape);
      View to(out);
      c.primitives().fill(c.stream(), Tensor::scalar_as(block.dtype, 0), to);
      Block at = Block::origin(shape.rank());
      at.start = b.start;
      c.primitives().copy_block(c.stream(), block, Block::origin(shape.rank()), to, at,
                                block.shape);
      c.set(0, std::move(out));
    });
  });
}

}  // namespace troupe
