#include <troupe/ops/gradient.hpp>

#include <troupe/ops/reader.hpp>
#include <troupe/functions.hpp>

namespace troupe {

Cotangent Cotangent::sparse(Expr indices, Expr values, Expr like) {
  Cotangent c;
  c.indices = std::move(indices);
  c.values = std::move(values);
  c.like = std::move(like);
  return c;
}

Expr Cotangent::to_dense() const {
  if (is_none()) throw Error(Code::internal, "a cotangent that is none has no dense form");
  return is_sparse() ? scatter_add(zeros_like(like), indices, values) : dense;
}

Cotangent add(const Cotangent& a, const Cotangent& b) {
  if (a.is_none()) return b;
  if (b.is_none()) return a;
  if (a.is_sparse() && b.is_sparse())
    return Cotangent::sparse(concat({a.indices, b.indices}, 0), concat({a.values, b.values}, 0), a.like);
  return a.to_dense() + b.to_dense();
}

Expr Gradient::dy(int i) const {
  if (cotangents_[i].is_none()) return zeros_like(outputs_[i]);
  return cotangents_[i].to_dense();
}

}  // namespace troupe
