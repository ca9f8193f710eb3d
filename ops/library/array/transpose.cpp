#include <fmt/format.h>
#include <troupe/devices/base/internal.hpp>
#include <troupe/functions.hpp>
#include <troupe/ops/graph/gradient.hpp>
#include <troupe/ops/graph/op.hpp>

namespace troupe {

/// Axis i of the result is axis permutation[i] of x; none given: the axes reversed.
TROUPE_DSL(Expr transpose(Operand x, std::vector<std::int64_t> permutation = {}))
Expr transpose(Operand x, std::vector<std::int64_t> permutation) {
  if (permutation.empty() && x.is_expr()) {
    if (!x.expr().shape().has_rank())
      throw Error(Code::invalid_argument,
                  "Transpose at " + x.site().text() +
                      ": the rank of the input is not known; give a permutation");
    for (int i = x.expr().shape().rank() - 1; i >= 0; --i) permutation.push_back(i);
  }
  return bind1("Transpose", {x}, Attrs{{"permutation", permutation}});
}

TROUPE_OP(Transpose) {
  op.doc("The input with its axes permuted.");
  op.inputs(1);
  op.takes_strings();
  op.attr<std::vector<std::int64_t>>("permutation");
  op.infer([](Inference& c) {
    const auto& p = c.attrs().get<std::vector<std::int64_t>>("permutation");
    const Shape& s = c.shape(0);
    c.require(p.size() <= Shape::kMaxRank,
              fmt::format("a permutation has at most {} axes, not {}", Shape::kMaxRank, p.size()));
    std::uint32_t seen = 0;
    for (std::int64_t a : p)
      if (a >= 0 && a < static_cast<std::int64_t>(p.size())) seen |= 1u << a;
    c.require(
        (!s.has_rank() || s.rank() == static_cast<int>(p.size())) && seen == (1u << p.size()) - 1,
        fmt::format("[{}] is no permutation of the axes of {}", fmt::join(p, ", "), s.text()));
    Shape out;
    for (std::int64_t a : p) out.push_back(s.has_rank() ? s[static_cast<int>(a)] : kAny);
    c.output(c.dtype(0), out);
  });
  op.gradient([](Gradient& g) {
    const auto& p = g.attrs().get<std::vector<std::int64_t>>("permutation");
    std::vector<std::int64_t> inverse(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) inverse[p[i]] = static_cast<std::int64_t>(i);
    g.set(0, transpose(g.dy(), inverse));
  });
  op.run([](KernelContext& c, const Attrs& attrs) {
    const auto& p = attrs.get<std::vector<std::int64_t>>("permutation");
    ConstView in(c.input(0));
    if (in.shape.rank() != static_cast<int>(p.size()))
      throw Error(Code::invalid_argument, fmt::format("[{}] is no permutation of the axes of {}",
                                                      fmt::join(p, ", "), in.shape.text()));
    Shape shape;
    for (std::int64_t a : p) shape.push_back(in.shape[static_cast<int>(a)]);
    if (shape.is_scalar()) {
      c.set(0, c.take(0));
      return;
    }
    Tensor out = c.allocate(in.dtype, shape);
    c.primitives().transpose(c.stream(), in, View(out), p);
    c.set(0, std::move(out));
  });
}

}  // namespace troupe
