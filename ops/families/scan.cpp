#include <troupe/ops/families/scan.hpp>

#include <fmt/format.h>

#include <troupe/functions.hpp>

namespace troupe::detail {

AroundAxis around_axis(const Shape& shape, std::int64_t axis) {
  const int at = normalize_axis(axis, shape.rank());
  AroundAxis a;
  for (int i = 0; i < shape.rank(); ++i)
    (i < at ? a.outer : i == at ? a.extent : a.inner) *= shape[i];
  return a;
}

void define_scan(OpBuilder& op, Scan what) {
  const bool is_linear = what == Scan::linear;
  op.inputs(is_linear ? 2 : 1);
  op.attr<std::int64_t>("axis", -1);
  if (!is_linear) op.attr<bool>("exclusive", false);
  op.attr<bool>("reverse", false);
  op.infer([=](Inference& c) {
    const DType t = c.dtype(0);
    c.require(t != DType::boolean, std::string(name_of(t)) + " has no running sums here; cast it");
    Shape shape = c.shape(0);
    if (is_linear) {
      c.require_same_dtype(0, 1);
      c.require(shape.is_compatible(c.shape(1)),
                fmt::format("a {} and b {} differ in shape", shape.text(), c.shape(1).text()));
      shape = shape.merge(c.shape(1));
    }
    if (shape.has_rank()) {
      c.require(shape.rank() >= 1, "a scalar has no axis");
      normalize_axis(c.attrs().get<std::int64_t>("axis"), shape.rank());
    }
    c.output(t, shape);
  });
  op.calls({Primitive::scan});
  op.kernel([=](const KernelSetup& s) -> std::unique_ptr<Kernel> {
    return make_kernel([=, axis = s.attrs.get<std::int64_t>("axis"),
                        exclusive = s.attrs.get_or("exclusive", false),
                        reverse = s.attrs.get<bool>("reverse")](KernelContext& c) {
      const Tensor& x = c.input(is_linear ? 1 : 0);
      if (x.shape().rank() == 0) throw Error(Code::invalid_argument, "a scalar has no axis");
      if (is_linear && c.input(0).shape() != x.shape())
        throw Error(Code::invalid_argument,
                    fmt::format("a {} and b {} differ in shape", c.input(0).shape().text(),
                                x.shape().text()));
      const AroundAxis a = around_axis(x.shape(), axis);
      Tensor out = c.allocate(x.dtype(), x.shape());
      c.primitives().scan(c.stream(), {what, x, is_linear ? ConstView(c.input(0)) : ConstView(),
                                       View(out), a.outer, a.extent, a.inner, exclusive, reverse});
      c.set(0, std::move(out));
    });
  });
}

namespace {

// How many elements stand behind each along the axis.
Expr positions_after(const Expr& x, std::int64_t axis) {
  return cumsum(ones_like(cast(stop_gradient(x), DType::i64)), axis, true, true);
}

}  // namespace

Expr shifted(const Expr& x, std::int64_t axis, bool back) {
  if (!x.shape().has_rank()) {
    // The axes are known only at run time: shift by the elements' positions.
    Expr at = positions_along(x, axis), from = back ? at + 1 : at - 1,
         is_there = back ? positions_after(x, axis) > 0 : at > 0;
    return where(is_there, take_along(x, where(is_there, from, at), axis), zeros_like(x));
  }
  const std::size_t at = static_cast<std::size_t>(normalize_axis(axis, x.shape().rank()));
  std::vector<std::int64_t> before(static_cast<std::size_t>(x.shape().rank()), 0),
      after = before, extents(before.size(), -1);
  (back ? after : before)[at] = 1;
  // One more on one side, one less on the other; the extent may be unknown.
  std::vector<std::int64_t> starts(before.size(), 0);
  starts[at] = back ? 1 : 0;
  return bind1("SliceLike", {pad(x, before, after), x}, Attrs{{"starts", starts}});
}

}  // namespace troupe::detail
