// Gradients of operations: the argument of an op's `gradient`, and the cotangents that it sets.
//
//   op.gradient([](Gradient& g) { g.set(0, g.dy() * g.x(1)); g.set(1, g.dy() * g.x(0)); });
//
// A cotangent is none (zero), dense, or sparse rows: the rows of a large table that a gather used.
// The cotangent of a list is a list: slot i for element i. A slot that was not written, or is
// past its end, is zero; slots without a counterpart in the list are not read. Its sparse form is
// one element of it.
#pragma once

#include <vector>

#include <troupe/ops/graph/expr.hpp>

namespace troupe::detail {

/// dL/dx for one value x.
struct Cotangent {
  Expr dense;  // x's shape; empty if none or sparse
  // sparse: rows of axis 0; duplicates add up. A list's have one index, one element
  Expr indices, values;
  Expr like;  // sparse: x itself, for its shape

  Cotangent() = default;
  Cotangent(Expr d) : dense(std::move(d)) {}  // NOLINT
  static Cotangent sparse(Expr indices, Expr values, Expr like);
  bool is_none() const { return dense.is_empty() && values.is_empty(); }
  bool is_sparse() const { return !values.is_empty(); }
  bool is_list() const { return !is_none() && (is_sparse() ? like : dense).spec().is_list(); }
  /// As a dense expression; scatters sparse rows over zeros. Throws on none.
  Expr to_dense() const;
};

/// Returns a cotangent of x for callers that have none: zeros of its shape, an empty list for a
/// list.
Expr zero_cotangent(const Expr& x);
/// The sum of two cotangents of one value.
Cotangent add(const Cotangent& a, const Cotangent& b);
/// Returns a sparse cotangent with indices of rank 1 and one row of values for each; a dense one if
/// the extents of x's rows are not known. Returns other cotangents unchanged.
Cotangent flattened(const Cotangent& c);

class Gradient {
 public:
  Gradient(std::vector<Expr> inputs, std::vector<Expr> outputs, std::vector<Cotangent> cotangents,
           const Attrs& attrs, std::vector<bool> needed)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)),
        cotangents_(std::move(cotangents)), attrs_(attrs), needed_(std::move(needed)),
        result_(inputs_.size()), dense_(outputs_.size()) {}

  int inputs() const { return static_cast<int>(inputs_.size()); }
  int outputs() const { return static_cast<int>(outputs_.size()); }
  const Expr& x(int i = 0) const { return inputs_[i]; }
  const Expr& y(int i = 0) const { return outputs_[i]; }
  /// The cotangent of output i, dense; zeros if nothing depends on it.
  Expr dy(int i = 0) const;
  bool has_dy(int i) const { return !cotangents_[i].is_none(); }
  const Cotangent& cotangent(int i = 0) const { return cotangents_[i]; }
  const Attrs& attrs() const { return attrs_; }
  /// True if dL/dx(i) is used. Work for unused gradients may be left out.
  bool needs(int i) const { return needed_[i]; }
  void set(int i, Cotangent c) { result_[i] = std::move(c); }
  std::vector<Cotangent>& result() { return result_; }

 private:
  std::vector<Expr> inputs_, outputs_;
  std::vector<Cotangent> cotangents_;
  const Attrs& attrs_;
  std::vector<bool> needed_;
  std::vector<Cotangent> result_;
  mutable std::vector<Expr> dense_;  // results of dy(), so that a second call adds no nodes
};

}  // namespace troupe::detail
