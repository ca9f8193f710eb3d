#include <troupe/ops/graph/gradient.hpp>

#include <troupe/functions.hpp>
#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe::detail {

Cotangent Cotangent::sparse(Expr indices, Expr values, Expr like) {
  Cotangent c;
  c.indices = std::move(indices);
  c.values = std::move(values);
  c.like = std::move(like);
  return c;
}

Expr Cotangent::to_dense() const {
  if (is_none()) throw Error(Code::internal, "a cotangent that is none has no dense form");
  if (!is_sparse()) return dense;
  if (is_list()) return bind1("ListAccumulate", {zero_cotangent(like), indices, values});
  return scatter_add(zeros_like(like), indices, values);
}

Expr zero_cotangent(const Expr& x) {
  ValueSpec s = x.spec();
  if (!s.is_list()) return s.shape.is_known() ? x.reader().zeros(s.dtype, s.shape) : zeros_like(x);
  Attrs attrs{
      {"dtype", s.dtype}, {"shape", s.shape}, {"depth", std::int64_t{s.depth}}, {"saved", true}};
  return x.reader().bind(find_op("ListEmpty"), {}, std::move(attrs), Site())[0];
}

namespace {
// Elements go into the other's list, so that a loop that reads n elements takes n steps.
Cotangent add_lists(const Cotangent& a, const Cotangent& b) {
  if (b.is_sparse()) return bind1("ListAccumulate", {a.to_dense(), b.indices, b.values});
  if (a.is_sparse()) return bind1("ListAccumulate", {b.dense, a.indices, a.values});
  return bind1("ListSum", {a.dense, b.dense});
}
}  // namespace

Cotangent add(const Cotangent& a, const Cotangent& b) {
  if (a.is_none()) return b;
  if (b.is_none()) return a;
  if (a.is_list()) return add_lists(a, b);
  if (a.is_sparse() && b.is_sparse()) {
    Cotangent p = flattened(a), q = flattened(b);
    if (p.is_sparse() && q.is_sparse()) {
      if (p.indices.dtype() != q.indices.dtype()) {
        p.indices = cast(p.indices, DType::i64);
        q.indices = cast(q.indices, DType::i64);
      }
      return Cotangent::sparse(concat({p.indices, q.indices}, 0), concat({p.values, q.values}, 0),
                               a.like);
    }
    return add(p, q);
  }
  if (a.is_sparse()) return scatter_add(b.dense, a.indices, a.values);
  if (b.is_sparse()) return scatter_add(a.dense, b.indices, b.values);
  return a.dense + b.dense;
}

Cotangent flattened(const Cotangent& c) {
  if (!c.is_sparse() || c.indices.shape().rank() == 1) return c;
  Shape x = c.like.shape();
  if (!x.has_rank()) return c.to_dense();
  Shape rows = x;
  rows.set(0, kAny);
  std::int64_t n = c.indices.shape().elements();
  if (n >= 0) rows.set(0, n);
  for (int i = 1; i < x.rank(); ++i)
    // then the number of rows does not follow
    if (x[i] < 0 || (x[i] == 0 && n < 0)) return c.to_dense();
  return Cotangent::sparse(reshape(c.indices, Shape{n >= 0 ? n : kAny}), reshape(c.values, rows),
                           c.like);
}

Expr Gradient::dy(int i) const {
  if (dense_[i].is_empty())
    dense_[i] = cotangents_[i].is_none() ? zero_cotangent(outputs_[i]) : cotangents_[i].to_dense();
  return dense_[i];
}

}  // namespace troupe::detail
