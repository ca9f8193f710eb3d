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
  /// Of no operands, called `at`.
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
  /// Operand i, which is a scalar or has operand j's shape: what is not known yet of the two is
  /// compared when it runs.
  Expr shaped_as(std::size_t i, std::size_t j) const;
  /// x, whose extent along `axis` is that of `other` along `of`: refused now, naming `what`, or
  /// where it is not known yet when it runs.
  Expr with_extent(const Expr& x, int axis, const Expr& other, int of,
                   const std::string& what) const;

 private:
  std::string name_;
  Reader& reader_;
  Site site_;  // of the outermost of functions within functions
  Reader::AtSite at_;
  std::vector<Expr> inputs_;
};

/// ` in nll_loss` where what carries the site was made by that function, for errors that name an op
/// the user did not write; else nothing.
std::string within(const Site& site);

/// f16 and bf16 as f32, in which squares, sums and differences of them are made: 300 squared is
/// infinite in f16, and 256 + 1 is 256 in bf16. Others as they are.
Expr widened_half(const Expr& x);

/// Of sums of squares in f64: what their elements are to be multiplied with, and the root divided
/// by, so that no square is infinite or lost; 1 wherever none is, else a power of two. No
/// derivative goes through it.
Expr scale_of_squares(const Expr& sums);

/// x with `axis`, counted from the front, and the last one exchanged, as what computes along the
/// last axis takes it and gives it back.
Expr exchanged_with_last(const Expr& x, int axis);

/// Bools as i64, so that sums of them count; others as they are.
Operand counted(const Operand& x);

}  // namespace troupe::detail
