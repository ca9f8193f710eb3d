#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/families/coordinates.hpp>
#include <troupe/ops/families/scan.hpp>

#include <fmt/format.h>

namespace troupe {

/// x with `updates` put at coordinates, as gather_nd would take them from there. mode: "update" (of
/// duplicates the last wins), "add", "sub", "min", "max" or "mul". Sums of f16 and bf16 are made in
/// f32.
TROUPE_DSL(Expr scatter_nd(Operand x, Operand indices, Operand updates,
                           const std::string& mode = "update", std::int64_t batch_axes = 0))
/// x with rows put at indices: updates[i] at row indices[i] of x (axis 0). mode: see scatter_nd.
TROUPE_DSL(Expr scatter(Operand x, Operand indices, Operand updates,
                        const std::string& mode = "update"))
/// x with elements put along `axis`, the reverse of take_along: x[..., indices[..., j, ...], ...]
/// and updates[..., j, ...] become one. mode: see scatter_nd.
TROUPE_DSL(Expr put_along(Operand x, Operand indices, Operand updates, std::int64_t axis = -1,
                          const std::string& mode = "update"))

Expr scatter_nd(Operand x, Operand indices, Operand updates, const std::string& mode,
                std::int64_t batch_axes) {
  return bind1("ScatterNd", {x, indices, updates},
               Attrs{{"mode", mode}, {"batch_axes", batch_axes}});
}

Expr scatter(Operand x, Operand indices, Operand updates, const std::string& mode) {
  Composite c("scatter", {x, indices, updates});
  return scatter_nd(c[0], expand_dims(c[1], -1), c[2], mode);
}

Expr put_along(Operand x, Operand indices, Operand updates, std::int64_t axis,
               const std::string& mode) {
  Composite c("put_along", {x, indices, updates});
  const int rank = c.rank(0);
  c.require(rank >= 1 && c.rank(1) == rank && c.rank(2) == rank,
            fmt::format("x {}, indices {} and updates {} must have one rank", c[0].shape().text(),
                        c[1].shape().text(), c[2].shape().text()));
  c.require(axis >= -rank && axis < rank,
            fmt::format("{} has no axis {}", c[0].shape().text(), axis));
  // With the axis at the end, all others are batches.
  const std::int64_t at = axis < 0 ? axis + rank : axis;
  std::vector<std::int64_t> to_end, back;
  for (std::int64_t i = 0; i < rank; ++i)
    if (i != at) to_end.push_back(i);
  to_end.push_back(at);
  for (std::int64_t i = 0; i < rank; ++i) back.push_back(i < at ? i : i == at ? rank - 1 : i - 1);
  auto turned = [&](const Expr& e) { return at == rank - 1 ? e : transpose(e, to_end); };
  Expr y = scatter_nd(turned(c[0]), expand_dims(turned(c[1]), -1), turned(c[2]), mode, rank - 1);
  return at == rank - 1 ? y : transpose(y, back);
}

namespace {

constexpr std::pair<const char*, Put> kModes[] = {{"update", Put::update}, {"add", Put::add},
                                                  {"sub", Put::sub},       {"min", Put::min},
                                                  {"max", Put::max},       {"mul", Put::mul}};

Put put_of(const Attrs& attrs) {
  const std::string& mode = attrs.get<std::string>("mode");
  for (const auto& [name, how] : kModes)
    if (mode == name) return how;
  throw Error(
      Code::invalid_argument,
      fmt::format("there is no mode '{}'; it takes update, add, sub, min, max or mul", mode));
}

void require_updates(const Shape& taken, const Shape& updates) {
  if (!taken.is_compatible(updates))
    throw Error(Code::invalid_argument,
                fmt::format("updates must have shape {}, not {}", taken.text(), updates.text()));
}

struct ScatterGradient {
  Gradient& g;
  const std::int64_t batch_axes = g.attrs().get<std::int64_t>("batch_axes");
  const Expr x = g.x(0), at = g.x(1), u = g.x(2);

  Expr taken(const Expr& from) const { return gather_nd(from, at, batch_axes); }
  Expr put(const Expr& into, const Expr& what, const char* mode) const {
    return scatter_nd(into, at, what, mode, batch_axes);
  }

