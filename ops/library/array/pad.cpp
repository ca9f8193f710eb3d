#include <troupe/devices/base/internal.hpp>
#include <troupe/devices/base/representable.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <algorithm>

namespace troupe {

/// x with `before` and `after` elements of `value` added to each axis.
TROUPE_DSL(Expr pad(Operand x, std::vector<std::int64_t> before, std::vector<std::int64_t> after,
                    double value = 0))
Expr pad(Operand x, std::vector<std::int64_t> before, std::vector<std::int64_t> after,
         double value) {
  return bind1("Pad", {x},
               Attrs{{"before", std::move(before)}, {"after", std::move(after)}, {"value", value}});
}

namespace {
Shape padded(const Shape& in, const Attrs& attrs) {
  const auto& before = attrs.get<std::vector<std::int64_t>>("before");
  const auto& after = attrs.get<std::vector<std::int64_t>>("after");
  if (before.size() != after.size() ||
      (in.has_rank() && in.rank() != static_cast<int>(before.size())))
    throw Error(Code::invalid_argument,
                "padding needs one entry of before and after for each axis of " + in.text());
  Shape out;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] < 0 || after[i] < 0)
      throw Error(Code::invalid_argument, "padding cannot be negative; use slice");
    if (std::max(before[i], after[i]) > std::int64_t{1} << 40)
      throw Error(Code::invalid_argument, "padding of more than 2^40 elements fits nowhere");
    std::int64_t n = in.has_rank() ? in[static_cast<int>(i)] : kAny;
    out.push_back(n < 0 ? kAny : n + before[i] + after[i]);
  }
  return out;
}
}  // namespace

TROUPE_OP(Pad) {
  op.doc("The input with elements of one value added around it.");
  op.inputs(1);
  op.attr<std::vector<std::int64_t>>("before");
  op.attr<std::vector<std::int64_t>>("after");
  op.attr<double>("value", 0.0);
  op.infer([](Inference& c) {
    require_representable(c.dtype(0), c.attrs().get<double>("value"), "the value");
    c.output(c.dtype(0), padded(c.shape(0), c.attrs()));
  });
  op.gradient([](Gradient& g) {
    g.set(0, bind1("SliceLike", {g.dy(), g.x()},
                   Attrs{{"starts", g.attrs().get<std::vector<std::int64_t>>("before")}}));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    ConstView in(c.input(0));
    Tensor out = c.allocate(in.dtype, padded(in.shape, attrs));
    View to(out);
    c.primitives().fill(c.stream(), Tensor::scalar_as(in.dtype, attrs.get<double>("value")), to);
    Block at = Block::origin(in.shape.rank());
    at.start = Shape(attrs.get<std::vector<std::int64_t>>("before"));
    c.primitives().copy_block(c.stream(), in, Block::origin(in.shape.rank()), to, at, in.shape);
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
