#include <troupe/autodiff/differentiate.hpp>

#include <fmt/format.h>

#include <troupe/functions.hpp>

namespace troupe {
namespace {

// True if the broadcast of x with `other` has x's own shape for all values of unknown extents.
bool absorbs(const Shape& x, const Shape& other) {
  if (!x.has_rank() || !other.has_rank() || other.rank() > x.rank()) return false;
  int lead = x.rank() - other.rank();
  for (int i = 0; i < other.rank(); ++i) {
    std::int64_t mine = x[lead + i];
    if (other[i] != 1 && (mine < 0 || mine == 1) && other[i] != mine) return false;
    if (other[i] < 0 && mine < 0) return false;  // one of them may be 1
  }
  return true;
}

// True if input i of a pointwise op may be smaller than the output.
bool may_be_broadcast(const Gradient& g, int i) {
  if (g.inputs() == 1) return false;
  Shape x = g.x(i).shape();
  for (int k = 0; k < g.inputs(); ++k) {
    bool is_same = k == i || (g.x(k).edge() == g.x(i).edge() && g.x(i).edge().node >= 0);
    if (!is_same && !absorbs(x, g.x(k).shape())) return true;
  }
  return false;
}

// For a real loss L and a holomorphic f, dL/dx is dy conj(f'(x)). An op's gradient returns
// dy f'(x), so both cotangents are conjugated. Ops from complex to real numbers or back conjugate
// by themselves.
bool is_holomorphic(const Differentiated& firing) {
  bool has_complex = false;
  for (std::size_t i = 0; i < firing.inputs.size(); ++i) {
    const bool is = is_complex(firing.inputs[i].dtype());
    if (firing.inputs[i].spec().is_list() || (firing.needed[i] && !is)) return false;
    has_complex = has_complex || (is && firing.needed[i]);
  }
  for (const Expr& y : firing.outputs)
    if (y.spec().is_list() || !is_complex(y.dtype())) return false;
  return has_complex;
}

Cotangent conjugated(const Cotangent& c) {
  if (c.is_none()) return c;
  return c.is_sparse() ? Cotangent::sparse(c.indices, conjugate(c.values), c.like)
                       : Cotangent(conjugate(c.dense));
}

}  // namespace

std::vector<Cotangent> differentiate(const OpDef& op, const Attrs& attrs, Differentiated firing) {
  if (!op.gradient) throw Error(Code::unimplemented, fmt::format("{} has no gradient", op.name));
  // a user's function is given dL/dy itself
  const bool conjugates = op.name != "WithGradient" && is_holomorphic(firing);
  if (conjugates)
    for (Cotangent& c : firing.cotangents) c = conjugated(c);
  Gradient g(std::move(firing.inputs), std::move(firing.outputs), std::move(firing.cotangents),
             attrs, std::move(firing.needed));
  op.gradient(g);
  std::vector<Cotangent> result = std::move(g.result());
  for (int i = 0; i < g.inputs(); ++i) {
    Cotangent& dx = result[static_cast<std::size_t>(i)];
    const Expr& x = g.x(i);
    if (!g.needs(i)) dx = Cotangent();
    if (dx.is_none()) continue;
    if (conjugates) dx = conjugated(dx);
    // whose elements have dtypes of their own
    if (x.spec().depth == ValueSpec::kAnyDepth) continue;
    const DType given = (dx.is_sparse() ? dx.values : dx.dense).dtype(), wanted = x.dtype();
    if (given != wanted)
      throw Error(Code::internal, fmt::format("its gradient with respect to input {} is {}, not {}",
                                              i, name_of(given), name_of(wanted)));
    if (op.pointwise && !dx.is_sparse() && may_be_broadcast(g, i)) dx = sum_to(dx.dense, x);
    if (dx.is_sparse() || dx.dense.spec().is_list()) continue;
    const Shape &made = dx.dense.spec().shape, &of = x.spec().shape;
    if (!made.is_compatible(of))
      throw Error(Code::internal, fmt::format("its gradient with respect to input {} is {}, and "
                                              "the input is {}",
                                              i, dx.dense.spec().text(), x.spec().text()));
  }
  return result;
}

Cotangent sum_of(const std::vector<Cotangent>& terms) {
  Cotangent dense, sparse;
  for (const Cotangent& c : terms) {
    if (c.is_none()) continue;
    if (c.is_sparse() && c.is_list()) continue;
    Cotangent& sum = c.is_sparse() ? sparse : dense;
    sum = add(sum, c);
  }
  // Elements of a list are added last, to a list that can be changed in place.
  for (const Cotangent& c : terms)
    if (c.is_sparse() && c.is_list()) dense = add(dense, c);
  return add(dense, sparse);
}

}  // namespace troupe
