// Functions of the DSL that are made of others: their nodes carry the caller's line, and so do
// their errors.
//
//   Expr rms_norm(Operand x, Operand scale) {
//     Composite c("rms_norm", {x, scale});
//     c.require_floating(0);
//     return c[0] * rsqrt(mean(square(c[0]), {-1}, true)) * c[1];
//   }
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/ops/graph/op.hpp>
#include <troupe/ops/graph/reader.hpp>

namespace troupe::detail {

class Composite {
 public:
  /// At least one operand is an expression or a variable; numbers take the first expression's
  /// dtype. `name`: a literal, which sites go on pointing to.
  Composite(std::string_view name, std::initializer_list<Operand> operands);
  /// A composite without operands, which the user called at `at`.
  Composite(std::string_view name, Reader& in, std::source_location at);

  /// The operands as expressions of one reader.
  const Expr& operator[](std::size_t i) const { return inputs_[i]; }
  std::size_t operands() const { return inputs_.size(); }
  Reader& reader() const { return reader_; }
  /// Throws invalid_argument, naming the outermost function, the line, and this one where it is
  /// within that, unless `condition`.
  void require(bool condition, const std::string& message) const;
  void require_floating(std::size_t i) const;
  void require_floating_or_complex(std::size_t i) const;
  /// Refuses strings.
  void require_numbers(std::size_t i) const;
  /// The rank of operand i, which must be known.
  int rank(std::size_t i) const;
  /// The axis of operand i, counted from the front: refused if there is none.
  int axis(std::size_t i, std::int64_t axis) const;
  /// An extent of operand i, which must be known.
  std::int64_t extent(std::size_t i, std::int64_t axis) const;
  /// Refuses a known shape of more than 2^40 elements, which fits nowhere.
  void require_fits(const Shape& made) const;
  /// An op without inputs.
  Expr source(std::string_view op, Attrs attrs) const;
  /// Returns operand i, which is a scalar or has operand j's shape. Unknown extents are compared
  /// when it runs.
  Expr shaped_as(std::size_t i, std::size_t j) const;
  /// Returns x, whose extent along `axis` is that of `other` along `of`. Throws otherwise, naming
  /// `what`; unknown extents are compared when it runs.
  Expr with_extent(const Expr& x, int axis, const Expr& other, int of,
                   const std::string& what) const;

 private:
  std::string name_;
  Reader& reader_;
  Site site_;  // the outermost function's, if composites call each other
  Reader::AtSite at_;
  std::vector<Expr> inputs_;
};

/// Returns ` in nll_loss` if that function made the node with this site, for errors that name an op
/// the user did not write; else nothing.
std::string within(const Site& site);

/// Returns f16 and bf16 as f32, in which their squares, sums and differences are made: 300 squared
/// is infinite in f16, and 256 + 1 is 256 in bf16. Returns other dtypes unchanged.
Expr widened_half(const Expr& x);

/// Returns a factor for each sum of squares in f64. Multiply the elements by it and divide the root
/// by it, so that no square is infinite or lost. The factor is 1 wherever no square is, else a
/// power of two. No derivative goes through it.
Expr scale_of_squares(const Expr& sums);

/// Returns x with `axis`, counted from the front, and the last one exchanged. Functions along the
/// last axis use it on their argument and on their result.
Expr exchanged_with_last(const Expr& x, int axis);

/// Bools as i64, so that sums of them count; others as they are.
Operand counted(const Operand& x);

}  // namespace troupe::detail
