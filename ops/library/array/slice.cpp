#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/composite.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe {

/// The block of x that begins at `starts` and has `extents`; an extent of -1 goes to the axis's
/// end, a negative start counts from it.
TROUPE_DSL(Expr slice(Operand x, std::vector<std::int64_t> starts,
                      std::vector<std::int64_t> extents))
Expr slice(Operand x, std::vector<std::int64_t> starts, std::vector<std::int64_t> extents) {
  return bind1("Slice", {x}, Attrs{{"starts", std::move(starts)}, {"extents", std::move(extents)}});
}
/// Every steps[i]th element of slice(x, starts, extents) along axis i, from its first on; steps are
/// 1 or more.
TROUPE_DSL(Expr strided_slice(Operand x, std::vector<std::int64_t> starts,
                              std::vector<std::int64_t> extents, std::vector<std::int64_t> steps))
Expr strided_slice(Operand x, std::vector<std::int64_t> starts, std::vector<std::int64_t> extents,
                   std::vector<std::int64_t> steps) {
  Composite c("strided_slice", {x});
  c.require(steps.size() == static_cast<std::size_t>(c.rank(0)),
            fmt::format("needs a step for each of the {} axes, not {}", c.rank(0), steps.size()));
  Expr y = slice(c[0], std::move(starts), std::move(extents));
  for (int axis = 0; axis < c.rank(0); ++axis) {
    const std::int64_t step = steps[static_cast<std::size_t>(axis)], n = y.shape()[axis];
    c.require(step >= 1,
              fmt::format("the step along axis {} must be at least 1, not {}", axis, step));
    if (step == 1) continue;
    c.require(n >= 0, fmt::format("needs the extent along axis {} while the graph is built: {}",
                                  axis, y.shape().text()));
    std::vector<std::int64_t> which;
    for (std::int64_t i = 0; i < n; i += std::min(step, n - i)) which.push_back(i);
    const auto count = static_cast<std::int64_t>(which.size());
    y = gather(y, c.reader().constant(Tensor::of(which, Shape{count})), axis);
  }
  return y;
}

namespace {

struct Range {
  Shape start, extent;
};

Range sliced(const Shape& in, const Attrs& attrs) {
  const auto& starts = attrs.get<std::vector<std::int64_t>>("starts");
  const auto& extents = attrs.get<std::vector<std::int64_t>>("extents");
  if (starts.size() != extents.size() ||
      (in.has_rank() && in.rank() != static_cast<int>(starts.size())))
    throw Error(Code::invalid_argument,
                fmt::format("{} starts and {} extents for a tensor of shape {}", starts.size(),
                            extents.size(), in.text()));
  Range r;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (extents[i] < -1)
      throw Error(
          Code::invalid_argument,
          fmt::format("axis {}: there is no extent {}; -1 goes to the axis's end", i, extents[i]));
    std::int64_t n = in.has_rank() ? in[static_cast<int>(i)] : kAny;
    std::int64_t start = starts[i] < 0 && n >= 0 ? starts[i] + n : starts[i];
    std::int64_t extent = extents[i] < 0 ? (n >= 0 ? n - start : kAny) : extents[i];
    if (n >= 0 && (start < 0 || extent < 0 || start > n || extent > n - start))
      throw Error(
          Code::out_of_range,
          fmt::format("axis {}: {} from {} on are not among its {}", i,
                      extents[i] < 0 ? "the elements" : fmt::format("{} elements", extents[i]),
                      starts[i], n));
    r.start.push_back(start < 0 ? kAny : start);
    r.extent.push_back(extent);
  }
  return r;
}

}  // namespace

TROUPE_OP(Slice) {
  op.doc("A rectangular block of the input.");
  op.inputs(1);
  op.takes_strings();
  op.attr<std::vector<std::int64_t>>("starts");
  op.attr<std::vector<std::int64_t>>("extents");
  op.infer([](Inference& c) { c.output(c.dtype(0), sliced(c.shape(0), c.attrs()).extent); });
  op.gradient([](Gradient& g) {
    g.set(0, bind1("SliceGradient", {g.dy(), g.x()},
                   Attrs{{"starts", g.attrs().get<std::vector<std::int64_t>>("starts")}}));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView in(c.input(0));
    Range r = sliced(in.shape, attrs);
    Block from = Block::origin(in.shape.rank()), to = from;
    from.start = r.start;
    Tensor out = c.allocate(in.dtype, r.extent);
    c.primitives().copy_block(c.stream(), in, from, View(out), to, r.extent);
    c.set(0, std::move(out));
  });
}

