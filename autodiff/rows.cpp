#include <troupe/autodiff/rows.hpp>

#include <troupe/functions.hpp>

namespace troupe {

Expr row_sums(const Expr& indices, const Expr& rows, const Operand& table) {
  Expr last = last_position(indices, table);
  return gather(scatter_add(zeros_like(rows), last, rows), last);
}

Cotangent without_duplicates(const Cotangent& c) {
  Cotangent flat = flattened(c);
  if (!flat.is_sparse()) return flat;
  Expr last = last_position(flat.indices, flat.like);
  return Cotangent::sparse(flat.indices, scatter_add(zeros_like(flat.values), last, flat.values),
                           flat.like);
}

}  // namespace troupe
