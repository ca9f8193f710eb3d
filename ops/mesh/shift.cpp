#include <troupe/ops/mesh/shift.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <troupe/devices/base/internal.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/mesh/functions.hpp>

namespace troupe {

namespace {

int shifted_axis(const Attrs& attrs, const Shape& x) {
  const std::int64_t axis = attrs.get<std::int64_t>("axis");
  if (x.has_rank() && (axis < 0 || axis >= x.rank()))
    throw Error(Code::invalid_argument, fmt::format("{} has no axis {}", x.text(), axis));
  return static_cast<int>(axis);
}

}  // namespace

TROUPE_OP(ShiftAlong) {
  op.doc(
      "The input, moved by `by` positions along an axis; zeros, or the other end, fill the gap.");
  op.inputs(1);
  op.attr<std::int64_t>("axis");
  op.attr<std::int64_t>("by");
  op.attr<bool>("wrap", false);
  op.infer([](Inference& c) {
    shifted_axis(c.attrs(), c.shape(0));
    c.output(c.input(0));
  });
  op.gradient([](Gradient& g) {
    const Attrs& a = g.attrs();
    g.set(0, bind1("ShiftAlong", {g.dy()},
                   Attrs{{"axis", a.get<std::int64_t>("axis")},
                         {"by", -a.get<std::int64_t>("by")},
                         {"wrap", a.get<bool>("wrap")}}));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    const ConstView x(c.input(0));
    const int axis = shifted_axis(attrs, x.shape);
    const std::int64_t n = x.shape[axis];
    Tensor out = c.allocate(x.dtype, x.shape);
    const View to(out);
    const auto copy = [&](std::int64_t from, std::int64_t begin, std::int64_t count) {
      if (count <= 0) return;
      Block source = Block::origin(x.shape.rank()), target = source;
      source.start.set(axis, from);
      target.start.set(axis, begin);
      Shape extent = x.shape;
      extent.set(axis, count);
      c.primitives().copy_block(c.stream(), x, source, to, target, extent);
    };
    std::int64_t by = attrs.get<std::int64_t>("by");
    if (attrs.get<bool>("wrap") && n > 0) {
      by = ((by % n) + n) % n;
      copy(n - by, 0, by);
      copy(0, by, n - by);
    } else {
      by = std::clamp(by, -n, n);
      c.primitives().fill(c.stream(), Tensor::scalar_as(x.dtype, 0), to);
      if (by >= 0) copy(0, by, n - by);
      else copy(-by, 0, n + by);
    }
    c.set(0, std::move(out));
  });
}

namespace mesh {

Expr shift(const Expr& x, const Dim& along, std::int64_t by, bool wrap, std::source_location at) {
  const Dims dims = dims_of(x, at);
  const auto it = std::find(dims.begin(), dims.end(), along);
  const Site site(at);
  if (it == dims.end() || along.name.empty())
    throw Error(Code::invalid_argument,
                fmt::format("mesh::shift at {}: the value has no dimension '{}' of size {}; it has "
                            "{}",
                            site.text(), along.name, along.size, text_of(dims)));
  const Operand operand = Operand(x).at(site);
  return bind1(
      "ShiftAlong", {&operand, 1},
      Attrs{{"axis", static_cast<std::int64_t>(it - dims.begin())}, {"by", by}, {"wrap", wrap}},
      site);
}

}  // namespace mesh

}  // namespace troupe