namespace {
void require_block(const Shape& block, const Shape& whole,
                   const std::vector<std::int64_t>& starts) {
  if (!block.has_rank() || !whole.has_rank()) return;
  auto fail = [&] {
    throw Error(Code::invalid_argument,
                fmt::format("a block {} at [{}] does not lie in {}", block.text(),
                            fmt::join(starts, ", "), whole.text()));
  };
  if (block.rank() != whole.rank() || starts.size() != static_cast<std::size_t>(whole.rank()))
    fail();
  for (int i = 0; i < whole.rank(); ++i) {
    if (whole[i] < 0) continue;
    const std::int64_t start = starts[static_cast<std::size_t>(i)] < 0
                                   ? starts[static_cast<std::size_t>(i)] + whole[i]
                                   : starts[static_cast<std::size_t>(i)];
    if (start < 0 || start > whole[i] || (block[i] >= 0 && block[i] > whole[i] - start)) fail();
  }
}
}  // namespace

TROUPE_OP(SliceGradient) {
  op.doc("Zeros of the second input's shape with the first as the block that begins at `starts`.");
  op.inputs(2);
  op.shape_only({1});
  op.attr<std::vector<std::int64_t>>("starts");
  op.infer([](Inference& c) {
    require_block(c.shape(0), c.shape(1), c.attrs().get<std::vector<std::int64_t>>("starts"));
    c.output(c.dtype(0), c.shape(1));
  });
  op.gradient([](Gradient& g) {
    g.set(0, bind1("SliceLike", {g.dy(), g.x(0)},
                   Attrs{{"starts", g.attrs().get<std::vector<std::int64_t>>("starts")}}));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView block(c.input(0));
    const Shape shape = c.input(1).shape();
    require_block(block.shape, shape, attrs.get<std::vector<std::int64_t>>("starts"));
    Tensor out = c.allocate(block.dtype, shape);
    View to(out);
    c.primitives().fill(c.stream(), Tensor::scalar_as(block.dtype, 0), to);
    Block at = Block::origin(shape.rank());
    const auto& starts = attrs.get<std::vector<std::int64_t>>("starts");
    for (int i = 0; i < shape.rank(); ++i)
      at.start.set(i, starts[i] < 0 ? starts[i] + shape[i] : starts[i]);
    c.primitives().copy_block(c.stream(), block, Block::origin(shape.rank()), to, at, block.shape);
    c.set(0, std::move(out));
  });
}

TROUPE_OP(SliceLike) {
  op.doc("The block of the first input that begins at `starts` and has the second input's shape.");
  op.inputs(2);
  op.shape_only({1});
  op.attr<std::vector<std::int64_t>>("starts");
  op.infer([](Inference& c) {
    require_block(c.shape(1), c.shape(0), c.attrs().get<std::vector<std::int64_t>>("starts"));
    c.output(c.dtype(0), c.shape(1));
  });
  op.gradient([](Gradient& g) {
    g.set(0, bind1("SliceGradient", {g.dy(), g.x(0)},
                   Attrs{{"starts", g.attrs().get<std::vector<std::int64_t>>("starts")}}));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView in(c.input(0));
    const Shape shape = c.input(1).shape();
    require_block(shape, in.shape, attrs.get<std::vector<std::int64_t>>("starts"));
    Block from = Block::origin(shape.rank());
    const auto& starts = attrs.get<std::vector<std::int64_t>>("starts");
    for (int i = 0; i < shape.rank(); ++i)
      from.start.set(i, starts[i] < 0 ? starts[i] + in.shape[i] : starts[i]);
    Tensor out = c.allocate(in.dtype, shape);
    c.primitives().copy_block(c.stream(), in, from, View(out), Block::origin(shape.rank()), shape);
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
