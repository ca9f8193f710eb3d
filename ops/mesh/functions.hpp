// Functions of tensors whose axes have names (mesh.hpp has an example). A tensor is an ordinary
// `Expr` of a graph: `named` gives its axes names, operations pass them on, and these functions
// take dimensions in the place of axis numbers. All other functions of the DSL serve as they are.
// Pointwise operations on a graph align operands by name where their names do not meet by position:
// of [a, b] and [a, c] comes [a, b, c]. Other operations refuse two names that meet and differ.
//
// Errors: invalid_argument, naming the function, the caller's line and the dimension.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include <troupe/ops/graph/expr.hpp>
#include <troupe/ops/mesh/mesh.hpp>

namespace troupe::mesh {

using MeshAt = std::source_location;

/// x, whose axes are these dimensions, in this order. Renames those that have names already: a
/// renamed dimension follows the rule of its new name.
Expr named(const Expr& x, const Dims& dims, MeshAt at = MeshAt::current());
/// The dimensions of a graph's expression, one an axis. An axis that joins several is named
/// "a*b", an axis without a name "".
Dims dims_of(const Expr& x, MeshAt at = MeshAt::current());
/// x with its axes in the order of `dims`; dimensions that x lacks become axes of extent 1, so that
/// operands are aligned by name: `x + aligned(bias, dims_of(x))`.
Expr aligned(const Expr& x, const Dims& dims, MeshAt at = MeshAt::current());
/// The product of all operands, summed over the dimensions that `result` lacks.
Expr einsum(const std::vector<Expr>& operands, const Dims& result, MeshAt at = MeshAt::current());
/// The elements in the same order, with other dimensions: as many elements as x has.
Expr reshape(const Expr& x, const Dims& dims, MeshAt at = MeshAt::current());
Expr sum(const Expr& x, const Dims& over, MeshAt at = MeshAt::current());
Expr mean(const Expr& x, const Dims& over, MeshAt at = MeshAt::current());
Expr reduce_max(const Expr& x, const Dims& over, MeshAt at = MeshAt::current());
Expr reduce_min(const Expr& x, const Dims& over, MeshAt at = MeshAt::current());
Expr softmax(const Expr& x, const Dim& along, MeshAt at = MeshAt::current());

namespace detail {

/// x with dimension `batch` as two axes: "batch/4", and one of extent `count` behind it, along
/// which its parts lie. A part takes every count-th row, so that under each layout of `batch` the
/// devices have the rows of their part already.
struct Parted {
  Expr parts;
  std::int64_t axis;  // along which the parts lie
  std::string names;  // a part's dimensions, as an attribute
};
Parted parted(const Expr& x, const Dim& batch, std::int64_t count, const char* what, MeshAt at);
/// Part i.
Expr part_of(const Parted& x, const Expr& i, MeshAt at);
/// x under the dimensions of `like`, if `like` has names.
Expr named_as(const Expr& x, const Expr& like);

}  // namespace detail

}  // namespace troupe::mesh
