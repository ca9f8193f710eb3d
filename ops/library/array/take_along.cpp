#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/scan.hpp>

#include <fmt/format.h>

namespace troupe {

/// The elements of each row along `axis` that its row of indices names. indices: x's shape but for
/// `axis`, i32 or i64 in [0, extent); result: their shape.
TROUPE_DSL(Expr take_along(Operand x, Operand indices, std::int64_t axis = -1))
Expr take_along(Operand x, Operand indices, std::int64_t axis) {
  return bind1("TakeAlong", {x, indices.as_written()}, Attrs{{"axis", axis}});
}

namespace {

// But for the axis, `a` and `b` have one shape.
bool fit(const Shape& a, const Shape& b, std::int64_t axis) {
  if (!a.has_rank() || !b.has_rank()) return true;
  if (a.rank() != b.rank() || a.rank() == 0) return false;
  Shape rest = a, other = b;
  const int at = normalize_axis(axis, a.rank());
  rest.set(at, kAny);
  other.set(at, kAny);
  return rest.is_compatible(other);
}

void require_fit(const Shape& x, const Shape& indices, std::int64_t axis) {
  if (!fit(x, indices, axis))
    throw Error(Code::invalid_argument,
                fmt::format("indices {} and {} must have one shape but for axis {}", indices.text(),
                            x.text(), axis));
}

}  // namespace

TROUPE_OP(TakeAlong) {
  op.doc("The elements of each row along one axis that its row of indices names.");
  op.inputs(2);
  op.attr<std::int64_t>("axis", -1);
  op.infer([](Inference& c) {
    c.require_index(1, "indices");
    require_fit(c.shape(0), c.shape(1), c.attrs().get<std::int64_t>("axis"));
    c.output(c.dtype(0), c.shape(1));
  });
  op.gradient([](Gradient& g) {
    // Complex numbers, which AddAlong has no loops for, by their parts.
    const auto put_back = [&](const Expr& dy) {
      return bind1("AddAlong", {dy, g.x(1), g.x(0)}, g.attrs());
    };
    g.set(0, is_complex(g.dy().dtype())
                 ? complex(put_back(real(g.dy())), put_back(imaginary(g.dy())))
                 : put_back(g.dy()));
  });
  op.calls({Primitive::along});
  op.run([](KernelContext& c, const Attrs& attrs) {
    const std::int64_t axis = attrs.get<std::int64_t>("axis");
    const Tensor &x = c.input(0), &indices = c.input(1);
    require_fit(x.shape(), indices.shape(), axis);
    const AroundAxis a = around_axis(x.shape(), axis), taken = around_axis(indices.shape(), axis);
    Tensor out = c.allocate(x.dtype(), indices.shape());
    c.primitives().along(
        c.stream(), {Along::take, x, indices, View(out), a.outer, a.extent, taken.extent, a.inner});
    c.set(0, std::move(out));
  });
}

TROUPE_OP(AddAlong) {
  op.doc(
      "Zeros of the third input's shape with the first's elements added where the indices in the "
      "second name, along one axis.");
  op.inputs(3);
  op.shape_only({2});
  op.attr<std::int64_t>("axis", -1);
  op.infer([](Inference& c) {
    c.require(c.dtype(0) != DType::boolean && !is_complex(c.dtype(0)),
              std::string(name_of(c.dtype(0))) + " cannot be added along an axis");
    c.require_index(1, "indices");
    c.require(
        c.shape(0).is_compatible(c.shape(1)),
        fmt::format("{} and its indices {} differ in shape", c.shape(0).text(), c.shape(1).text()));
    require_fit(c.shape(2), c.shape(1), c.attrs().get<std::int64_t>("axis"));
    c.output(c.dtype(0), c.shape(2));
  });
  op.gradient([](Gradient& g) {
    g.set(0, take_along(g.dy(), g.x(1), g.attrs().get<std::int64_t>("axis")));
  });
  op.calls({Primitive::along});
  op.run([](KernelContext& c, const Attrs& attrs) {
    const std::int64_t axis = attrs.get<std::int64_t>("axis");
    const Tensor &x = c.input(0), &indices = c.input(1);
    const Shape like = c.input(2).shape();
    require_fit(like, indices.shape(), axis);
    if (x.shape() != indices.shape())
      throw Error(Code::invalid_argument, fmt::format("{} and its indices {} differ in shape",
                                                      x.shape().text(), indices.shape().text()));
    const AroundAxis a = around_axis(like, axis), added = around_axis(x.shape(), axis);
    Tensor out = c.allocate(x.dtype(), like);
    c.primitives().along(
        c.stream(), {Along::add, x, indices, View(out), a.outer, a.extent, added.extent, a.inner});
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
