#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

#include <fmt/format.h>

namespace troupe {

namespace {

// Both have ranks.
void require_match(const Shape& x, const Shape& like, const Attrs& attrs) {
  const std::string& function = attrs.get<std::string>("function");
  const std::int64_t axis = attrs.get<std::int64_t>("axis"), of = attrs.get<std::int64_t>("of");
  if (axis < 0) {
    if (x.rank() != 0 && !like.is_compatible(x))
      throw Error(Code::invalid_argument,
                  fmt::format("{}: {} and {} differ in shape", function, like.text(), x.text()));
    return;
  }
  if (axis >= x.rank() || of < 0 || of >= like.rank())
    throw Error(Code::invalid_argument, fmt::format("{}: {} has no axis {}, or {} no axis {}",
                                                    function, x.text(), axis, like.text(), of));
  const std::int64_t a = like[static_cast<int>(of)], b = x[static_cast<int>(axis)];
  if (a >= 0 && b >= 0 && a != b)
    throw Error(Code::invalid_argument,
                fmt::format("{}: {} is {} in one place and {} in another", function,
                            attrs.get<std::string>("what"), a, b));
}

}  // namespace

TROUPE_OP(MatchExtents) {
  op.doc(
      "The first input, refused unless it is a scalar or has the second's shape; with `axis` and "
      "`of`, unless those two extents agree.");
  op.inputs(2);
  op.takes_strings();
  op.shape_only({1});
  op.attr<std::string>("function", "");
  op.attr<std::string>("what", "the extent");
  op.attr<std::int64_t>("axis", -1);
  op.attr<std::int64_t>("of", -1);
  op.infer([](Inference& c) {
    const Shape &x = c.shape(0), &like = c.shape(1);
    if (x.has_rank() && like.has_rank()) require_match(x, like, c.attrs());
    Shape out = x;
    if (const std::int64_t axis = c.attrs().get<std::int64_t>("axis"); axis < 0) {
      if (x.has_rank() && x.rank() > 0) out = x.merge(like);
    } else if (x.has_rank() && like.has_rank() && x[static_cast<int>(axis)] < 0) {
      out.set(static_cast<int>(axis), like[static_cast<int>(c.attrs().get<std::int64_t>("of"))]);
    }
    c.output(c.dtype(0), out);
  });
  op.gradient([](Gradient& g) { g.set(0, g.cotangent()); });
  op.run([](KernelContext& c, const Attrs& attrs) {
    require_match(c.input(0).shape(), c.input(1).shape(), attrs);
    c.set(0, std::move(c.all_inputs()[0]));
  });
}

}  // namespace troupe