  void update() const {
    if (g.needs(0)) g.set(0, put(g.dy(), zeros_like(u), "update"));
    if (!g.needs(2)) return;
    // An update was kept if its own number stands at its target.
    Expr ones = cast(ones_like(stop_gradient(u)), DType::i64);
    Expr number = reshape_like(cumsum(reshape(ones, {kAny}), 0), ones);
    Expr kept =
        taken(put(cast(zeros_like(stop_gradient(x)), DType::i64), number, "update")) == number;
    g.set(2, where(kept, taken(g.dy()), zeros_like(u)));
  }

  // In equal parts to all that equal the result.
  void extreme() const {
    Expr of_x = cast(x == g.y(), x.dtype()), of_u = cast(u == taken(g.y()), x.dtype());
    Expr share = g.dy() / maximum(put(of_x, of_u, "add"), 1.0);
    if (g.needs(0)) g.set(0, of_x * share);
    if (g.needs(2)) g.set(2, of_u * taken(share));
  }

  void product() const {
    if (g.needs(0)) g.set(0, g.dy() * put(ones_like(x), u, "mul"));
    if (g.needs(2)) g.set(2, taken(g.dy() * x) * others());
  }

  // Returns for each update the product of the other updates of its element. There is no division,
  // so that it and its own derivatives hold if some updates are 0: updates are sorted by element,
  // and the products before and after each are multiplied.
  Expr others() const {
    Expr ones = cast(ones_like(stop_gradient(x)), DType::i64),
         number = reshape_like(cumsum(reshape(ones, {kAny}), 0), ones);
    Expr target = reshape(taken(number), {kAny}), order = argsort(target),
         sorted = gather(target, order);
    Expr factor = gather(reshape(widened_half(u), {kAny}), order), one = ones_like(factor),
         none = zeros_like(factor);
    // targets are numbered from 1
    Expr begins = shifted(sorted, 0, false) != sorted, ends = shifted(sorted, 0, true) != sorted;
    Expr before =
        linear_scan(where(begins, none, shifted(factor, 0, false)), where(begins, one, none), 0);
    Expr after = linear_scan(where(begins, none, factor), where(ends, one, none), 0, true);
    return cast(reshape_like(gather(before * after, argsort(order)), u), u.dtype());
  }
};

}  // namespace

TROUPE_OP(ScatterNd) {
  op.doc(
      "The first input with the third put at the coordinates that stand along the last axis of the "
      "second. mode: update, add, sub, min, max, mul.");
  op.inputs(3);
  op.attr<std::string>("mode", "update");
  op.attr<std::int64_t>("batch_axes", 0);
  op.infer([](Inference& c) {
    c.require_index(1, "indices");
    c.require_same_dtype(0, 2);
    const Put how = put_of(c.attrs());
    const bool is_order = how == Put::min || how == Put::max;
    c.require(!is_order || !is_complex(c.dtype(0)),
              std::string(name_of(c.dtype(0))) + " has no order");
    require_updates(
        coordinates_of(c.shape(0), c.shape(1), c.attrs().get<std::int64_t>("batch_axes")).taken,
        c.shape(2));
    c.output(c.dtype(0), c.shape(0));
  });
  op.gradient([](Gradient& g) {
    const ScatterGradient of{g};
    switch (const Put how = put_of(g.attrs())) {
      case Put::update: return of.update();
      case Put::min:
      case Put::max: return of.extreme();
      case Put::mul: return of.product();
      case Put::add:
      case Put::sub:
        g.set(0, g.cotangent());
        if (g.needs(2)) g.set(2, how == Put::add ? of.taken(g.dy()) : -of.taken(g.dy()));
    }
  });
  op.calls({Primitive::along});
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView x(c.input(0)), indices(c.input(1)), updates(c.input(2));
    const Coordinates at =
        coordinates_of(x.shape, indices.shape, attrs.get<std::int64_t>("batch_axes"));
    require_updates(at.taken, updates.shape);
    Tensor out = c.allocate_over(0, x.dtype, x.shape);
    View to(out);
    if (to.data != x.data()) c.primitives().copy(c.stream(), x, to);
    c.primitives().along(c.stream(), at.args(Along::put_at, updates, indices, to, put_of(attrs)));
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
