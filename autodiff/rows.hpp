// Sums of the rows of a table that several positions share, for sparse updates.
//
//   Expr sums = row_sums(indices, rows, w);                       // at each position its row's sum
//   w.scatter_update(indices, gather(w, indices) - rate * sums);  // duplicates write equal rows
//
// Each row is written once or several times with one value: no sorting, no data-dependent shape.
#pragma once

#include <troupe/ops/graph/gradient.hpp>

#include <troupe/devices/base/internal.hpp>

namespace troupe {

/// Each position's row becomes the sum over all positions with its index. indices: [n], rows:
/// [n, ...] of `table`.
Expr row_sums(const Expr& indices, const Expr& rows, const Operand& table);
/// Returns the cotangent flattened, with a row's sum at one of its positions and zeros at the
/// others.
Cotangent without_duplicates(const Cotangent& c);

}  // namespace troupe
